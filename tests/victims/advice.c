/*
 * What a program says of its memory: that it is cold, may go, has to come, is free, by madvise and by
 * process_madvise about itself and about a child; that it has a name, a key, a place on a stack that
 * grows down; and what it asks of it. Never a stale byte.
 */
#include "victim.h"
#include <linux/membarrier.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#define PAGES 512
#define PART_PAGES ((size_t)128)
#define PART_BYTES (PART_PAGES * PAGE_BYTES)

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

/* Advice that changes nothing. */
static void keep(char *memory, uint64_t tag) {
    const int advices[] = {MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_NORMAL, MADV_RANDOM,
                           MADV_SEQUENTIAL, MADV_POPULATE_READ, MADV_POPULATE_WRITE};
    for (size_t i = 0; i < COUNT(advices); i++) {
        if (i % 2)
            press();
        int result = madvise(memory + 3 * PAGE_BYTES, (PAGES - 5) * PAGE_BYTES, advices[i]);
        CHECK(result == 0 || errno == EINVAL);
        pages_check(memory, PAGES, tag);
    }
}

/* Of a mapping in three parts the middle one moves away and back, beside parts that were advised of what it was
 * not, or of the same. */
static void move_beside(char *memory, const char *advised, int advice, uint64_t tag) {
    for (size_t part = 0; part < 3; part++)
        if (advised[part] == 'x')
            CHECK(madvise(memory + part * PART_BYTES, PART_BYTES, advice) == 0);
    press();
    char *middle = memory + PART_BYTES;
    char *away = mremap(middle, PART_BYTES, PART_BYTES + 3 * PAGE_BYTES, MREMAP_MAYMOVE);
    CHECK(away != MAP_FAILED && away != middle);
    press();
    pages_check(away, PART_PAGES, tag + PART_PAGES);
    press();
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    CHECK(mremap(away, PART_BYTES + 3 * PAGE_BYTES, PART_BYTES, flags, middle) == middle);
    press();
    pages_check(memory, 3 * PART_PAGES, tag);
}

/* Both of what was advised before it could be known, and of what is advised then. */
static void move_beside_all(char *early, uint64_t tag) {
    const int advices[] = {MADV_DONTDUMP, MADV_RANDOM, MADV_SEQUENTIAL};
    const char *parts[] = {"xxx", "x-x", "x--", "-x-", "--x"};
    move_beside(early, "---", 0, tag);
    for (size_t i = 0; i < COUNT(advices); i++) {
        for (size_t which = 0; which < COUNT(parts); which++) {
            char *memory = pages_map(3 * PART_PAGES);
            pages_fill(memory, 3 * PART_PAGES, tag);
            move_beside(memory, parts[which], advices[i], tag);
            CHECK(munmap(memory, 3 * PART_BYTES) == 0);
        }
    }
}

/* Freed: zeros or, with MADV_FREE, what was there, but never anything else; what is written stays. */
static void free_some(char *memory, uint64_t tag) {
    press();
    CHECK(madvise(memory + 100 * PAGE_BYTES, 50 * PAGE_BYTES, MADV_FREE) == 0);
    page_fill(memory + 110 * PAGE_BYTES, tag + 7);
    press();
    press();
    page_check(memory + 110 * PAGE_BYTES, tag + 7);
    for (size_t page = 100; page < 150; page++) {
        char *at = memory + page * PAGE_BYTES;
        if (page == 110)
            continue;
        if (*(volatile uint64_t *)at == 0)
            zeros_check(at, PAGE_BYTES);
        else
            page_check(at, tag + page);
        page_fill(at, tag + page);
    }
    page_fill(memory + 110 * PAGE_BYTES, tag + 110);
    press();
    pages_check(memory, PAGES, tag);
}

/* About itself with a descriptor: the kernel may refuse it (before Linux 6.13). */
static void by_descriptor(char *memory, uint64_t tag) {
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0)
        return;
    struct iovec *vectors = pages_map(1);
    vectors[0] = (struct iovec){memory + 10 * PAGE_BYTES, 20 * PAGE_BYTES};
    vectors[1] = (struct iovec){memory + 200 * PAGE_BYTES, 100 * PAGE_BYTES};
    press();
    long result = syscall(SYS_process_madvise, self, vectors, 2, MADV_COLD, 0);
    CHECK(result == 120 * (long)PAGE_BYTES || errno == EPERM);
    pages_check(memory, PAGES, tag);
    press();
    result = syscall(SYS_process_madvise, self, vectors, 2, MADV_PAGEOUT, 0);
    CHECK(result == 120 * (long)PAGE_BYTES || errno == EPERM);
    pages_check(memory, PAGES, tag);
    press();
    result = syscall(SYS_process_madvise, self, vectors, 2, MADV_DONTNEED, 0);
    CHECK(result == 120 * (long)PAGE_BYTES || (result == -1 && (errno == EINVAL || errno == EPERM)));
    if (result > 0) {
        zeros_check(memory + 10 * PAGE_BYTES, 20 * PAGE_BYTES);
        press();
        zeros_check(memory + 200 * PAGE_BYTES, 100 * PAGE_BYTES);
        pages_fill(memory + 10 * PAGE_BYTES, 20, tag + 10);
        pages_fill(memory + 200 * PAGE_BYTES, 100, tag + 200);
    }
    /* A hole in the second: the first is done. */
    char *hole = pages_map(32);
    CHECK(munmap(hole, 32 * PAGE_BYTES) == 0);
    vectors[1] = (struct iovec){hole, PAGE_BYTES};
    result = syscall(SYS_process_madvise, self, vectors, 2, MADV_DONTNEED, 0);
    CHECK(result == 20 * (long)PAGE_BYTES || (result == -1 && (errno == EINVAL || errno == EPERM)));
    pages_fill(memory + 10 * PAGE_BYTES, 20, tag + 10);
    pages_check(memory, PAGES, tag);
    close(self);
    /* A child's memory: what it has stays. */
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(close(fds[1]) == 0 && read(fds[0], &byte, 1) == 0);
        pages_check(memory, PAGES, tag);
        _exit(0);
    }
    int other = syscall(SYS_pidfd_open, child, 0);
    vectors[1] = (struct iovec){memory + 200 * PAGE_BYTES, 100 * PAGE_BYTES};
    press();
    result = syscall(SYS_process_madvise, other, vectors, 2, MADV_PAGEOUT, 0);
    CHECK(result == 120 * (long)PAGE_BYTES || errno == EPERM);
    CHECK(syscall(SYS_process_madvise, other, vectors, 2, MADV_DONTNEED, 0) == -1);
    CHECK(close(fds[1]) == 0 && close(fds[0]) == 0 && close(other) == 0);
    CHECK_CHILD(child);
    munmap(vectors, PAGE_BYTES);
}

/* Calls that ask, with the place for the answer absent, and some that do not apply here. */
static void ask(char *memory, uint64_t tag) {
    unsigned char *present = pages_map(8);
    memset(present, 0x5a, 8 * PAGE_BYTES);
    press();
    CHECK(mincore(ballast, 7 * MIB_PAGES * PAGE_BYTES, present + PAGE_BYTES / 2) == 0);
    for (size_t i = 0; i < 7 * MIB_PAGES; i++)
        CHECK((present[PAGE_BYTES / 2 + i] & ~1) == 0);
    CHECK(present[PAGE_BYTES / 2 - 1] == 0x5a && present[PAGE_BYTES / 2 + 7 * MIB_PAGES] == 0x5a);
    press();
    /* Sixteen times as much needs an answer of more than a page. */
    char *wide = pages_map(24 * MIB_PAGES);
    memset(present, 0x5a, 8 * PAGE_BYTES);
    press();
    CHECK(mincore(wide, 24 * MIB_PAGES * PAGE_BYTES, present) == 0);
    CHECK(present[24 * MIB_PAGES - 1] <= 1 && present[24 * MIB_PAGES] == 0x5a);
    munmap(wide, 24 * MIB_PAGES * PAGE_BYTES);
    CHECK(msync(memory, PAGES * PAGE_BYTES, MS_SYNC) == 0);
    CHECK(msync(memory, PAGES * PAGE_BYTES, MS_ASYNC | MS_INVALIDATE) == 0);
    CHECK(remap_file_pages(memory, PAGE_BYTES, 0, 1, 0) == -1 && errno == EINVAL);
    int known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (known > 0 && (known & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)) {
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
        CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
    }
    char *name = pages_map(3) + 2 * PAGE_BYTES - 3;
    strcpy(name, "a name");
    press();
    int named = prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory + 20 * PAGE_BYTES, 40 * PAGE_BYTES,
                      name);
    CHECK(named == 0 || errno == EINVAL);
    press();
    pages_check(memory, PAGES, tag);
    /* What was named moves. */
    char *part = memory + 20 * PAGE_BYTES, *to = pages_map(64);
    CHECK(mremap(part, 40 * PAGE_BYTES, 40 * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    press();
    pages_check(to, 40, tag + 20);
    CHECK(mremap(to, 40 * PAGE_BYTES, 40 * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, part)
          == part);
    press();
    pages_check(memory, PAGES, tag);
}

/* Both at once: what a child is not to have it has not as zeros either, until that is taken back. A hole
 * in the range keeps nothing of it from being advised. */
static void both_after_fork(uint64_t tag) {
    char *memory = pages_map(64), *behind = memory + 40 * PAGE_BYTES;
    pages_fill(memory, 64, tag);
    CHECK(munmap(memory + 32 * PAGE_BYTES, 8 * PAGE_BYTES) == 0);
    CHECK(madvise(memory, 64 * PAGE_BYTES, MADV_DONTFORK) == -1 && errno == ENOMEM);
    CHECK(madvise(memory, 16 * PAGE_BYTES, MADV_WIPEONFORK) == 0);
    for (int is_back = 0; is_back < 2; is_back++) {
        press();
        if (is_back)
            CHECK(madvise(memory, 24 * PAGE_BYTES, MADV_DOFORK) == 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            unsigned char present[32];
            for (char *part = memory; part < behind; part += 8 * PAGE_BYTES) {
                int is_there = is_back && part < memory + 24 * PAGE_BYTES;
                CHECK((mincore(part, 8 * PAGE_BYTES, present) == 0) == is_there);
            }
            CHECK(mincore(behind, 24 * PAGE_BYTES, present) == -1 && errno == ENOMEM);
            if (is_back) {
                zeros_check(memory, 16 * PAGE_BYTES);
                pages_check(memory + 16 * PAGE_BYTES, 8, tag + 16);
            }
            press();
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    pages_check(memory, 32, tag);
    pages_check(behind, 24, tag + 40);
    CHECK(munmap(memory, 64 * PAGE_BYTES) == 0);
}

/* Memory that a child is not to have, or to have as zeros, also after it has moved. */
static void after_fork(uint64_t tag) {
    const int advices[] = {MADV_WIPEONFORK, MADV_DONTFORK};
    for (size_t way = 0; way < 2; way++) {
        char *memory = pages_map(64), *to = pages_map(96);
        pages_fill(memory, 64, tag);
        CHECK(madvise(memory, 64 * PAGE_BYTES, advices[way]) == 0);
        press();
        CHECK(mremap(memory, 64 * PAGE_BYTES, 96 * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to)
              == to);
        pages_fill(to + 64 * PAGE_BYTES, 32, tag + 64);
        press();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            unsigned char present[96];
            press();
            if (way == 0)
                zeros_check(to, 96 * PAGE_BYTES);
            else
                CHECK(mincore(to, 96 * PAGE_BYTES, present) == -1 && errno == ENOMEM);
            press();
            _exit(0);
        }
        CHECK_CHILD(child);
        pages_check(to, 96, tag);
        CHECK(munmap(to, 96 * PAGE_BYTES) == 0);
    }
}

/* Memory under a protection key, where the processor has them. */
static void keys(uint64_t tag) {
    int key = pkey_alloc(0, 0);
    if (key < 0)
        return;
    char *memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    press();
    CHECK(pkey_mprotect(memory + 32 * PAGE_BYTES, 128 * PAGE_BYTES, PROT_READ | PROT_WRITE, key)
          == 0);
    pages_check(memory, PAGES, tag);
    press();
    CHECK(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
    press();
    press();
    CHECK(pkey_set(key, PKEY_DISABLE_WRITE) == 0);
    pages_check(memory, PAGES, tag);
    press();
    int fds[2];
    CHECK(pipe(fds) == 0);
    CHECK(write(fds[1], memory + 40 * PAGE_BYTES, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    char *read_back = pages_map(1);
    CHECK(read(fds[0], read_back, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    page_check(read_back, tag + 40);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(memory, PAGES, tag);
        _exit(0);
    }
    CHECK_CHILD(child);
    CHECK(pkey_set(key, 0) == 0);
    pages_fill(memory, PAGES, tag + 5);
    press();
    CHECK(pkey_mprotect(memory, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, 0) == 0);
    CHECK(pkey_free(key) == 0);
    pages_check(memory, PAGES, tag + 5);
    close(fds[0]), close(fds[1]);
    munmap(memory, PAGES * PAGE_BYTES), munmap(read_back, PAGE_BYTES);
}

/* Nothing lies below it for a long way. */
static char *grows_down(uintptr_t where, uint64_t tag) {
    char *top = mmap(address(where), 64 * PAGE_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(top == address(where));
    pages_fill(top, 64, tag);
    return top;
}

static void grow(char *top, uint64_t tag) {
    press();
    for (size_t page = 1; page <= 200; page++)
        page_fill(top - page * PAGE_BYTES, tag - page);
    press();
    pages_check(top - 200 * PAGE_BYTES, 264, tag - 200);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *early = grows_down(0x200000000000, tag + 5000);
    char *advised = pages_map(3 * PART_PAGES);
    pages_fill(advised, 3 * PART_PAGES, tag + 7000);
    CHECK(madvise(advised, 3 * PART_BYTES, MADV_RANDOM) == 0);
    ballast_make(28);
    grow(early, tag + 5000);
    grow(grows_down(0x210000000000, tag + 6000), tag + 6000);
    char *memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    keep(memory, tag);
    move_beside_all(advised, tag + 7000);
    free_some(memory, tag);
    by_descriptor(memory, tag);
    ask(memory, tag);
    after_fork(tag);
    both_after_fork(tag);
    keys(tag);
    pages_check(memory, PAGES, tag);
    note(tag);
    return victim_end();
}
