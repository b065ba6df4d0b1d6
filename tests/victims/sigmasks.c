/*
 * Calls that have a signal mask of their own while they wait: the handler that
 * ends them runs with that mask, its context tells the one before, and that
 * one holds again afterwards.
 */
#include "victim.h"
#include <poll.h>
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
    return victim_end();
}
