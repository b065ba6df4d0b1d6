/*
 * Processes that read and write each other's memory by their ids, as message
 * passing between ranks does: a child that sleeps, one that works, and two that
 * want each other's at the same time.
 */
#include "victim.h"
#include <sys/uio.h>

#define BIG_PAGES (12 * MIB_PAGES)
#define BIG_BYTES (BIG_PAGES * PAGE_BYTES)

static char *big, *copy;
static int to_child[2], to_parent[2];

static void tell(int fd) {
    CHECK(write(fd, "r", 1) == 1);
}

static void hear(int fd) {
    char ready;
    CHECK(read(fd, &ready, 1) == 1);
}

/* All of the other's memory, in pieces of its own and at once, and back. */
static void exchange(pid_t other, uint64_t tag) {
    for (size_t i = 0; i < BIG_PAGES; i += MIB_PAGES) {
        struct iovec local = {copy, MIB_PAGES * PAGE_BYTES};
        struct iovec remote = {big + i * PAGE_BYTES, MIB_PAGES * PAGE_BYTES};
        CHECK(process_vm_readv(other, &local, 1, &remote, 1, 0) == (ssize_t)local.iov_len);
        pages_check(copy, MIB_PAGES, tag + i);
    }
    struct iovec local = {copy, BIG_BYTES}, remote = {big, BIG_BYTES};
    CHECK(process_vm_readv(other, &local, 1, &remote, 1, 0) == (ssize_t)BIG_BYTES);
    pages_check(copy, BIG_PAGES, tag);
}

static void child(uint64_t tag) {
    pages_fill(big, BIG_PAGES, tag);
    tell(to_parent[1]);
    /* Asleep in a call. */
    hear(to_child[0]);
    pages_check(big, BIG_PAGES, tag + 1);
    pages_fill(big, BIG_PAGES, tag + 2);
    tell(to_parent[1]);
    /* At work, over and over. */
    struct timespec now;
    int flags = fcntl(to_child[0], F_GETFL);
    CHECK(fcntl(to_child[0], F_SETFL, flags | O_NONBLOCK) == 0);
    for (char ready; read(to_child[0], &ready, 1) != 1; clock_gettime(CLOCK_MONOTONIC, &now))
        pages_check(big, BIG_PAGES, tag + 2);
    CHECK(fcntl(to_child[0], F_SETFL, flags) == 0);
    /* Both at once. */
    exchange(getppid(), tag + 3);
    tell(to_parent[1]);
    hear(to_child[0]);
    _exit(0);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    big = pages_map(BIG_PAGES);
    copy = pages_map(BIG_PAGES);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(tag);
    pages_fill(copy, BIG_PAGES, tag + 1);
    hear(to_parent[0]);
    exchange(pid, tag);
    pages_fill(copy, BIG_PAGES, tag + 1);
    struct iovec local = {copy, BIG_BYTES}, remote = {big, BIG_BYTES};
    CHECK(process_vm_writev(pid, &local, 1, &remote, 1, 0) == (ssize_t)BIG_BYTES);
    tell(to_child[1]);
    hear(to_parent[0]);
    exchange(pid, tag + 2);
    pages_fill(big, BIG_PAGES, tag + 3);
    tell(to_child[1]);
    exchange(pid, tag + 2);
    hear(to_parent[0]);
    /* What is not there is not there. */
    struct iovec none = {address(4096), 64};
    CHECK(process_vm_readv(pid, &local, 1, &none, 1, 0) == -1 && errno == EFAULT);
    tell(to_child[1]);
    CHECK_CHILD(pid);
    CHECK(process_vm_readv(pid, &local, 1, &remote, 1, 0) == -1 && errno == ESRCH);
    pages_check(big, BIG_PAGES, tag + 3);
    note(tag);
    return victim_end();
}
