/*
 * The program's own alternate signal stacks, in managed memory and absent when
 * the signal comes; handlers that stay on the ordinary stack; stack overflow;
 * stacks that are taken off while a handler runs, and what a handler's context
 * says of them.
 */
#include "victim.h"
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1 << 31)
#endif

#define STACK_BYTES (128ul << 10)

static __thread char *stack;
static __thread volatile int on_stack, off_stack;

static void counts(int signal) {
    char here;
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    int inside = &here >= stack && &here < stack + STACK_BYTES;
    CHECK(!!(now.ss_flags & SS_ONSTACK) == inside);
    CHECK(now.ss_sp == stack && now.ss_size == STACK_BYTES);
    if (inside) {
        on_stack++;
        CHECK(sigaltstack(&now, NULL) == -1 && errno == EPERM);
    } else {
        off_stack++;
    }
    /* A second signal while on the stack stays on it. */
    if (signal == SIGUSR1 && on_stack == 1)
        CHECK(raise(SIGRTMIN) == 0);
}

static void stack_make(void) {
    stack = pages_map(STACK_BYTES / PAGE_BYTES);
    pages_fill(stack, STACK_BYTES / PAGE_BYTES, 7);
    stack_t ss = {.ss_sp = stack, .ss_size = STACK_BYTES}, found;
    CHECK(sigaltstack(&ss, NULL) == 0 && sigaltstack(NULL, &found) == 0);
    CHECK(found.ss_sp == stack && found.ss_size == STACK_BYTES && found.ss_flags == 0);
}

static void *in_a_thread(void *argument) {
    stack_t found;
    CHECK(sigaltstack(NULL, &found) == 0 && (found.ss_flags & SS_DISABLE));
    stack_make();
    for (int i = 0; i < 5; i++) {
        press();
        raise(SIGUSR1);
        raise(SIGUSR2);
    }
    CHECK(on_stack == 6 && off_stack == 5);
    stack_t off = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&off, NULL) == 0);
    return argument;
}

static sigjmp_buf escape;

static void overflowed(int signal, siginfo_t *information, void *context) {
    char here;
    (void)context;
    CHECK(signal == SIGSEGV && information->si_addr && &here >= stack
          && &here < stack + STACK_BYTES);
    siglongjmp(escape, 1);
}

static uint64_t recurse(uint64_t depth, volatile char *above) {
    volatile char frame[3000];
    frame[depth % 3000] = (char)depth + *above;
    return depth == UINT64_MAX ? 0 : recurse(depth + 1, frame) + frame[(depth + 1) % 3000];
}

static void overflow(void) {
    struct sigaction action = {.sa_sigaction = overflowed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0 || errno == EPERM);
    for (volatile int i = 0; i < 3; i++) {
        press();
        if (sigsetjmp(escape, 1) == 0) {
            char top = 0;
            note(recurse(1, &top));
        };
    }
}

static char *small;
static size_t small_bytes;
static volatile int has_no_room;

static void raises(int signal) {
    (void)signal;
    volatile char here = 0;
    /* Down to where no frame fits any more. */
    volatile char *deep = __builtin_alloca(&here - small - 700);
    *deep = 1;
    CHECK(raw(SYS_tgkill, getpid(), gettid(), SIGRTMIN, 0, 0, 0) == 0);
    CHECK(!"came back");
}

static void has_no_place(int signal, siginfo_t *information, void *context) {
    (void)context;
    CHECK(signal == SIGSEGV && information->si_code == SI_KERNEL && !information->si_addr);
    has_no_room++;
}

/* A frame that does not fit the stack is not put there: it is a fault. */
static void without_room(void) {
    struct sigaction action = {.sa_handler = raises, .sa_flags = SA_ONSTACK};
    struct sigaction segv = {.sa_sigaction = has_no_place, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGSEGV, &segv, NULL) == 0);
    char *below = pages_map(64);
    memset(below, 1, 64 * PAGE_BYTES);
    small = below + 32 * PAGE_BYTES;
    small_bytes = 32 * PAGE_BYTES;
    CHECK(sigaltstack(&(stack_t){.ss_sp = small, .ss_size = small_bytes}, NULL) == 0);
    /* On it there is no room for the fault either. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(raise(SIGUSR1) == 0);
        _exit(0);
    }
    int status = wait_for(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    /* Elsewhere there is. */
    small_bytes = 2048;
    CHECK(sigaltstack(&(stack_t){.ss_sp = small, .ss_size = small_bytes}, NULL) == 0);
    press();
    if (getauxval(AT_MINSIGSTKSZ) > 2048 + 256) {
        CHECK(raise(SIGUSR1) == 0 && has_no_room == 1);
        CHECK(raise(SIGUSR1) == 0 && has_no_room == 2);
    }
    for (size_t i = 0; i < 32 * PAGE_BYTES; i++)
        CHECK(below[i] == 1);
}

static void is_alternate(const void *start, int flags, size_t bytes) {
    stack_t now;
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK(now.ss_sp == start && now.ss_flags == flags && now.ss_size == bytes);
}

static char *second;
static volatile int taken_off;

static int is_on(const char *start, const volatile char *here) {
    return here >= start && here < start + STACK_BYTES;
}

static void finds_none(int signal, siginfo_t *information, void *context) {
    volatile char here = 0;
    const stack_t *before = &((ucontext_t *)context)->uc_stack;
    (void)signal, (void)information;
    CHECK(is_on(stack, &here));
    CHECK(before->ss_sp == stack && before->ss_size == STACK_BYTES);
    CHECK(before->ss_flags == (int)SS_AUTODISARM);
    is_alternate(NULL, SS_DISABLE, 0);
    /* It stays where it is, as there is none, and then goes to another one. */
    CHECK(raise(SIGUSR2) == 0);
    CHECK(sigaltstack(&(stack_t){.ss_sp = second, .ss_size = STACK_BYTES}, NULL) == 0);
    CHECK(raise(SIGRTMIN) == 0);
    is_alternate(second, 0, STACK_BYTES);
    taken_off++;
}

static void is_nested(int signal, siginfo_t *information, void *context) {
    volatile char here = 0;
    const stack_t *before = &((ucontext_t *)context)->uc_stack;
    (void)information;
    int is_second = signal == SIGRTMIN;
    CHECK(is_on(is_second ? second : stack, &here));
    CHECK(before->ss_sp == (is_second ? second : NULL));
    CHECK(before->ss_flags == (is_second ? 0 : SS_DISABLE));
    taken_off++;
}

static ucontext_t outside, inside;

static void swaps(int signal) {
    (void)signal;
    CHECK(swapcontext(&inside, &outside) == 0);
    taken_off++;
}

static void is_signalled(void) {
    CHECK(raise(SIGUSR1) == 0);
    CHECK(swapcontext(&inside, &outside) == 0);
}

/* A child that is waited for has the stack of who made it, a thread has none. */
static void in_a_child(void) {
    static stack_t found;
    pid_t child = vfork();
    if (child == 0) {
        sigaltstack(NULL, &found);
        _exit(0);
    }
    CHECK_CHILD(child);
    CHECK(found.ss_sp == stack && found.ss_size == STACK_BYTES && found.ss_flags == 0);
}

/* SS_AUTODISARM: no signal comes on a stack that a handler has left for a while. */
static void disarmed(void) {
    stack_t autodisarm = {.ss_sp = stack, .ss_flags = SS_AUTODISARM, .ss_size = STACK_BYTES};
    struct sigaction action = {.sa_sigaction = finds_none, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    action.sa_sigaction = is_nested;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0 && sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(sigaltstack(&autodisarm, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        is_alternate(stack, SS_AUTODISARM, STACK_BYTES);
        press();
        CHECK(raise(SIGUSR1) == 0 && taken_off == 3 * i + 3);
    }
    struct sigaction leaves = {.sa_handler = swaps, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &leaves, NULL) == 0);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack = (stack_t){.ss_sp = second, .ss_size = STACK_BYTES};
    makecontext(&inside, is_signalled, 0);
    CHECK(swapcontext(&outside, &inside) == 0 && taken_off == 15);
    is_alternate(NULL, SS_DISABLE, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
    is_alternate(stack, SS_AUTODISARM, STACK_BYTES);
    CHECK(taken_off == 16);
}

static int alteration;

static void alters(int signal, siginfo_t *information, void *context) {
    stack_t *before = &((ucontext_t *)context)->uc_stack;
    stack_t other = {.ss_sp = second, .ss_size = STACK_BYTES};
    (void)signal, (void)information;
    CHECK(before->ss_sp == stack && before->ss_flags == SS_ONSTACK);
    switch (alteration) {
    case 0:
        CHECK(sigaltstack(&other, NULL) == 0);
        break;
    case 1:
        *before = other;
        break;
    case 2:
        /* Nobody minds what cannot be one. */
        before->ss_size = 1;
        break;
    case 3:
        before->ss_flags = 4711;
        break;
    default:
        before->ss_flags = SS_DISABLE;
    }
}

/* The return of a handler sets the stack that its context says. */
static void altered(void) {
    struct sigaction action = {.sa_sigaction = alters, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (alteration = 0; alteration < 5; alteration++) {
        stack_t first = {.ss_sp = stack, .ss_flags = SS_ONSTACK, .ss_size = STACK_BYTES};
        CHECK(sigaltstack(&first, NULL) == 0);
        is_alternate(stack, 0, STACK_BYTES);
        CHECK(raise(SIGUSR1) == 0);
        if (alteration == 4)
            is_alternate(NULL, SS_DISABLE, 0);
        else
            is_alternate(alteration == 1 ? second : stack, 0, STACK_BYTES);
    }
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    ballast_make(32);
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGRTMIN, &action, NULL) == 0);
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    stack_make();
    for (int i = 0; i < 5; i++) {
        press();
        raise(SIGUSR1);
        raise(SIGUSR2);
    }
    CHECK(on_stack == 6 && off_stack == 5);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, in_a_thread, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    in_a_child();
    overflow();
    without_room();
    CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
    second = pages_map(STACK_BYTES / PAGE_BYTES);
    disarmed();
    altered();
    return victim_end();
}
