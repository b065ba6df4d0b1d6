/* A program that reads and writes its own memory by way of the kernel: /proc/self/mem and its own id. */
#include "victim.h"
#include <sys/uio.h>

#define BIG_PAGES (32 * MIB_PAGES)
#define BIG_BYTES (BIG_PAGES * PAGE_BYTES)

static char *big, *copy;

static off_t position(const void *start) {
    return (off_t)(uintptr_t)start;
}

static void through_proc(const char *path, uint64_t tag) {
    int fd = open(path, O_RDWR), other = dup(fd);
    CHECK(fd >= 0 && other >= 0);
    /* A page at a time, at a place. */
    for (size_t i = 0; i < BIG_PAGES; i += 111) {
        CHECK(pread(fd, copy, PAGE_BYTES, position(big + i * PAGE_BYTES)) == (ssize_t)PAGE_BYTES);
        page_check(copy, tag + i);
        page_fill(copy, tag + i + 1);
        CHECK(pwrite(other, copy, PAGE_BYTES, position(big + i * PAGE_BYTES)) == (ssize_t)PAGE_BYTES);
    }
    for (size_t i = 0; i < BIG_PAGES; i++)
        page_check(big + i * PAGE_BYTES, tag + i + (i % 111 == 0));
    pages_fill(big, BIG_PAGES, tag);
    /* Unaligned, and one after the other from where it was set. */
    CHECK(lseek(fd, position(big + 100), SEEK_SET) == position(big + 100));
    for (size_t i = 0; i < 4000; i++) {
        CHECK(read(fd, copy, 3 * PAGE_BYTES) == (ssize_t)(3 * PAGE_BYTES));
        if (i % 50 == 0)
            CHECK(memcmp(copy, big + 100 + i % 8000 * 3 * PAGE_BYTES, 3 * PAGE_BYTES) == 0);
        if (i % 2600 == 2599)
            CHECK(lseek(fd, position(big + 100 + (i + 1) * 3 * PAGE_BYTES), SEEK_SET) > 0);
        if ((i + 2) * 3 > BIG_PAGES)
            break;
    }
    /* All at once, and in vectors. */
    CHECK(pread(fd, copy, BIG_BYTES, position(big)) == (ssize_t)BIG_BYTES);
    pages_check(copy, BIG_PAGES, tag);
    pages_fill(copy, BIG_PAGES, tag + 5);
    CHECK(lseek(fd, position(big), SEEK_SET) == position(big));
    struct iovec halves[] = {{copy, BIG_BYTES / 2}, {copy + BIG_BYTES / 2, BIG_BYTES / 2}};
    CHECK(writev(fd, halves, 2) == (ssize_t)BIG_BYTES);
    pages_check(big, BIG_PAGES, tag + 5);
    CHECK(preadv(other, halves, 2, position(big)) == (ssize_t)BIG_BYTES);
    pages_check(copy, BIG_PAGES, tag + 5);
    CHECK(pread(fd, copy, 8, 64) == -1 && errno == EIO);
    close(fd);
    close(other);
}

static void by_id(uint64_t tag) {
    pages_fill(big, BIG_PAGES, tag);
    struct iovec local[100], remote[3] = {{big, 12345}, {big + 12345, 0}, {big + 12345, BIG_BYTES - 12345}};
    for (size_t i = 0; i < 100; i++)
        local[i] = (struct iovec){copy + i * BIG_BYTES / 100,
                                  (i + 1) * BIG_BYTES / 100 - i * BIG_BYTES / 100};
    CHECK(process_vm_readv(getpid(), local, 100, remote, 3, 0) == (ssize_t)BIG_BYTES);
    pages_check(copy, BIG_PAGES, tag);
    pages_fill(copy, BIG_PAGES, tag + 9);
    CHECK(process_vm_writev(getpid(), local, 100, remote, 3, 0) == (ssize_t)BIG_BYTES);
    pages_check(big, BIG_PAGES, tag + 9);
    /* Up to where the memory ends. */
    char *end = pages_map(32);
    CHECK(munmap(end + 16 * PAGE_BYTES, 16 * PAGE_BYTES) == 0);
    struct iovec into = {copy, 32 * PAGE_BYTES}, from = {end, 32 * PAGE_BYTES};
    CHECK(process_vm_readv(getpid(), &into, 1, &from, 1, 0) == (ssize_t)(16 * PAGE_BYTES));
    CHECK(process_vm_readv(getpid(), &into, 1, &from, 1, 1) == -1 && errno == EINVAL);
    from.iov_base = end + 16 * PAGE_BYTES;
    CHECK(process_vm_readv(getpid(), &into, 1, &from, 1, 0) == -1 && errno == EFAULT);
}

/* What a call has no argument for may hold any address, that of a mapping that is none of the program's too. */
static void left_over(void) {
    char *block = pages_map(16);
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    unsigned long start;
    while (fscanf(maps, "%lx-%*[^\n]", &start) == 1)
        CHECK(raw(SYS_mremap, (long)block, 16 * PAGE_BYTES, 16 * PAGE_BYTES, MREMAP_MAYMOVE, start, 0)
              == (long)block);
    fclose(maps);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    copy = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, tag);
    pages_fill(copy, BIG_PAGES, 3);
    through_proc("/proc/self/mem", tag);
    pages_fill(big, BIG_PAGES, tag + 1);
    through_proc("/proc/thread-self/mem", tag + 1);
    by_id(tag + 2);
    left_over();
    note(tag);
    return victim_end();
}
