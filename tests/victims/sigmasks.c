/*
 * Calls that have a signal mask of their own while they wait: the handler that
 * ends them runs with that mask, its context tells the one before, and that
 * one holds again afterwards. And what a thread blocks of SIGBUS, SIGSYS and
 * SIGURG, whatever comes in it, and however it leaves a handler or a context.
 */
#include "victim.h"
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <ucontext.h>

static uint64_t seen[8];
static volatile sig_atomic_t seen_count;

static uint64_t bits(const sigset_t *set) {
    uint64_t found = 0;
    for (int signal = 1; signal < 64; signal++)
        if (signal != 32 && signal != 33 && sigismember(set, signal) == 1)
            found |= 1ull << signal;
    return found;
}

static uint64_t mask_now(void) {
    sigset_t set;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    return bits(&set);
}

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)info;
    CHECK(seen_count < 6);
    seen[seen_count++] = mask_now();
    seen[seen_count++] = bits(&((ucontext_t *)context)->uc_sigmask) + signal;
}

static sigset_t *set_of(sigset_t *set, int a, int b, int c, int d) {
    sigemptyset(set);
    int signals[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (signals[i])
            sigaddset(set, signals[i]);
    return set;
}

static pthread_t waiting;

static void *send_later(void *argument) {
    for (const int *signal = argument; *signal; signal++) {
        usleep(30000);
        CHECK(pthread_kill(waiting, *signal) == 0);
    }
    return NULL;
}

/* Waits in one of the calls; gives its errno. */
static int wait_in(int call, const sigset_t *mask, int pipe_fd) {
    struct pollfd polled = {pipe_fd, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set reads;
    int result, epoll;
    switch (call) {
    case 0:
        result = sigsuspend(mask);
        break;
    case 1:
        result = ppoll(&polled, 1, NULL, mask);
        break;
    case 2:
        FD_ZERO(&reads);
        FD_SET(pipe_fd, &reads);
        result = pselect(pipe_fd + 1, &reads, NULL, NULL, NULL, mask);
        break;
    default:
        epoll = epoll_create1(0);
        CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, pipe_fd, &event) == 0);
        result = epoll_pwait(epoll, &event, 1, -1, mask);
        close(epoll);
    }
    CHECK(result == -1);
    return errno;
}

static volatile int is_over;

static void *send_all_the_time(void *argument) {
    (void)argument;
    for (unsigned i = 0; !is_over; i++)
        CHECK(pthread_kill(waiting, i % 2 ? SIGUSR1 : SIGUSR2) == 0);
    return NULL;
}

static volatile sig_atomic_t storm_count;

static void on_storm(int signal, siginfo_t *info, void *context) {
    (void)info;
    uint64_t interrupted = bits(&((ucontext_t *)context)->uc_sigmask), now = mask_now();
    int further = signal == SIGUSR1 ? SIGSYS : SIGURG;
    CHECK(interrupted & 1ull << SIGBUS);
    CHECK(now == (interrupted | 1ull << further | 1ull << signal));
    storm_count++;
}

/* Handlers come as fast as they can, also while another one returns. */
static void storm(void) {
    struct sigaction action = {.sa_sigaction = on_storm, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t mask, before;
    CHECK(sigprocmask(SIG_BLOCK, set_of(&mask, SIGBUS, 0, 0, 0), &before) == 0);
    uint64_t wanted = mask_now();
    set_of(&action.sa_mask, SIGSYS, 0, 0, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    set_of(&action.sa_mask, SIGURG, 0, 0, 0);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    pthread_t sender;
    is_over = 0;
    CHECK(pthread_create(&sender, NULL, send_all_the_time, NULL) == 0);
    while (storm_count < 5000)
        CHECK(mask_now() == wanted);
    is_over = 1;
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(mask_now() == wanted && sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

static sigjmp_buf escape;
static ucontext_t there, here;

static void jumps(int signal) {
    uint64_t blocked = 1ull << signal | 1ull << SIGURG | 1ull << SIGSYS;
    CHECK((mask_now() & blocked) == blocked);
    siglongjmp(escape, 1);
}

static void runs_there(void) {
    for (;;) {
        note(mask_now());
        CHECK(swapcontext(&there, &here) == 0);
    }
}

/* Masks come back with a jump, and change with a context. */
static void jumps_and_swaps(void) {
    static char stack[64 << 10];
    struct sigaction action = {.sa_handler = jumps};
    sigset_t before, mask;
    CHECK(sigprocmask(SIG_BLOCK, set_of(&mask, SIGBUS, SIGURG, 0, 0), &before) == 0);
    uint64_t wanted = mask_now();
    set_of(&action.sa_mask, SIGSYS, 0, 0, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (volatile int i = 0; i < 20; i++) {
        if (sigsetjmp(escape, 1) == 0)
            CHECK(raise(SIGUSR1) == 0 && !"came back");
        CHECK(mask_now() == wanted);
    }
    CHECK(getcontext(&there) == 0);
    there.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
    set_of(&there.uc_sigmask, SIGSYS, SIGUSR2, 0, 0);
    makecontext(&there, runs_there, 0);
    for (int i = 0; i < 5; i++) {
        CHECK(swapcontext(&here, &there) == 0 && mask_now() == wanted);
        press();
    }
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

/* What a handler writes in its context is the mask afterwards. */
static void alters(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    set_of(&((ucontext_t *)context)->uc_sigmask, SIGURG, SIGSYS, SIGTERM, 0);
}

static void altered(void) {
    struct sigaction action = {.sa_sigaction = alters, .sa_flags = SA_SIGINFO};
    sigset_t before;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &before) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(mask_now() == (1ull << SIGURG | 1ull << SIGSYS | 1ull << SIGTERM));
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    ballast_make(28);
    int fds[2];
    CHECK(pipe(fds) == 0);
    waiting = pthread_self();
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    set_of(&action.sa_mask, SIGQUIT, 0, 0, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
    sigset_t *masks = pages_map(16), before;
    set_of(&masks[0], SIGUSR1, SIGUSR2, SIGTERM, 0);
    for (int call = 0; call < 4; call++) {
        for (int variant = 0; variant < 3; variant++) {
            /* What is sent, and what the call blocks. */
            static int sent[3][3] = {{SIGUSR1}, {SIGUSR2, SIGUSR1}, {SIGUSR1}};
            sigset_t *mask = &masks[1];
            if (variant == 0)
                set_of(mask, SIGUSR2, SIGHUP, 0, 0);
            else if (variant == 1)
                set_of(mask, SIGUSR2, SIGBUS, SIGKILL, 0);
            else
                sigfillset(mask), sigdelset(mask, SIGUSR1), sigdelset(mask, SIGALRM);
            CHECK(sigprocmask(SIG_SETMASK, &masks[0], &before) == 0);
            seen_count = 0;
            press();
            pthread_t sender;
            CHECK(pthread_create(&sender, NULL, send_later, sent[variant]) == 0);
            CHECK(wait_in(call, mask, fds[0]) == EINTR);
            uint64_t after = mask_now();
            CHECK(after == bits(&masks[0]));
            CHECK(pthread_join(sender, NULL) == 0);
            CHECK(seen_count == 2);
            uint64_t wanted = bits(mask) | 1ull << SIGUSR1 | 1ull << SIGQUIT;
            CHECK(seen[0] == (wanted & ~(1ull << SIGKILL | 1ull << SIGSTOP)));
            CHECK(seen[1] == bits(&masks[0]) + SIGUSR1);
            /* What was blocked all the time comes now. */
            CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
            CHECK(seen_count == (variant == 1 ? 4 : 2));
            for (int i = 0; i < seen_count; i++)
                note(seen[i]);
        }
    }
    storm();
    jumps_and_swaps();
    altered();
    return victim_end();
}
