/*
 * A process that waits for some time in every call that does, while a child sends it what relatives send that
 * want room: each wait is as long as it was asked to be, and ends. Then for signals that come right behind such a
 * one: each ends the call that it would have ended without.
 */
#include "victim.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What relatives send with their SIGURG. */
#define GIVE_BACK 0x7a706167
#define WAIT_NS 60000000
#define PAUSES 90
/* Natively a signal is lost, too, that comes before the call does. */
#define LOST_MAX 2

enum way {
    POLL,
    EPOLL,
    NANOSLEEP,
    NANOSLEEP_IN_PLACE,
    CLOCK_SLEEP,
    FUTEX,
    SIGNAL,
    SEMAPHORE,
    PPOLL,
    SELECT,
    RECEIVE,
    READ_SOCKET,
    ACCEPT,
    WAYS
};

static int epoll, semaphores, quiet[2], turns[2], sockets[2], listener;
static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    (void)signal;
    handled++;
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    CHECK(clock_gettime(clock, &now) == 0);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static void wait_in(enum way way) {
    struct timespec time = {0, WAIT_NS};
    struct timeval value = {0, WAIT_NS / 1000};
    struct pollfd nothing = {quiet[0], POLLIN, 0};
    struct epoll_event event;
    struct sembuf take = {0, -1, 0};
    uint32_t word = 7;
    sigset_t set;
    switch (way) {
    case POLL:
        CHECK(poll(&nothing, 1, WAIT_NS / 1000000) == 0);
        break;
    case EPOLL:
        CHECK(epoll_wait(epoll, &event, 1, WAIT_NS / 1000000) == 0);
        break;
    case NANOSLEEP:
        CHECK(nanosleep(&time, NULL) == 0);
        break;
    case NANOSLEEP_IN_PLACE:
        CHECK(nanosleep(&time, &time) == 0 && time.tv_nsec == WAIT_NS);
        break;
    case CLOCK_SLEEP:
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == 0 && time.tv_nsec == WAIT_NS);
        break;
    case FUTEX:
        CHECK(raw(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 7, (long)&time, 0, 0) == -ETIMEDOUT);
        break;
    case SIGNAL:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        CHECK(sigtimedwait(&set, NULL, &time) == -1 && errno == EAGAIN);
        break;
    case SEMAPHORE:
        CHECK(semtimedop(semaphores, &take, 1, &time) == -1 && errno == EAGAIN);
        break;
    case PPOLL:
        CHECK(ppoll(&nothing, 1, &time, NULL) == 0);
        break;
    case SELECT:
        CHECK(select(0, NULL, NULL, NULL, &value) == 0);
        break;
    case RECEIVE:
        CHECK(recv(sockets[0], &word, sizeof word, 0) == -1 && errno == EAGAIN);
        break;
    case READ_SOCKET:
        CHECK(read(sockets[0], &word, sizeof word) == -1 && errno == EAGAIN);
        break;
    default:
        CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    }
}

/* Sockets whose calls wait for no longer than the rest. */
static void make_sockets(void) {
    struct timeval limit = {0, WAIT_NS / 1000};
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK((listener = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0);
    CHECK(bind(listener, (struct sockaddr *)&any, sizeof any.sun_family) == 0 && listen(listener, 1) == 0);
    CHECK(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
}

static void want_room(pid_t pid) {
    CHECK(sigqueue(pid, SIGURG, (union sigval){.sival_ptr = (void *)GIVE_BACK}) == 0);
}

static void want_room_for_ever(pid_t pid) {
    for (;; usleep(3000))
        want_room(pid);
}

static void *wait_beside(void *argument) {
    (void)argument;
    for (enum way way = 0; way < WAYS; way++) {
        uint64_t from_ns = now_ns(), from_tick_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
        wait_in(way);
        int is_over = now_ns() - from_ns >= WAIT_NS;
        /* The kernel counts a socket's time in ticks, which come late where the processor was away. */
        if (way >= RECEIVE)
            is_over |= clock_ns(CLOCK_MONOTONIC_COARSE) - from_tick_ns >= WAIT_NS;
        CHECK(is_over);
    }
    return NULL;
}

static void wait_in_all_ways(void) {
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0)
        want_room_for_ever(parent);
    wait_beside(NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_beside, NULL) == 0);
    press();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(kill(child, SIGKILL) == 0 && wait_for(child) == SIGKILL);
}

/* Sends a signal right behind another in each turn; ends with how many were of no avail. */
static void wake(pid_t pid, struct random *random) {
    struct pollfd turn = {turns[0], POLLIN, 0};
    int lost = 0;
    for (int pause = 0; pause < PAUSES; pause++) {
        char byte;
        CHECK(read(turns[0], &byte, 1) == 1);
        until_asleep(pid);
        want_room(pid);
        uint64_t until_ns = now_ns() + below(random, 60000);
        while (now_ns() < until_ns)
            ;
        CHECK(kill(pid, SIGRTMIN) == 0);
        while (poll(&turn, 1, 3000) == 0) {
            lost++;
            CHECK(kill(pid, SIGRTMIN) == 0);
        }
        CHECK(read(turns[0], &byte, 1) == 1);
    }
    _exit(lost);
}

static void pause_in(int way) {
    char byte;
    switch (way) {
    case 0:
        CHECK(pause() == -1 && errno == EINTR);
        break;
    case 1:
        CHECK(read(quiet[0], &byte, 1) == -1 && errno == EINTR);
        break;
    default:
        CHECK(nanosleep(&(struct timespec){60, 0}, NULL) == -1 && errno == EINTR);
    }
}

static void be_woken(struct random *random) {
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0 && pipe(turns) == 0);
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0)
        wake(parent, random);
    for (int pause = 0; pause < PAUSES; pause++) {
        handled = 0;
        CHECK(write(turns[1], "a", 1) == 1);
        pause_in(pause % 3);
        CHECK(handled > 0 && write(turns[1], "b", 1) == 1);
    }
    int status = wait_for(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= LOST_MAX);
}

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    ballast_make(28);
    CHECK(pipe(quiet) == 0 && (epoll = epoll_create1(0)) >= 0);
    CHECK((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0);
    make_sockets();
    wait_in_all_ways();
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
    be_woken(&random);
    press();
    return victim_end();
}
