/*
 * SIGBUS, SIGSYS and SIGURG, which the pager lives on, as a program's own: blocked, they stay
 * pending, and come by sigtimedwait, from a signalfd, or to the handler of whoever unblocks them.
 */
#include "victim.h"
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>

#define LATE_ROUNDS 100

static const int ours[] = {SIGBUS, SIGSYS, SIGURG};
static volatile sig_atomic_t handled, handled_code, handled_value;
static volatile pid_t handled_by;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)context;
    handled = signal;
    handled_code = info->si_code;
    handled_value = info->si_code == SI_QUEUE ? info->si_value.sival_int : 0;
    handled_by = gettid();
}

static sigset_t set_with(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    if (a)
        sigaddset(&set, a);
    if (b)
        sigaddset(&set, b);
    return set;
}

static int is_pending(int signal) {
    sigset_t set;
    CHECK(sigpending(&set) == 0);
    return sigismember(&set, signal);
}

/* Sends it in one of the ways; gives the code with which it has to come. */
static int send_it(int way, int signal) {
    union sigval value = {.sival_int = 4711};
    switch (way) {
    case 0:
        CHECK(kill(getpid(), signal) == 0);
        return SI_USER;
    case 1:
        CHECK(sigqueue(getpid(), signal, value) == 0);
        return SI_QUEUE;
    case 2:
        CHECK(raise(signal) == 0);
        return SI_TKILL;
    default: {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            _exit(kill(getppid(), signal) != 0);
        CHECK_CHILD(child);
        return SI_USER;
    }
    }
}

static void waits_for_what_is_there(int signal, siginfo_t *info) {
    sigset_t set = set_with(signal, SIGUSR1);
    struct timespec none = {0, 0};
    CHECK(sigtimedwait(&set, info, &none) == -1 && errno == EAGAIN);
    for (int way = 0; way < 4; way++) {
        int code = send_it(way, signal);
        CHECK(is_pending(signal) == 1);
        if (way == 0)
            press();
        CHECK(sigtimedwait(&set, info, &none) == signal);
        /* libc says SI_USER for SI_TKILL. */
        CHECK(info->si_signo == signal && info->si_code == (way == 2 ? SI_USER : code));
        CHECK(info->si_pid == getpid() || way == 3);
        CHECK(way != 1 || info->si_value.sival_int == 4711);
        CHECK(is_pending(signal) == 0);
        /* Of each kind one is kept. */
        CHECK(kill(getpid(), signal) == 0 && kill(getpid(), signal) == 0);
        CHECK(sigwaitinfo(&set, NULL) == signal);
        CHECK(sigtimedwait(&set, NULL, &none) == -1 && errno == EAGAIN);
        note(code);
    }
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigwaitinfo(&set, info) == SIGUSR1);
}

static void *wait_here(void *argument) {
    sigset_t set = set_with(*(int *)argument, SIGUSR1);
    siginfo_t *info = pages_map(1);
    for (int round = 0; round < 20; round++) {
        CHECK(sigwaitinfo(&set, info) == *(int *)argument);
        CHECK(info->si_value.sival_int == round);
        CHECK(kill(getpid(), SIGUSR2) == 0);
    }
    CHECK(munmap(info, PAGE_BYTES) == 0);
    return NULL;
}

/* One thread waits, another one sends; also while the thread is on its way. */
static void waits_for_what_comes(int signal) {
    pthread_t thread;
    sigset_t answer = set_with(SIGUSR2, 0);
    CHECK(pthread_create(&thread, NULL, wait_here, &signal) == 0);
    for (int round = 0; round < 20; round++) {
        if (round % 8 == 0)
            press();
        union sigval value = {.sival_int = round};
        CHECK(sigqueue(getpid(), signal, value) == 0);
        CHECK(sigwaitinfo(&answer, NULL) == SIGUSR2);
    }
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *read_here(void *argument) {
    int fd = *(int *)argument;
    struct signalfd_siginfo *infos = pages_map(1);
    for (int round = 0; round < 10; round++) {
        CHECK(read(fd, infos, 2 * sizeof *infos) == sizeof *infos);
        CHECK(infos[0].ssi_int == round);
        CHECK(kill(getpid(), SIGUSR2) == 0);
    }
    CHECK(munmap(infos, PAGE_BYTES) == 0);
    return NULL;
}

static void reads(int signal, struct signalfd_siginfo *infos) {
    sigset_t set = set_with(signal, SIGUSR1), answer = set_with(SIGUSR2, 0);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    CHECK(fd >= 0);
    struct pollfd polled = {fd, POLLIN, 0};
    for (int way = 0; way < 4; way++) {
        CHECK(poll(&polled, 1, 0) == 0);
        CHECK(read(fd, infos, sizeof *infos) == -1 && errno == EAGAIN);
        int code = send_it(way, signal);
        if (way == 0)
            press();
        CHECK(poll(&polled, 1, 2000) == 1 && polled.revents == POLLIN);
        CHECK(read(fd, infos, 4 * sizeof *infos) == sizeof *infos);
        CHECK(infos[0].ssi_signo == (uint32_t)signal && infos[0].ssi_code == code);
        CHECK(infos[0].ssi_pid == (uint32_t)getpid() || way == 3);
        CHECK(infos[0].ssi_uid == getuid());
        CHECK(way != 1 || infos[0].ssi_int == 4711);
    }
    /* What sigwait takes is not there to be read, and the other way round. */
    struct timespec none = {0, 0};
    CHECK(kill(getpid(), signal) == 0 && poll(&polled, 1, 0) == 1);
    CHECK(sigwaitinfo(&set, NULL) == signal && poll(&polled, 1, 0) == 0);
    CHECK(kill(getpid(), signal) == 0);
    CHECK(read(fd, infos, sizeof *infos) == sizeof *infos && infos[0].ssi_code == SI_USER);
    CHECK(sigtimedwait(&set, NULL, &none) == -1 && errno == EAGAIN && is_pending(signal) == 0);
    /* Two kinds together. */
    CHECK(kill(getpid(), signal) == 0 && kill(getpid(), SIGUSR1) == 0);
    int read_bytes = read(fd, infos, 2 * sizeof *infos);
    if (read_bytes == sizeof *infos)
        CHECK(read(fd, &infos[1], sizeof *infos) == sizeof *infos);
    CHECK(infos[0].ssi_signo + infos[1].ssi_signo == (uint32_t)(signal + SIGUSR1));
    CHECK(close(fd) == 0);

    fd = signalfd(-1, &set, 0);
    pthread_t thread;
    CHECK(fd >= 0 && pthread_create(&thread, NULL, read_here, &fd) == 0);
    for (int round = 0; round < 10; round++) {
        if (round % 8 == 0)
            press();
        union sigval value = {.sival_int = round};
        CHECK(sigqueue(getpid(), signal, value) == 0);
        CHECK(sigwaitinfo(&answer, NULL) == SIGUSR2);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(close(fd) == 0);
}

/* Waits in one of the calls with a mask that lets `signal` through; gives its errno. */
static int wait_in(int call, const sigset_t *mask) {
    struct pollfd polled = {0, 0, 0};
    struct epoll_event event;
    struct timespec time = {20, 0};
    int result, epoll;
    switch (call) {
    case 0:
        result = sigsuspend(mask);
        break;
    case 1:
        result = ppoll(&polled, 0, &time, mask);
        break;
    case 2:
        result = pselect(0, NULL, NULL, NULL, &time, mask);
        break;
    default:
        epoll = epoll_create1(0);
        CHECK(epoll >= 0);
        result = epoll_pwait(epoll, &event, 1, 20000, mask);
        int error = errno;
        close(epoll);
        errno = error;
    }
    CHECK(result == -1);
    return errno;
}

static void *send_later(void *argument) {
    usleep(20000);
    CHECK(kill(getpid(), *(int *)argument) == 0);
    return NULL;
}

static void handles(int signal) {
    sigset_t all, only = set_with(signal, 0), before;
    sigfillset(&all);
    for (int call = 0; call < 4; call++) {
        /* Pending before the call, and coming during it. */
        for (int late = 0; late < 2; late++) {
            sigset_t mask = all;
            sigdelset(&mask, signal);
            sigdelset(&mask, SIGALRM);
            pthread_t thread;
            handled = 0;
            CHECK(late || kill(getpid(), signal) == 0);
            CHECK(!late || pthread_create(&thread, NULL, send_later, &signal) == 0);
            if (call == 0 && !late)
                press();
            CHECK(late || handled == 0);
            CHECK(wait_in(call, &mask) == EINTR);
            CHECK(handled == signal && handled_code == SI_USER && handled_by == gettid());
            CHECK(!late || pthread_join(thread, NULL) == 0);
            CHECK(is_pending(signal) == 0);
        }
        /* A mask that blocks it too: the call goes on, and it stays pending. */
        struct timespec time = {0, 50000000};
        pthread_t thread;
        handled = 0;
        CHECK(pthread_create(&thread, NULL, send_later, &signal) == 0);
        CHECK(ppoll(NULL, 0, &time, &all) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(handled == 0 && is_pending(signal) == 1);
        CHECK(sigprocmask(SIG_UNBLOCK, &only, &before) == 0);
        CHECK(handled == signal && handled_code == SI_USER);
        /* Blocked by the call alone. */
        handled = 0;
        CHECK(pthread_create(&thread, NULL, send_later, &signal) == 0);
        time.tv_nsec = 50000000;
        CHECK(ppoll(NULL, 0, &time, &all) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(handled == signal);
        CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    }
}

/* One thread sends to another, which shares a processor with a busy one. */
struct rounds {
    int signal, cpu;
    volatile int round, is_over;
};

static void run_on(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static void *send_and_go_on(void *argument) {
    struct rounds *rounds = argument;
    for (int round = 1; round <= LATE_ROUNDS; round++) {
        while (rounds->round != round)
            usleep(500);
        CHECK(kill(getpid(), rounds->signal) == 0);
        /* Back from these calls this thread may meet it first, though it blocks it. */
        for (int call = 0; call < 30; call++)
            getppid();
    }
    return NULL;
}

static void *be_busy(void *argument) {
    struct rounds *rounds = argument;
    run_on(rounds->cpu);
    while (!rounds->is_over)
        ;
    return NULL;
}

static void *wait_late(void *argument) {
    struct rounds *rounds = argument;
    sigset_t mask;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && sigdelset(&mask, rounds->signal) == 0);
    run_on(rounds->cpu);
    /* This thread's alone. */
    CHECK(setpriority(PRIO_PROCESS, 0, 19) == 0);
    for (int round = 1; round <= LATE_ROUNDS; round++) {
        handled = 0;
        rounds->round = round;
        CHECK(wait_in(3, &mask) == EINTR);
        CHECK(handled == rounds->signal && handled_code == SI_USER && handled_by == gettid());
    }
    return NULL;
}

/* The thread that waits is woken, and does not get to run for a while. */
static void handles_late(int signal) {
    struct rounds rounds = {.signal = signal, .cpu = sched_getcpu()};
    pthread_t waiter, sender, busy;
    CHECK(pthread_create(&busy, NULL, be_busy, &rounds) == 0);
    CHECK(pthread_create(&sender, NULL, send_and_go_on, &rounds) == 0);
    CHECK(pthread_create(&waiter, NULL, wait_late, &rounds) == 0);
    CHECK(pthread_join(waiter, NULL) == 0);
    rounds.is_over = 1;
    CHECK(pthread_join(sender, NULL) == 0 && pthread_join(busy, NULL) == 0);
}

static void *unblock_here(void *argument) {
    sigset_t set = set_with(*(int *)argument, 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    while (!handled)
        usleep(1000);
    return NULL;
}

/* What is sent to the process is handled by the one thread that does not block it. */
static void another_handles(int signal) {
    sigset_t answer = set_with(SIGUSR2, 0);
    union sigval value = {.sival_int = 99};
    pthread_t thread;
    for (int is_late = 0; is_late < 2; is_late++) {
        handled = 0;
        if (!is_late)
            CHECK(sigqueue(getpid(), signal, value) == 0);
        CHECK(pthread_create(&thread, NULL, unblock_here, &signal) == 0);
        CHECK(sigwaitinfo(&answer, NULL) == SIGUSR2);
        press();
        if (is_late)
            CHECK(sigqueue(getpid(), signal, value) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(handled == signal && handled_code == SI_QUEUE && handled_value == 99);
        CHECK(handled_by != gettid());
    }
}

/* Relatives call each other's pagers with such a signal: the program sees none. */
static void sees_no_other(void) {
    sigset_t all;
    sigfillset(&all);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int round = 0; round < 4; round++)
            press();
        _exit(0);
    }
    siginfo_t info;
    CHECK(sigwaitinfo(&all, &info) == SIGCHLD && info.si_pid == child);
    CHECK_CHILD(child);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    ballast_make(28);
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    siginfo_t *info = pages_map(1);
    struct signalfd_siginfo *infos = pages_map(1);
    sees_no_other();
    for (size_t i = 0; i < COUNT(ours); i++) {
        waits_for_what_is_there(ours[i], info);
        waits_for_what_comes(ours[i]);
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
        CHECK(sigaction(ours[i], &action, NULL) == 0);
        waits_for_what_comes(ours[i]);
        handles(ours[i]);
        handles_late(ours[i]);
        another_handles(ours[i]);
    }
    for (size_t i = 0; i < COUNT(ours); i++)
        reads(ours[i], infos);
    for (size_t i = 0; i < COUNT(ours); i++)
        handles(ours[i]);
    return victim_end();
}
