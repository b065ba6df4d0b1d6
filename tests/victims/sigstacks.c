/*
 * The program's own alternate signal stacks, in managed memory and absent when
 * the signal comes; handlers that stay on the ordinary stack; stack overflow.
 */
#include "victim.h"
#include <setjmp.h>
#include <sys/resource.h>

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
    overflow();
    return victim_end();
}
