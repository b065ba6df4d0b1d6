/* Large reads and writes, each larger than the budget, from and into absent and fresh memory. */
#include "victim.h"
#include <sys/socket.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define BIG_BYTES (BIG_PAGES * PAGE_BYTES)
#define MESSAGE_BYTES 65536

struct transfer {
    int fd;
    char *start;
    size_t bytes;
};

/* Writes in one call where the descriptor takes it, and goes on where it does not. */
static void *writer(void *argument) {
    struct transfer *transfer = argument;
    size_t done = 0;
    while (done < transfer->bytes) {
        ssize_t n = write(transfer->fd, transfer->start + done, transfer->bytes - done);
        CHECK(n > 0);
        done += n;
    }
    return NULL;
}

static void regular_file(char *a, char *b, uint64_t tag) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, a, BIG_BYTES) == (ssize_t)BIG_BYTES);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, b, BIG_BYTES) == (ssize_t)BIG_BYTES);
    pages_check(b, BIG_PAGES, tag);
    CHECK(read(fd, b, BIG_BYTES) == 0);

    /* Absent memory this time, and a read that ends early. */
    pages_fill(a, BIG_PAGES, tag + BIG_PAGES);
    CHECK(pwrite(fd, a, BIG_BYTES, PAGE_BYTES) == (ssize_t)BIG_BYTES);
    CHECK(pread(fd, b, BIG_BYTES, 2 * PAGE_BYTES) == (ssize_t)(BIG_BYTES - PAGE_BYTES));
    pages_check(b, BIG_PAGES - 1, tag + BIG_PAGES + 1);
    page_check(b + (BIG_PAGES - 1) * PAGE_BYTES, tag + BIG_PAGES - 1);
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)BIG_BYTES);

    /* Unaligned in memory and in the file. */
    CHECK(pread(fd, b + 3, 5 * PAGE_BYTES + 7, PAGE_BYTES + 11) == (ssize_t)(5 * PAGE_BYTES + 7));
    CHECK(memcmp(b + 3, a + 11, 5 * PAGE_BYTES + 7) == 0);
    note_bytes(b, 64);
    close(fd);
}

static void stream(int read_fd, int write_fd, char *a, char *b, uint64_t tag) {
    struct transfer transfer = {write_fd, a, BIG_BYTES};
    pages_fill(a, BIG_PAGES, tag);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, writer, &transfer) == 0);
    size_t done = 0;
    while (done < BIG_BYTES) {
        ssize_t n = read(read_fd, b + done, BIG_BYTES - done);
        CHECK(n > 0);
        done += n;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    pages_check(b, BIG_PAGES, tag);
    /* A call that finds less than it asked for returns that and does not wait for more. */
    CHECK(write(write_fd, "short", 5) == 5);
    CHECK(read(read_fd, b, BIG_BYTES) == 5);
    CHECK(memcmp(b, "short", 5) == 0);
    note_bytes(b + PAGE_BYTES, 64);
}

static void messages(char *a, char *b, uint64_t tag) {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
    pages_fill(a, BIG_PAGES, tag);
    press();
    for (int i = 0; i < 8; i++) {
        char *out = a + i * 4 * MESSAGE_BYTES, *in = b + i * 4 * MESSAGE_BYTES;
        CHECK(send(fds[0], out, MESSAGE_BYTES, 0) == MESSAGE_BYTES);
        CHECK(send(fds[0], out + MESSAGE_BYTES, 100, 0) == 100);
        CHECK(recv(fds[1], in, 4 * MESSAGE_BYTES, MSG_PEEK) == MESSAGE_BYTES);
        CHECK(read(fds[1], in, 4 * MESSAGE_BYTES) == MESSAGE_BYTES);
        CHECK(memcmp(in, out, MESSAGE_BYTES) == 0);
        CHECK(recv(fds[1], in, 50, MSG_TRUNC) == 100);
        note_bytes(in, 50);
    }
    close(fds[0]);
    close(fds[1]);
}

static void *sender_of_all(void *argument) {
    struct transfer *transfer = argument;
    CHECK(send(transfer->fd, transfer->start, transfer->bytes, 0) == (ssize_t)transfer->bytes);
    return NULL;
}

static void wait_all(char *a, char *b, uint64_t tag) {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pages_fill(a, BIG_PAGES, tag);
    struct transfer transfer = {fds[0], a, BIG_BYTES / 2};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sender_of_all, &transfer) == 0);
    CHECK(recv(fds[1], b, BIG_BYTES / 2, MSG_WAITALL) == (ssize_t)(BIG_BYTES / 2));
    CHECK(pthread_join(thread, NULL) == 0);
    pages_check(b, BIG_PAGES / 2, tag);
    close(fds[0]);
    close(fds[1]);
}

static void bad_pointers(void) {
    int fd = open("/dev/zero", O_RDWR), fds[2];
    CHECK(fd >= 0 && pipe(fds) == 0);
    char *map = pages_map(32);
    CHECK(read(fd, address(8), 100) == -1 && errno == EFAULT);
    CHECK(write(fds[1], address(8), 100) == -1 && errno == EFAULT);
    CHECK(mprotect(map + 16 * PAGE_BYTES, 16 * PAGE_BYTES, PROT_NONE) == 0);
    CHECK(read(fd, map + 16 * PAGE_BYTES, 100) == -1 && errno == EFAULT);
    CHECK(write(fds[1], map + 20 * PAGE_BYTES, 100) == -1 && errno == EFAULT);
    CHECK(munmap(map + 16 * PAGE_BYTES, 16 * PAGE_BYTES) == 0);
    CHECK(write(fds[1], map + 18 * PAGE_BYTES, 100) == -1 && errno == EFAULT);
    close(fd);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(32);
    char *a = pages_map(BIG_PAGES), *b = pages_map(BIG_PAGES);
    pages_fill(a, BIG_PAGES, tag);
    regular_file(a, b, tag);
    int fds[2];
    CHECK(pipe(fds) == 0);
    stream(fds[0], fds[1], a, b, tag + 1);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    stream(fds[0], fds[1], a, b, tag + 2);
    messages(a, b, tag + 3);
    wait_all(a, b, tag + 4);
    bad_pointers();
    return victim_end();
}
