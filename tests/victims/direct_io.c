/* O_DIRECT into and out of managed memory: the kernel holds the pages while the device works. */
#include "victim.h"

#define BIG_PAGES (32 * MIB_PAGES)
#define BIG_BYTES (BIG_PAGES * PAGE_BYTES)

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *a = pages_map(BIG_PAGES), *b = pages_map(BIG_PAGES);
    pages_fill(a, BIG_PAGES, tag);
    char name[] = "direct-XXXXXX";
    int plain = mkstemp(name);
    CHECK(plain >= 0);
    int fd = open(name, O_RDWR | O_DIRECT);
    CHECK(unlink(name) == 0);
    if (fd < 0) { /* a file system without direct I/O: the calls are checked all the same */
        CHECK(errno == EINVAL);
        fd = plain;
    }
    CHECK(write(fd, a, BIG_BYTES) == (ssize_t)BIG_BYTES);
    CHECK(pread(fd, b, BIG_BYTES, 0) == (ssize_t)BIG_BYTES);
    pages_check(b, BIG_PAGES, tag);
    pages_check(a, BIG_PAGES, tag);
    struct random random = {tag};
    for (int i = 0; i < 300; i++) {
        size_t from = below(&random, BIG_PAGES - 64), to = below(&random, BIG_PAGES - 64);
        size_t pages = 1 + below(&random, 63);
        CHECK(pread(fd, b + to * PAGE_BYTES, pages * PAGE_BYTES, from * PAGE_BYTES)
              == (ssize_t)(pages * PAGE_BYTES));
        pages_check(b + to * PAGE_BYTES, pages, tag + from);
        CHECK(pwrite(fd, b + to * PAGE_BYTES, pages * PAGE_BYTES, from * PAGE_BYTES)
              == (ssize_t)(pages * PAGE_BYTES));
    }
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, b, BIG_BYTES) == (ssize_t)BIG_BYTES);
    pages_check(b, BIG_PAGES, tag);
    note(draw(&random));
    return victim_end();
}
