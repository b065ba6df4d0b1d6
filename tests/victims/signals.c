/*
 * Handlers, masks and waits as the program set them, while pages come and go:
 * information, restart, nesting, one-shot handlers, masks that block
 * everything, jumps out of handlers, signals to threads and from processes.
 */
#include "victim.h"
#include <setjmp.h>
#include <sys/time.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;
static struct random handler_random = {12345};
static volatile int caught, depth, deepest;
static volatile siginfo_t last;

static void wander(struct random *random, int steps) {
    for (int i = 0; i < steps; i++) {
        size_t page = below(random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
        page_fill(big + page * PAGE_BYTES, page);
    }
}

static void counting(int signal) {
    (void)signal;
    caught++;
    wander(&handler_random, 20);
}

static void informed(int signal, siginfo_t *information, void *context) {
    (void)signal;
    (void)context;
    last = *information;
    caught++;
    wander(&handler_random, 20);
}

static void handle(int signal, void *handler, int flags, const sigset_t *mask) {
    struct sigaction action = {.sa_flags = flags}, found;
    if (flags & SA_SIGINFO)
        action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
    else
        action.sa_handler = (void (*)(int))handler;
    if (mask)
        action.sa_mask = *mask;
    CHECK(sigaction(signal, &action, NULL) == 0);
    CHECK(sigaction(signal, NULL, &found) == 0);
    CHECK((found.sa_flags & ~0x04000000) == flags && found.sa_handler == action.sa_handler);
    for (int i = 1; i < 65; i++)
        CHECK(sigismember(&found.sa_mask, i) == sigismember(&action.sa_mask, i));
}

static void information(void) {
    handle(SIGUSR1, (void *)informed, SA_SIGINFO, NULL);
    caught = 0;
    CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 4711}) == 0);
    CHECK(caught == 1 && last.si_code == SI_QUEUE && last.si_value.sival_int == 4711
          && last.si_pid == getpid());
    CHECK(kill(getpid(), SIGUSR1) == 0 && last.si_code == SI_USER && last.si_uid == getuid());
    CHECK(raise(SIGUSR1) == 0 && last.si_code == SI_TKILL && caught == 3);
}

/* A read that waits is gone on with, or ends with EINTR, as the handler's flags say. */
static int wake_fd;

static void wakes(int signal) {
    (void)signal;
    wander(&handler_random, 20);
    if (++caught == 3)
        CHECK(write(wake_fd, "!", 1) == 1);
}

static void restart(void) {
    int fds[2];
    char *byte = pages_map(16);
    CHECK(pipe(fds) == 0);
    wake_fd = fds[1];
    struct itimerval timer = {{0, 5000}, {0, 5000}}, off = {{0, 0}, {0, 0}};
    handle(SIGALRM, (void *)wakes, SA_RESTART, NULL);
    caught = 0;
    wander(&handler_random, BIG_PAGES);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK(read(fds[0], byte, 1) == 1 && *byte == '!' && caught >= 3);
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    handle(SIGALRM, (void *)counting, 0, NULL);
    timer.it_interval.tv_usec = 0;
    timer.it_value.tv_usec = 20000;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    CHECK(read(fds[0], byte, 1) == -1 && errno == EINTR);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    struct timespec long_sleep = {100, 0}, left = {0, 0};
    CHECK(nanosleep(&long_sleep, &left) == -1 && errno == EINTR && left.tv_sec >= 95);
    close(fds[0]);
    close(fds[1]);
}

static void nests(int signal) {
    if (++depth > deepest)
        deepest = depth;
    wander(&handler_random, 5);
    if (caught++ < 4)
        raise(signal);
    depth--;
}

static void nesting(void) {
    caught = deepest = 0;
    handle(SIGUSR1, (void *)nests, SA_NODEFER, NULL);
    CHECK(raise(SIGUSR1) == 0 && caught == 5 && deepest == 5);
    /* Without SA_NODEFER the second waits for the first's end. */
    caught = deepest = 0;
    handle(SIGUSR1, (void *)nests, 0, NULL);
    CHECK(raise(SIGUSR1) == 0 && caught == 5 && deepest == 1);
}

static void once(void) {
    struct sigaction found;
    caught = 0;
    handle(SIGUSR2, (void *)counting, SA_RESETHAND, NULL);
    CHECK(raise(SIGUSR2) == 0 && caught == 1);
    CHECK(sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
    CHECK(found.sa_flags & SA_RESETHAND);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGHUP);
    handle(SIGURG, (void *)counting, SA_RESETHAND | SA_NODEFER, &mask);
    CHECK(raise(SIGURG) == 0 && raise(SIGURG) == 0 && caught == 2);
    CHECK(sigaction(SIGURG, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
    CHECK(found.sa_flags & SA_NODEFER && sigismember(&found.sa_mask, SIGHUP));
}

/* What the kernel does not take of an action it does not tell. */
static void not_taken(void) {
    struct {
        void (*handler)(int);
        uint64_t flags;
        void (*restorer)(void);
        uint64_t mask;
    } action = {counting, SA_RESTART | 0x400, NULL, ~0ull}, found;
    for (int i = 0; i < 2; i++) {
        int signal = i ? SIGBUS : SIGUSR2;
        CHECK(raw(SYS_rt_sigaction, signal, (long)&action, 0, 8, 0, 0) == 0);
        CHECK(raw(SYS_rt_sigaction, signal, 0, (long)&found, 8, 0, 0) == 0);
        CHECK(found.handler == counting && found.flags == SA_RESTART);
        CHECK(found.mask == ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1)));
        CHECK(signal == SIGBUS ? sigaction(SIGBUS, &(struct sigaction){0}, NULL) == 0 : 1);
    }
}

static void sees_its_mask(int signal) {
    sigset_t now;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, signal) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGTERM));
    caught = 0;
    CHECK(raise(SIGUSR2) == 0);
    wander(&handler_random, 50);
    CHECK(caught == 0);
}

static void handler_mask(void) {
    sigset_t mask, now;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    handle(SIGUSR2, (void *)counting, 0, NULL);
    handle(SIGUSR1, (void *)sees_its_mask, 0, &mask);
    CHECK(raise(SIGUSR1) == 0 && caught == 1);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGUSR2)
          && !sigismember(&now, SIGUSR1));
}

/* Everything blocked, SIGSYS and SIGBUS with it, by the bare call; pages are served all the same.
 */
static void all_blocked(void) {
    sigset_t all, old, now;
    sigfillset(&all);
    uint64_t bits = ~0ull, old_bits;
    handle(SIGUSR1, (void *)counting, 0, NULL);
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&bits, (long)&old_bits, 8, 0, 0) == 0);
    caught = 0;
    wander(&handler_random, BIG_PAGES / 2);
    CHECK(raise(SIGUSR1) == 0 && caught == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGSYS) && sigismember(&now, SIGBUS) && sigismember(&now, SIGSEGV));
    CHECK(!sigismember(&now, SIGKILL) && !sigismember(&now, SIGSTOP));
    CHECK(sigpending(&now) == 0 && sigismember(&now, SIGUSR1));
    CHECK(sigprocmask(SIG_SETMASK, &all, &old) == 0 && sigismember(&old, SIGSYS));
    wander(&handler_random, BIG_PAGES / 4);
    CHECK(raw(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old_bits, 0, 8, 0, 0) == 0);
    CHECK(caught == 1);
}

static void waits(void) {
    sigset_t set, old, none;
    int signal;
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    handle(SIGUSR1, (void *)counting, 0, NULL);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    caught = 0;
    raise(SIGUSR1);
    wander(&handler_random, 500);
    CHECK(caught == 0 && sigsuspend(&none) == -1 && errno == EINTR && caught == 1);
    raise(SIGUSR1);
    CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR1 && caught == 1);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && caught == 1);
}

static sigjmp_buf escape;

static void jumps(int signal) {
    char frame[2 * PAGE_BYTES];
    wander(&handler_random, 5);
    page_fill((char *)(((uintptr_t)frame + PAGE_BYTES - 1) & -PAGE_BYTES), 1);
    siglongjmp(escape, signal);
}

static void jumping(void) {
    handle(SIGUSR1, (void *)jumps, 0, NULL);
    handle(SIGUSR2, (void *)jumps, SA_NODEFER, NULL);
    volatile int jumped = 0;
    for (volatile int i = 0; i < 300; i++) {
        if (sigsetjmp(escape, 1) == 0) {
            raise(i % 2 ? SIGUSR1 : SIGUSR2);
            CHECK(!"came back");
        }
        jumped++;
    }
    CHECK(jumped == 300);
    sigset_t now;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && !sigismember(&now, SIGUSR1));
}

static volatile int queued;

static void counts_queued(int signal) {
    (void)signal;
    queued++;
    wander(&handler_random, 3);
}

static void from_a_process(void) {
    handle(SIGRTMIN, (void *)counts_queued, SA_RESTART, NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 200; i++)
            CHECK(sigqueue(getppid(), SIGRTMIN, (union sigval){.sival_int = i}) == 0);
        _exit(0);
    }
    struct random random = {99};
    while (queued < 200)
        wander(&random, 10);
    CHECK_CHILD(child);
    CHECK(queued == 200);
}

static __thread volatile int mine;

static void counts_mine(int signal) {
    (void)signal;
    mine++;
}

static void *takes_signals(void *argument) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    struct random random = {(uint64_t)argument};
    while (mine < 50)
        wander(&random, 5);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0 && sigismember(&set, SIGRTMIN + 2));
    return NULL;
}

static void to_threads(void) {
    handle(SIGRTMIN + 1, (void *)counts_mine, SA_RESTART, NULL);
    pthread_t threads[3];
    for (uint64_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, takes_signals, (void *)i) == 0);
    for (int i = 0; i < 50; i++)
        for (int k = 0; k < 3; k++)
            CHECK(pthread_kill(threads[k], SIGRTMIN + 1) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(mine == 0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    CHECK(signal(SIGTRAP, SIG_IGN) != SIG_ERR);
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    information();
    restart();
    nesting();
    once();
    not_taken();
    handler_mask();
    all_blocked();
    waits();
    jumping();
    from_a_process();
    to_threads();
    CHECK(raise(SIGTRAP) == 0);
    pages_check(big, BIG_PAGES, 0);
    return victim_end();
}
