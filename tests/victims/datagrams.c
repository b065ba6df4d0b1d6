/*
 * sendmmsg and recvmmsg with more buffers than fit the budget: whole and in part, with what was
 * asked for, with less, with a time, with a signal in between.
 */
#include "victim.h"
#include <sys/socket.h>

#define MESSAGES 220u
#define MESSAGE_PAGES 16ul
#define MESSAGE_BYTES (MESSAGE_PAGES * PAGE_BYTES)
#define SMALL_BYTES 100ul
#define SMALL 10u

static int fds[2];
static char *out, *in;
static uint64_t seed;

struct batch {
    struct mmsghdr *messages;
    struct iovec *vectors;
};

/* Headers for messages with two vectors each, in memory that leaves RAM. */
static struct batch batch_make(char *buffers, size_t bytes, unsigned count) {
    struct batch batch = {pages_map(32), pages_map(32)};
    CHECK(count <= 1024);
    for (unsigned i = 0; i < count; i++) {
        struct iovec *vector = &batch.vectors[2 * i];
        size_t first = 1 + mix(seed + i) % (bytes - 1);
        vector[0] = (struct iovec){buffers + i * MESSAGE_BYTES, first};
        vector[1] = (struct iovec){buffers + i * MESSAGE_BYTES + first, bytes - first};
        batch.messages[i].msg_hdr = (struct msghdr){.msg_iov = vector, .msg_iovlen = 2};
    }
    return batch;
}

static void batch_drop(struct batch batch) {
    CHECK(munmap(batch.messages, 32 * PAGE_BYTES) == 0);
    CHECK(munmap(batch.vectors, 32 * PAGE_BYTES) == 0);
}

static void *send_all(void *argument) {
    (void)argument;
    struct batch batch = batch_make(out, MESSAGE_BYTES, MESSAGES);
    unsigned sent = 0;
    /* Whatever is left when it was interrupted; it is not. */
    CHECK((sent = sendmmsg(fds[0], batch.messages, MESSAGES, 0)) == MESSAGES);
    for (unsigned i = 0; i < sent; i++)
        CHECK(batch.messages[i].msg_len == MESSAGE_BYTES);
    batch_drop(batch);
    return NULL;
}

static void all_at_once(void) {
    pthread_t sender;
    struct batch batch = batch_make(in, MESSAGE_BYTES, MESSAGES);
    CHECK(pthread_create(&sender, NULL, send_all, NULL) == 0);
    CHECK(recvmmsg(fds[1], batch.messages, MESSAGES, 0, NULL) == (int)MESSAGES);
    CHECK(pthread_join(sender, NULL) == 0);
    for (unsigned i = 0; i < MESSAGES; i++)
        CHECK(batch.messages[i].msg_len == MESSAGE_BYTES);
    pages_check(in, MESSAGES * MESSAGE_PAGES, seed);
    batch_drop(batch);
}

static void send_small(unsigned count) {
    struct batch batch = batch_make(out, SMALL_BYTES, count);
    CHECK(sendmmsg(fds[0], batch.messages, count, 0) == (int)count);
    batch_drop(batch);
}

static void check_small(struct batch batch, unsigned from, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        CHECK(batch.messages[i].msg_len == SMALL_BYTES);
        char *got = in + i * MESSAGE_BYTES;
        CHECK(memcmp(got, out + (from + i) * MESSAGE_BYTES, SMALL_BYTES) == 0);
    }
    note(count);
}

/* There are fewer than asked for, in more than one part. */
static void fewer(void) {
    struct batch batch = batch_make(in, MESSAGE_BYTES, MESSAGES);
    struct mmsghdr *messages = batch.messages;
    struct timespec *time = pages_map(1);
    CHECK(recvmmsg(fds[1], messages, MESSAGES, MSG_DONTWAIT, NULL) == -1 && errno == EAGAIN);
    send_small(SMALL);
    press();
    CHECK(recvmmsg(fds[1], messages, MESSAGES, MSG_DONTWAIT, NULL) == SMALL);
    check_small(batch, 0, SMALL);
    send_small(SMALL);
    CHECK(recvmmsg(fds[1], messages, MESSAGES, MSG_WAITFORONE, NULL) == SMALL);
    check_small(batch, 0, SMALL);
    /* No time: one. The time that is left is told. */
    send_small(SMALL);
    CHECK(recvmmsg(fds[1], messages, MESSAGES, 0, time) == 1);
    check_small(batch, 0, 1);
    time->tv_sec = 100;
    CHECK(recvmmsg(fds[1], messages, SMALL - 1, 0, time) == SMALL - 1);
    check_small(batch, 1, SMALL - 1);
    CHECK(time->tv_sec == 99 || time->tv_sec == 98);
    CHECK(munmap(time, PAGE_BYTES) == 0);
    batch_drop(batch);
}

/* A message that cannot be sent ends the call, in whichever part it is. */
static void in_part(void) {
    for (unsigned bad = 1; bad < 24; bad += 3) {
        struct batch batch = batch_make(out, MESSAGE_BYTES, MESSAGES);
        for (unsigned i = 0; i < MESSAGES; i++)
            batch.vectors[2 * i + 1].iov_len = 0;
        batch.vectors[2 * bad] = (struct iovec){address(PAGE_BYTES), 100};
        CHECK(sendmmsg(fds[0], batch.messages, MESSAGES, MSG_DONTWAIT) == (int)bad);
        batch_drop(batch);
        batch = batch_make(in, MESSAGE_BYTES, MESSAGES);
        CHECK(recvmmsg(fds[1], batch.messages, MESSAGES, MSG_DONTWAIT, NULL) == (int)bad);
        for (unsigned i = 0; i < bad; i++) {
            size_t bytes = batch.messages[i].msg_len;
            CHECK(bytes == 1 + mix(seed + i) % (MESSAGE_BYTES - 1));
            CHECK(memcmp(in + i * MESSAGE_BYTES, out + i * MESSAGE_BYTES, bytes) == 0);
        }
        batch_drop(batch);
    }
    struct batch batch = batch_make(out, MESSAGE_BYTES, MESSAGES);
    batch.vectors[0] = (struct iovec){address(PAGE_BYTES), 100};
    CHECK(sendmmsg(fds[0], batch.messages, MESSAGES, 0) == -1 && errno == EFAULT);
    CHECK(sendmmsg(-1, batch.messages, MESSAGES, 0) == -1 && errno == EBADF);
    CHECK(recvmmsg(0, batch.messages, MESSAGES, 0, NULL) == -1 && errno == ENOTSOCK);
    batch_drop(batch);
}

static volatile sig_atomic_t handled;

static void on_signal(int signal) {
    handled = signal;
}

static void *interrupt(void *thread) {
    usleep(200000);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

/* A signal ends the wait for more: what there is counts. Without any it is told, or it goes on. */
static void interrupted(int with, int flags) {
    struct batch batch = batch_make(in, MESSAGE_BYTES, MESSAGES);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t self = pthread_self(), other;
    if (with)
        send_small(SMALL);
    handled = 0;
    CHECK(pthread_create(&other, NULL, interrupt, &self) == 0);
    int got = recvmmsg(fds[1], batch.messages, MESSAGES, 0, NULL);
    CHECK(pthread_join(other, NULL) == 0 && handled == SIGUSR1);
    if (with)
        check_small(batch, 0, got);
    else
        CHECK(got == -1 && errno == EINTR);
    /* The kernel keeps what ended the call for the next one, even the signal. */
    int error;
    socklen_t error_bytes = sizeof error;
    CHECK(getsockopt(fds[1], SOL_SOCKET, SO_ERROR, &error, &error_bytes) == 0);
    batch_drop(batch);
}

/* More messages than the kernel sends with one call, but receives, and more pages than a call can name. */
#define MANY 1030

static void *send_many(void *argument) {
    struct batch *batch = argument;
    CHECK(sendmmsg(fds[0], batch->messages, MANY, 0) == 1024);
    CHECK(sendmmsg(fds[0], batch->messages + 1024, MANY - 1024, 0) == MANY - 1024);
    return NULL;
}

static void many(void) {
    char *pages = pages_map(2 * MANY);
    struct batch to = {pages_map(32), pages_map(32)}, from = {pages_map(32), pages_map(32)};
    for (unsigned i = 0; i < MANY; i++) {
        char *page = pages + i * PAGE_BYTES;
        page_fill(page, i);
        to.vectors[i] = (struct iovec){page, 64};
        from.vectors[i] = (struct iovec){page + MANY * PAGE_BYTES, 64};
        to.messages[i].msg_hdr = (struct msghdr){.msg_iov = &to.vectors[i], .msg_iovlen = 1};
        from.messages[i].msg_hdr = (struct msghdr){.msg_iov = &from.vectors[i], .msg_iovlen = 1};
    }
    press();
    pthread_t sender;
    CHECK(pthread_create(&sender, NULL, send_many, &to) == 0);
    CHECK(recvmmsg(fds[1], from.messages, MANY, 0, NULL) == MANY);
    CHECK(pthread_join(sender, NULL) == 0);
    for (unsigned i = 0; i < MANY; i++) {
        char *page = pages + i * PAGE_BYTES;
        page_check(page, i);
        CHECK(from.messages[i].msg_len == 64);
        CHECK(memcmp(page, page + MANY * PAGE_BYTES, 64) == 0);
    }
    batch_drop(to);
    batch_drop(from);
    CHECK(munmap(pages, 2 * MANY * PAGE_BYTES) == 0);
}

int main(int argc, char **argv) {
    seed = mix(victim_start(argc, argv));
    ballast_make(24);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
    int bytes = 4 << 20;
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
    out = pages_map(MESSAGES * MESSAGE_PAGES);
    in = pages_map(MESSAGES * MESSAGE_PAGES);
    pages_fill(out, MESSAGES * MESSAGE_PAGES, seed);
    for (int round = 0; round < 3; round++)
        all_at_once();
    fewer();
    in_part();
    interrupted(1, 0);
    interrupted(1, SA_RESTART);
    interrupted(0, 0);
    many();
    pages_check(out, MESSAGES * MESSAGE_PAGES, seed);
    return victim_end();
}
