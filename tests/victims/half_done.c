/*
 * Transfers that threads are in the middle of when management begins: each goes on with the rest, as no signal has
 * come to the program, and every byte comes once and in its order. Writes to a pipe and to sockets, of one buffer and
 * of several, and a read that waits for all; and a write that a signal with a handler ends, which has written what it
 * says.
 */
#include "victim.h"
#include <sys/socket.h>
#include <sys/uio.h>

#define BYTES 1000000
#define READ_FIRST 1000
#define VECTORS 7

enum way { PIPE, STREAM, SENT, PIPE_VECTORS, MESSAGE, WAITING, HANDLED, WAYS };

static int ends[WAYS][2];
static char *sent;
static ssize_t results[WAYS];
static pthread_t threads[WAYS];
static volatile sig_atomic_t handled;

static char byte_at(size_t at) {
    return (char)(mix(at / 8) >> at % 8 * 8);
}

static void on_signal(int signal) {
    handled += signal == SIGUSR1;
}

static void lay_out(struct iovec *vectors) {
    size_t from = 0;
    for (size_t i = 0; i < VECTORS; i++) {
        size_t to = i == VECTORS - 1 ? BYTES : (i + 1) * (BYTES / VECTORS) + i * 777;
        vectors[i] = (struct iovec){sent + from, to - from};
        from = to;
    }
}

static void *transfer(void *argument) {
    enum way way = (enum way)(uintptr_t)argument;
    struct iovec vectors[VECTORS];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = VECTORS};
    int fd = ends[way][1];
    lay_out(vectors);
    switch (way) {
    case PIPE:
    case STREAM:
    case HANDLED:
        results[way] = write(fd, sent, BYTES);
        break;
    case SENT:
        results[way] = send(fd, sent, BYTES, 0);
        break;
    case PIPE_VECTORS:
        results[way] = writev(fd, vectors, VECTORS);
        break;
    case MESSAGE:
        results[way] = sendmsg(fd, &message, 0);
        break;
    default: {
        char *got = pages_map(BYTES / PAGE_BYTES + 1);
        results[way] = recv(fd, got, BYTES, MSG_WAITALL);
        for (size_t at = 0; at < BYTES; at++)
            CHECK(got[at] == byte_at(at));
    }
    }
    return NULL;
}

/* Reads what comes, until that is all that was written. */
static void take(enum way way) {
    static char got[BYTES];
    size_t bytes = 0;
    while (bytes < (way == HANDLED ? (size_t)results[way] : BYTES)) {
        ssize_t more = read(ends[way][0], got, sizeof got);
        CHECK(more > 0);
        for (ssize_t i = 0; i < more; i++)
            CHECK(got[i] == byte_at(bytes + (size_t)i));
        bytes += (size_t)more;
    }
    CHECK(bytes == (size_t)results[way] || way != HANDLED);
}

static void finish(enum way way) {
    if (way == HANDLED) {
        CHECK(pthread_kill(threads[way], SIGUSR1) == 0 && pthread_join(threads[way], NULL) == 0);
        CHECK(handled == 1 && results[way] > 0 && results[way] < BYTES);
        return take(way);
    }
    if (way == WAITING)
        CHECK(write(ends[way][0], sent + READ_FIRST, BYTES - READ_FIRST) == BYTES - READ_FIRST);
    else
        take(way);
    CHECK(pthread_join(threads[way], NULL) == 0 && results[way] == BYTES);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sent = pages_map(BYTES / PAGE_BYTES + 1);
    for (size_t at = 0; at < BYTES; at++)
        sent[at] = byte_at(at);
    for (enum way way = 0; way < WAYS; way++) {
        if (way == PIPE || way == PIPE_VECTORS || way == HANDLED)
            CHECK(pipe(ends[way]) == 0);
        else
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[way]) == 0);
        if (way == WAITING)
            CHECK(write(ends[way][0], sent, READ_FIRST) == READ_FIRST);
        CHECK(pthread_create(&threads[way], NULL, transfer, (void *)(uintptr_t)way) == 0);
    }
    usleep(100000); /* so that each has filled what it writes to */
    ballast_make(40);
    press();
    for (enum way way = 0; way < WAYS; way++)
        finish(way);
    press();
    return victim_end();
}
