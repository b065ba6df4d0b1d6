/*
 * Pages that the kernel has beyond the call: spliced into a pipe with and without a gift, and on
 * their way to a peer with MSG_ZEROCOPY. The memory leaves RAM and other pages come in before what
 * was handed over is read: it is what it was. Where the sandbox has no such thing, only the memory
 * is checked.
 */
#include "victim.h"
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PIPE_PAGES 16
#define ROUNDS 12
#define SENT_PAGES 64

/* Brings pages in by reading, in order, so that what left RAM is used again where it may be. */
static void churn(char *memory, size_t pages, uint64_t tag) {
    press();
    pages_check(memory, pages, tag);
    press();
}

static void read_all(int fd, char *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t more = read(fd, to + done, bytes - done);
        CHECK(more > 0);
        done += more;
    }
}

/* Into a pipe that takes less than is offered: what it took is what was there. */
static void splice_in(uint64_t tag, unsigned flags, char *other, uint64_t other_tag) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    char *from = pages_map(4 * PIPE_PAGES), *to = pages_map(PIPE_PAGES);
    pages_fill(from, 4 * PIPE_PAGES, tag);
    struct iovec *vectors = pages_map(1);
    vectors[0] = (struct iovec){from, 3 * PAGE_BYTES};
    vectors[1] = (struct iovec){from + 3 * PAGE_BYTES, (4 * PIPE_PAGES - 3) * PAGE_BYTES};
    press();
    ssize_t taken = vmsplice(fds[1], vectors, 2, flags);
    CHECK(taken == PIPE_PAGES * (ssize_t)PAGE_BYTES);
    CHECK(vmsplice(fds[1], vectors, 1, flags | SPLICE_F_NONBLOCK) == -1 && errno == EAGAIN);
    churn(other, 2 * MIB_PAGES, other_tag);
    if (flags & SPLICE_F_GIFT)
        CHECK(munmap(from, 4 * PIPE_PAGES * PAGE_BYTES) == 0);
    churn(other, 2 * MIB_PAGES, other_tag);
    read_all(fds[0], to, PIPE_PAGES * PAGE_BYTES);
    pages_check(to, PIPE_PAGES, tag);
    if (!(flags & SPLICE_F_GIFT)) {
        pages_check(from, 4 * PIPE_PAGES, tag);
        CHECK(munmap(from, 4 * PIPE_PAGES * PAGE_BYTES) == 0);
    }
    CHECK(munmap(to, PIPE_PAGES * PAGE_BYTES) == 0 && munmap(vectors, PAGE_BYTES) == 0);
    close(fds[0]), close(fds[1]);
}

/* Out of a pipe, into memory that is not there. */
static void splice_out(uint64_t tag) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    char *from = pages_map(4), *to = pages_map(8);
    pages_fill(from, 4, tag);
    pages_fill(to, 8, tag + 100);
    CHECK(write(fds[1], from, 4 * PAGE_BYTES) == 4 * (ssize_t)PAGE_BYTES);
    struct iovec *vectors = pages_map(1);
    vectors[0] = (struct iovec){to + PAGE_BYTES, PAGE_BYTES};
    vectors[1] = (struct iovec){to + 3 * PAGE_BYTES, 3 * PAGE_BYTES};
    press();
    CHECK(vmsplice(fds[0], vectors, 2, 0) == 4 * (ssize_t)PAGE_BYTES);
    press();
    page_check(to + PAGE_BYTES, tag);
    pages_check(to + 3 * PAGE_BYTES, 3, tag + 1);
    page_check(to, tag + 100), page_check(to + 2 * PAGE_BYTES, tag + 102);
    munmap(from, 4 * PAGE_BYTES), munmap(to, 8 * PAGE_BYTES), munmap(vectors, PAGE_BYTES);
    close(fds[0]), close(fds[1]);
}

/* Waits until the kernel has given all of the first `calls` sends' pages back. */
static void wait_for_completions(int fd, uint32_t calls) {
    char *control = pages_map(1);
    struct msghdr *message = pages_map(1);
    for (uint32_t done = 0; done < calls;) {
        struct pollfd ready = {fd, 0, 0};
        CHECK(poll(&ready, 1, 60000) == 1 && (ready.revents & POLLERR));
        press();
        *message = (struct msghdr){.msg_control = control, .msg_controllen = PAGE_BYTES};
        CHECK(recvmsg(fd, message, MSG_ERRQUEUE) == 0);
        struct cmsghdr *first = CMSG_FIRSTHDR(message);
        CHECK(first);
        struct sock_extended_err *told = (void *)CMSG_DATA(first);
        CHECK(told->ee_origin == SO_EE_ORIGIN_ZEROCOPY && told->ee_errno == 0);
        CHECK(told->ee_info == done && told->ee_data >= done);
        done = told->ee_data + 1;
    }
    munmap(control, PAGE_BYTES), munmap(message, PAGE_BYTES);
}

/* A pair of connected sockets, whose peer takes little at a time. */
static void connect_pair(int fds[2]) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), small = 16 * PAGE_BYTES;
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, sizeof name) == 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&name, &bytes) == 0);
    fds[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fds[0] >= 0 && connect(fds[0], (struct sockaddr *)&name, bytes) == 0);
    fds[1] = accept(listener, NULL, NULL);
    CHECK(fds[1] >= 0 && close(listener) == 0);
}

static void send_without_copy(uint64_t tag, char *other, uint64_t other_tag) {
    int fds[2], one = 1;
    connect_pair(fds);
    if (setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) != 0)
        return;
    char *from = pages_map(SENT_PAGES), *to = pages_map(SENT_PAGES);
    pages_fill(from, SENT_PAGES, tag);
    press();
    uint32_t calls = 0;
    size_t sent = 0;
    while (sent < SENT_PAGES * PAGE_BYTES) {
        ssize_t more = send(fds[0], from + sent, SENT_PAGES * PAGE_BYTES - sent,
                            MSG_ZEROCOPY | MSG_DONTWAIT);
        if (more < 0 && (errno == EAGAIN || errno == ENOBUFS))
            break;
        CHECK(more > 0);
        sent += more, calls++;
    }
    CHECK(sent > 0);
    churn(other, 2 * MIB_PAGES, other_tag);
    churn(other, 2 * MIB_PAGES, other_tag);
    read_all(fds[1], to, sent);
    pages_check(to, sent / PAGE_BYTES, tag);
    wait_for_completions(fds[0], calls);
    pages_check(from, SENT_PAGES, tag);
    munmap(from, SENT_PAGES * PAGE_BYTES), munmap(to, SENT_PAGES * PAGE_BYTES);
    close(fds[0]), close(fds[1]);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv)), other_tag = mix(tag);
    ballast_make(28);
    char *other = pages_map(2 * MIB_PAGES);
    pages_fill(other, 2 * MIB_PAGES, other_tag);
    for (int round = 0; round < ROUNDS; round++) {
        splice_in(tag + round * 1000, round % 2 ? SPLICE_F_GIFT : 0, other, other_tag);
        splice_out(tag + round * 1000 + 500);
        if (round % 4 == 0)
            send_without_copy(tag + round * 2000, other, other_tag);
    }
    pages_check(other, 2 * MIB_PAGES, other_tag);
    note(tag);
    return victim_end();
}
