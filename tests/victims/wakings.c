/*
 * A thread that waits in a call which the kernel never makes again by itself, and which is woken
 * for a signal that it blocks and that another thread takes: the program may see no EINTR.
 */
#include "victim.h"
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define ROUNDS 60

/* What the thread waits in, and how its wait ends. */
enum way { EPOLL_WAIT, EPOLL_PWAIT, SEMOP, SIGTIMEDWAIT, ACCEPT, RECV, RECVMSG, READ, READV, WAYS };

static int epoll, event, semaphores, listener, pair[2], cpu;
static struct sockaddr_un name;
static socklen_t name_bytes = sizeof name;
static pthread_t waiter;
static volatile int round_of_waiter, is_over;
static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    (void)signal;
    handled++;
}

static void wait_in(enum way way, void *memory) {
    struct epoll_event *events = memory;
    struct sembuf *operation = memory;
    struct sockaddr_un *peer = memory;
    struct msghdr *message = memory;
    struct iovec *vectors = memory;
    struct timespec time = {60, 0};
    uint64_t word;
    sigset_t set;
    socklen_t bytes = sizeof *peer;
    int fd;
    switch (way) {
    case EPOLL_WAIT:
    case EPOLL_PWAIT:
        CHECK((way == EPOLL_WAIT ? epoll_wait(epoll, events, 4, 60000)
                                 : epoll_pwait(epoll, events, 4, 60000, NULL)) == 1);
        CHECK(events[0].data.u64 == 4711 && read(event, &word, sizeof word) == sizeof word);
        break;
    case SEMOP:
        *operation = (struct sembuf){0, -1, 0};
        CHECK(semop(semaphores, operation, 1) == 0);
        break;
    case SIGTIMEDWAIT:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK(sigtimedwait(&set, memory, &time) == SIGUSR1);
        break;
    case ACCEPT:
        fd = accept(listener, (struct sockaddr *)peer, &bytes);
        CHECK(fd >= 0 && close(fd) == 0);
        break;
    case RECV:
        CHECK(recv(pair[0], memory, 1, 0) == 1);
        break;
    case READ:
        CHECK(read(pair[0], memory, 1) == 1);
        break;
    case READV:
        *vectors = (struct iovec){memory + sizeof *vectors, 1};
        CHECK(readv(pair[0], vectors, 1) == 1);
        break;
    default:
        memset(message, 0, sizeof *message);
        struct iovec vector = {memory + sizeof *message, 1};
        message->msg_iov = &vector;
        message->msg_iovlen = 1;
        CHECK(recvmsg(pair[0], message, 0) == 1);
    }
}

static void end_wait(enum way way) {
    uint64_t one = 1;
    struct sembuf operation = {0, 1, 0};
    int fd;
    switch (way) {
    case EPOLL_WAIT:
    case EPOLL_PWAIT:
        CHECK(write(event, &one, sizeof one) == sizeof one);
        break;
    case SEMOP:
        CHECK(semop(semaphores, &operation, 1) == 0);
        break;
    case SIGTIMEDWAIT:
        CHECK(pthread_kill(waiter, SIGUSR1) == 0);
        break;
    case ACCEPT:
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&name, name_bytes) == 0 && close(fd) == 0);
        break;
    default:
        CHECK(send(pair[1], "x", 1, 0) == 1);
    }
}

static void *send_and_take(void *argument) {
    enum way way = *(enum way *)argument;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    for (int round = 1; round <= ROUNDS; round++) {
        while (round_of_waiter != round)
            usleep(300);
        usleep(300);
        handled = 0;
        CHECK(kill(getpid(), SIGURG) == 0);
        /* Back from these calls this thread meets it first. */
        for (int call = 0; call < 30; call++)
            getppid();
        while (!handled)
            usleep(300);
        usleep(300);
        end_wait(way);
    }
    return NULL;
}

static void run_on_cpu(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

/* Has the one who waits be woken, and not get to run for a while. */
static void *be_busy(void *argument) {
    (void)argument;
    run_on_cpu();
    while (!is_over)
        ;
    return NULL;
}

static pthread_barrier_t presses;

/* Presses when it is its turn: the one who waits would take minutes, as little as it gets to run. */
static void *press_in_turn(void *argument) {
    (void)argument;
    for (enum way way = 0; way < WAYS; way++) {
        pthread_barrier_wait(&presses);
        press();
        pthread_barrier_wait(&presses);
    }
    return NULL;
}

static void make_descriptors(void) {
    struct timeval time = {60, 0};
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 4711};
    epoll = epoll_create1(0);
    event = eventfd(0, 0);
    CHECK(epoll >= 0 && event >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted) == 0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    CHECK(semaphores >= 0);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    name.sun_family = AF_UNIX;
    /* A name that the kernel chooses. */
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&name, &name_bytes) == 0);
    CHECK(listen(listener, 4) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    ballast_make(28);
    make_descriptors();
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGURG, &action, NULL) == 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    waiter = pthread_self();
    cpu = sched_getcpu();
    pthread_t busy, sender, presser;
    CHECK(pthread_create(&busy, NULL, be_busy, NULL) == 0);
    CHECK(pthread_barrier_init(&presses, NULL, 2) == 0);
    CHECK(pthread_create(&presser, NULL, press_in_turn, NULL) == 0);
    void *memory = pages_map(1);
    for (enum way way = 0; way < WAYS; way++) {
        round_of_waiter = 0;
        CHECK(pthread_create(&sender, NULL, send_and_take, &way) == 0);
        run_on_cpu();
        /* This thread's alone. */
        CHECK(setpriority(PRIO_PROCESS, gettid(), 19) == 0);
        pthread_barrier_wait(&presses);
        pthread_barrier_wait(&presses);
        for (int round = 1; round <= ROUNDS; round++) {
            round_of_waiter = round;
            wait_in(way, memory);
        }
        CHECK(pthread_join(sender, NULL) == 0);
        note(way);
    }
    is_over = 1;
    CHECK(pthread_join(busy, NULL) == 0);
    CHECK(pthread_join(presser, NULL) == 0);
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
    return victim_end();
}
