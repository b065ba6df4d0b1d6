/*
 * Transfers with pipes and stream sockets that are too large to be held at
 * once: what the call returns when a signal, the end, or a full queue cuts it
 * short, what comes with its first bytes, and that no register is touched.
 */
#include "victim.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BIG_PAGES (24 * MIB_PAGES)
#define BIG_BYTES (BIG_PAGES * PAGE_BYTES)
#define PART_BYTES ((ssize_t)(5 * MIB_PAGES * PAGE_BYTES + 123))

static char *out, *in;
static volatile sig_atomic_t alarms;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

/* Something that another thread does after a while. */
struct later {
    pthread_t thread, main;
    int after_ms, fd;
    const void *start;
    size_t bytes;
};

static void *do_later(void *argument) {
    struct later *later = argument;
    usleep(later->after_ms * 1000);
    if (later->fd < 0)
        CHECK(pthread_kill(later->main, SIGUSR1) == 0);
    for (size_t done = 0; done < later->bytes;) {
        size_t left = later->bytes - done;
        ssize_t n = write(later->fd, (char *)later->start + done, left < 60000 ? left : 60000);
        CHECK(n > 0);
        done += n;
    }
    return NULL;
}

static void begin(struct later *later) {
    later->main = pthread_self();
    CHECK(pthread_create(&later->thread, NULL, do_later, later) == 0);
}

static void end(struct later *later) {
    CHECK(pthread_join(later->thread, NULL) == 0);
}

static void alarm_in(struct later *later, int milliseconds, int flags) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    alarms = 0;
    *later = (struct later){.after_ms = milliseconds, .fd = -1};
    begin(later);
}

/* Takes `bytes` from `fd` after a while, and checks that they are what was sent. */
struct taker {
    int fd;
    size_t bytes;
    int after_ms;
};

static void *take(void *argument) {
    struct taker *taker = argument;
    usleep(taker->after_ms * 1000);
    char part[4096];
    size_t done = 0;
    while (done < taker->bytes) {
        size_t wanted = taker->bytes - done;
        ssize_t n = read(taker->fd, part, wanted < sizeof part ? wanted : sizeof part);
        CHECK(n > 0);
        for (ssize_t i = 0; i < n; i++)
            CHECK(part[i] == (char)(page_word(7 + (done + i) / PAGE_BYTES, (done + i) % PAGE_BYTES / 8)
                                    >> (done + i) % 8 * 8));
        done += n;
    }
    return NULL;
}

/* A handler ends a write after a part: the call returns the part. */
static void interrupted_write(int from, int to) {
    struct later later;
    alarm_in(&later, 100, SA_RESTART);
    ssize_t n = write(to, out, BIG_BYTES);
    CHECK(n > 0 && n < (ssize_t)BIG_BYTES && alarms == 1);
    struct taker taker = {from, n, 0};
    take(&taker);
    end(&later);
}

/* Nothing was read yet: EINTR, or begun again. */
static void interrupted_read(int from, int to, int is_socket) {
    struct later later, late = {.after_ms = 120, .fd = to, .start = "late", .bytes = 4};
    alarm_in(&later, 50, 0);
    CHECK(read(from, in, BIG_BYTES) == -1 && errno == EINTR && alarms == 1);
    end(&later);
    alarm_in(&later, 50, SA_RESTART);
    begin(&late);
    CHECK(read(from, in, BIG_BYTES) == 4 && memcmp(in, "late", 4) == 0 && alarms == 1);
    end(&later);
    end(&late);
    if (!is_socket)
        return;
    /* All was asked for, a part came: the part. */
    CHECK(write(to, out, 3000) == 3000);
    alarm_in(&later, 50, SA_RESTART);
    CHECK(recv(from, in, BIG_BYTES, MSG_WAITALL) == 3000 && alarms == 1);
    CHECK(memcmp(in, out, 3000) == 0);
    end(&later);
}

/* What is there is read in one call, and a call that may not wait does not. */
static void without_waiting(int from, int to) {
    int flags = fcntl(to, F_GETFL);
    CHECK(fcntl(to, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(fcntl(from, F_SETFL, flags | O_NONBLOCK) == 0);
    CHECK(read(from, in, BIG_BYTES) == -1 && errno == EAGAIN);
    ssize_t sent = write(to, out, BIG_BYTES);
    CHECK(sent > 0 && sent < (ssize_t)BIG_BYTES);
    CHECK(write(to, out, BIG_BYTES) == -1 && errno == EAGAIN);
    CHECK(read(from, in, BIG_BYTES) == sent);
    CHECK(memcmp(in, out, sent) == 0);
    CHECK(read(from, in, BIG_BYTES) == -1 && errno == EAGAIN);
    CHECK(fcntl(to, F_SETFL, flags) == 0 && fcntl(from, F_SETFL, flags) == 0);
}

/* Scattered over vectors of all lengths, empty ones too. */
static void vectors(int from, int to) {
    struct iovec parts[200];
    size_t sum = 0;
    for (int i = 0; i < 200; i++) {
        size_t bytes = i % 7 == 3 ? 0 : i % 5 == 1 ? 300001 : 70 + i;
        parts[i] = (struct iovec){out + sum, bytes};
        sum += bytes;
    }
    CHECK(sum < BIG_BYTES);
    struct taker taker = {from, sum, 10};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take, &taker) == 0);
    CHECK(writev(to, parts, 200) == (ssize_t)sum);
    CHECK(pthread_join(thread, NULL) == 0);
    memset(in, 0, BIG_BYTES);
    struct later late = {.fd = to, .start = out, .bytes = sum};
    begin(&late);
    for (int i = 0; i < 200; i++)
        parts[i].iov_base = in + ((char *)parts[i].iov_base - out);
    size_t done = 0;
    for (int i = 0; i < 200;) {
        ssize_t n = readv(from, parts + i, 200 - i);
        CHECK(n > 0);
        done += n;
        for (; i < 200 && (size_t)n >= parts[i].iov_len; i++)
            n -= parts[i].iov_len;
        if (i < 200) {
            parts[i].iov_base = (char *)parts[i].iov_base + n;
            parts[i].iov_len -= n;
        } else {
            CHECK(n == 0);
        }
        while (i < 200 && parts[i].iov_len == 0)
            i++;
    }
    CHECK(done == sum && memcmp(in, out, sum) == 0);
    end(&late);
}

static void registers(int from, int to) {
    register long r10 __asm__("r10") = 0x1111;
    register long r8 __asm__("r8") = 0x2222;
    register long r9 __asm__("r9") = 0x3333;
    long rdi = to, rsi = (long)out, rdx = PART_BYTES, result = SYS_write;
    struct taker taker = {from, PART_BYTES, 10};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take, &taker) == 0);
    r10 = 0x1111, r8 = 0x2222, r9 = 0x3333;
    __asm__ volatile("syscall"
                     : "+a"(result), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+r"(r10), "+r"(r8), "+r"(r9)
                     :
                     : "rcx", "r11", "memory");
    CHECK(result == PART_BYTES && rdi == to && rsi == (long)out && rdx == PART_BYTES);
    CHECK(r10 == 0x1111 && r8 == 0x2222 && r9 == 0x3333);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* The end, and a peer that is gone. */
static void ends(int is_socket) {
    int fds[2];
    if (is_socket)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    else
        CHECK(pipe(fds) == 0);
    CHECK(write(fds[1], out, 5000) == 5000);
    close(fds[1]);
    CHECK(read(fds[0], in, BIG_BYTES) == 5000 && memcmp(in, out, 5000) == 0);
    CHECK(read(fds[0], in, BIG_BYTES) == 0);
    close(fds[0]);
    if (is_socket)
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    else
        CHECK(pipe(fds) == 0);
    close(fds[0]);
    CHECK(signal(SIGPIPE, on_alarm) != SIG_ERR);
    alarms = 0;
    CHECK(write(fds[1], out, BIG_BYTES) == -1 && errno == EPIPE && alarms == 1);
    if (is_socket)
        CHECK(send(fds[1], out, BIG_BYTES, MSG_NOSIGNAL) == -1 && errno == EPIPE && alarms == 1);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    close(fds[1]);
}

static void *send_parcel(void *argument) {
    struct msghdr *header = argument;
    int fd = header->msg_flags;
    header->msg_flags = 0;
    CHECK(sendmsg(fd, header, 0) == PART_BYTES);
    return NULL;
}

/* Rights come once, with the first bytes, and the receiver is told about its buffers. */
static void rights(void) {
    int fds[2], pipes[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0 && pipe(pipes) == 0);
    char *control = pages_map(16), *received = pages_map(16);
    struct iovec whole = {out, PART_BYTES}, halves[2] = {{in, 1000001}, {in + 1000001, BIG_BYTES / 2}};
    struct msghdr sent = {.msg_iov = &whole, .msg_iovlen = 1, .msg_control = control,
                          .msg_controllen = CMSG_SPACE(sizeof(int)), .msg_flags = fds[0]};
    struct cmsghdr *head = CMSG_FIRSTHDR(&sent);
    *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &pipes[1], sizeof(int));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_parcel, &sent) == 0);
    struct msghdr got = {.msg_iov = halves, .msg_iovlen = 2, .msg_control = received,
                         .msg_controllen = 4096, .msg_flags = -1};
    ssize_t first = recvmsg(fds[1], &got, MSG_WAITALL);
    CHECK(first > 0 && first < PART_BYTES && got.msg_flags == 0);
    CHECK(got.msg_controllen == CMSG_SPACE(sizeof(int)));
    head = CMSG_FIRSTHDR(&got);
    CHECK(head->cmsg_type == SCM_RIGHTS);
    int right;
    memcpy(&right, CMSG_DATA(head), sizeof right);
    CHECK(write(right, "x", 1) == 1 && read(pipes[0], in + BIG_BYTES - 1, 1) == 1);
    CHECK(recv(fds[1], in + first, PART_BYTES - first, MSG_WAITALL) == PART_BYTES - first);
    CHECK(memcmp(in, out, PART_BYTES) == 0);
    CHECK(pthread_join(thread, NULL) == 0);

    /* Without rights all of it comes, and there is nothing to tell. */
    memset(in, 0, PART_BYTES);
    sent.msg_control = NULL;
    sent.msg_controllen = 0;
    sent.msg_flags = fds[0];
    CHECK(pthread_create(&thread, NULL, send_parcel, &sent) == 0);
    halves[1].iov_len = PART_BYTES - halves[0].iov_len;
    got = (struct msghdr){.msg_iov = halves, .msg_iovlen = 2, .msg_control = received,
                          .msg_controllen = 4096, .msg_flags = -1};
    CHECK(recvmsg(fds[1], &got, MSG_WAITALL) == PART_BYTES);
    CHECK(got.msg_flags == 0 && got.msg_controllen == 0 && memcmp(in, out, PART_BYTES) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    close(right);
    close(pipes[0]);
    close(pipes[1]);
    close(fds[0]);
    close(fds[1]);
}

/* Over TCP: looking does not take, and names are told. */
static void over_tcp(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof name;
    CHECK(listening >= 0 && bind(listening, (struct sockaddr *)&name, length) == 0);
    CHECK(listen(listening, 1) == 0);
    CHECK(getsockname(listening, (struct sockaddr *)&name, &length) == 0);
    int to = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(to >= 0 && connect(to, (struct sockaddr *)&name, length) == 0);
    int from = accept(listening, NULL, NULL);
    CHECK(from >= 0);
    CHECK(recv(from, in, BIG_BYTES, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    struct msghdr sent = {.msg_iov = &(struct iovec){out, PART_BYTES}, .msg_iovlen = 1, .msg_flags = to};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, send_parcel, &sent) == 0);
    ssize_t seen = recv(from, in, PART_BYTES, MSG_PEEK);
    CHECK(seen > 0 && memcmp(in, out, seen) == 0);
    memset(in, 0, PART_BYTES);
    length = sizeof name;
    CHECK(recvfrom(from, in, PART_BYTES, MSG_WAITALL, (struct sockaddr *)&name, &length) == PART_BYTES);
    CHECK(length == 0 || length == sizeof name);
    CHECK(memcmp(in, out, PART_BYTES) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    note(length);
    close(from);
    close(to);
    close(listening);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    out = pages_map(BIG_PAGES);
    in = pages_map(BIG_PAGES);
    pages_fill(out, BIG_PAGES, 7);
    pages_fill(in, BIG_PAGES, 1);
    for (int is_socket = 0; is_socket < 2; is_socket++) {
        int fds[2];
        if (is_socket)
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        else
            CHECK(pipe(fds) == 0);
        interrupted_write(fds[0], fds[1]);
        interrupted_read(fds[0], fds[1], is_socket);
        without_waiting(fds[0], fds[1]);
        vectors(fds[0], fds[1]);
        registers(fds[0], fds[1]);
        close(fds[0]);
        close(fds[1]);
        ends(is_socket);
    }
    rights();
    over_tcp();
    pages_check(out, BIG_PAGES, 7);
    note(7);
    return victim_end();
}
