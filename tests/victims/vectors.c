/* readv, writev and their relatives with many iovecs, the iovec array itself in absent memory. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/uio.h>

#define VECTORS 1024
#define SPREAD 8 /* pages from one vector's buffer to the next: nothing is a run */

static struct iovec *vectors_make(char *start, size_t first_bytes) {
    struct iovec *vectors = pages_map(VECTORS * sizeof *vectors / PAGE_BYTES + 16);
    for (size_t i = 0; i < VECTORS; i++) {
        vectors[i].iov_base = start + i * SPREAD * PAGE_BYTES + i % 64;
        vectors[i].iov_len = first_bytes + i % 4096;
    }
    return vectors;
}

static size_t vectors_bytes(const struct iovec *vectors) {
    size_t bytes = 0;
    for (size_t i = 0; i < VECTORS; i++)
        bytes += vectors[i].iov_len;
    return bytes;
}

static void vectors_check(const struct iovec *a, const struct iovec *b) {
    for (size_t i = 0; i < VECTORS; i++)
        CHECK(memcmp(a[i].iov_base, b[i].iov_base, a[i].iov_len) == 0);
}

#define LISTED 100
#define LISTED_FIRST 70 /* that lie before the border, behind which half of the next one does */

static ssize_t listed_bytes(const struct iovec *list, size_t count) {
    ssize_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += list[i].iov_len;
    return bytes;
}

/* Sends so many by a call of its own, and by sendmsg(); each comes out as what they name. */
static void list_sends(const struct iovec *list, size_t count, const char *from, struct msghdr *header) {
    char got[LISTED * 200];
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    ssize_t bytes = listed_bytes(list, count);
    for (int by_message = 0; by_message < 2; by_message++) {
        CHECK((by_message ? sendmsg(fds[0], header, 0) : writev(fds[0], list, count)) == bytes);
        CHECK(read(fds[1], got, sizeof got) == bytes);
        size_t at = 0;
        for (size_t i = 0; i < count; at += 10 + i, i++)
            CHECK(memcmp(got + at, from + i * PAGE_BYTES, 10 + i) == 0);
    }
    close(fds[0]);
    close(fds[1]);
}

static void list_fails(const struct iovec *list, struct msghdr *header) {
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK(writev(fds[0], list, LISTED) == -1 && errno == EFAULT);
    CHECK(readv(fds[1], list, LISTED) == -1 && errno == EFAULT);
    CHECK(sendmsg(fds[0], header, 0) == -1 && errno == EFAULT);
    CHECK(recvmsg(fds[1], header, 0) == -1 && errno == EFAULT);
    close(fds[0]);
    close(fds[1]);
}

/* Lists across a border, of which a side is read-only, is not to be read, or is not there. */
static void lists(const char *from) {
    char *memory = pages_map(3);
    struct iovec *list = (struct iovec *)(memory + 2 * PAGE_BYTES - LISTED_FIRST * sizeof *list - 8);
    struct msghdr *header = (struct msghdr *)(memory + PAGE_BYTES - sizeof *header / 2);
    struct iovec on_stack[LISTED];
    for (size_t i = 0; i < LISTED; i++)
        list[i] = on_stack[i] = (struct iovec){(void *)(from + i * PAGE_BYTES), 10 + i};
    *header = (struct msghdr){.msg_iov = list, .msg_iovlen = LISTED};
    strcpy(memory, "/dev/null");
    press();
    list_sends(list, LISTED, from, header);
    list_sends(on_stack, LISTED, from, &(struct msghdr){.msg_iov = on_stack, .msg_iovlen = LISTED});

    press();
    CHECK(mprotect(memory, 2 * PAGE_BYTES, PROT_READ) == 0);
    press();
    list_sends(list, LISTED, from, header);
    int fd = open(memory, O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK(mprotect(memory + 2 * PAGE_BYTES, PAGE_BYTES, PROT_NONE) == 0);
    list_fails(list, header);
    CHECK(munmap(memory + 2 * PAGE_BYTES, PAGE_BYTES) == 0);
    list_fails(list, header);
    struct msghdr first = {.msg_iov = list, .msg_iovlen = LISTED_FIRST};
    list_sends(list, LISTED_FIRST, from, &first);
    CHECK(munmap(memory, PAGE_BYTES) == 0);
    list_fails(list, header);
    CHECK(open(memory, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(munmap(memory + PAGE_BYTES, PAGE_BYTES) == 0);
    list_fails(list, header);
    list_fails(list, &(struct msghdr){.msg_iov = list, .msg_iovlen = 1});
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(40);
    size_t pages = VECTORS * SPREAD + 8;
    char *a = pages_map(pages), *b = pages_map(pages);
    pages_fill(a, pages, tag);
    struct iovec *out = vectors_make(a, 100), *in = vectors_make(b, 100);
    ssize_t bytes = vectors_bytes(out);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600), fds[2];
    CHECK(fd >= 0);

    press();
    CHECK(writev(fd, out, VECTORS) == bytes);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(readv(fd, in, VECTORS) == bytes);
    vectors_check(out, in);

    pages_fill(a, pages, tag + pages);
    press();
    CHECK(pwritev(fd, out, VECTORS, 12345) == bytes);
    CHECK(preadv(fd, in, VECTORS, 12345) == bytes);
    vectors_check(out, in);
    CHECK(preadv2(fd, in, VECTORS, bytes, 0) == 12345);

    /* A vector that is too long, and one with a bad address after a good one. */
    CHECK(readv(fd, in, 1025) == -1 && errno == EINVAL);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    struct iovec half[2] = {{b, 100}, {(void *)16, 100}};
    ssize_t n = readv(fd, half, 2);
    CHECK(n == 100 || (n == -1 && errno == EFAULT));

    /* A pipe takes what fits; the reader sees the vectors joined. */
    CHECK(pipe(fds) == 0);
    press();
    CHECK(writev(fds[1], out, 8) > 0);
    CHECK(readv(fds[0], in, 8) > 0);
    for (int i = 0; i < 8; i++)
        CHECK(memcmp(out[i].iov_base, in[i].iov_base, out[i].iov_len) == 0);

    /* A message keeps its boundary though its vectors are scattered. */
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
    press();
    ssize_t sent = writev(fds[0], out + 512, 20);
    CHECK(sent > 0);
    memset(in[512].iov_base, 0, in[512].iov_len);
    CHECK(readv(fds[1], in + 512, 40) == sent);
    CHECK(memcmp(in[512].iov_base, out[512].iov_base, out[512].iov_len) == 0);

    /* The program's own memory, read and written through the kernel. */
    press();
    struct iovec local = {b, 2 * MIB_PAGES * PAGE_BYTES}, remote = {a, 2 * MIB_PAGES * PAGE_BYTES};
    CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)local.iov_len);
    pages_check(b, 2 * MIB_PAGES, tag + pages);
    press();
    remote.iov_base = a + local.iov_len;
    CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)local.iov_len);
    pages_check(a + local.iov_len, 2 * MIB_PAGES, tag + pages);
    lists(a);
    note_bytes(a, 1 << 20);
    return victim_end();
}
