/* Shared and file-backed mappings beside managed memory: left alone, and right. */
#include "victim.h"

#define SHARED_PAGES (8 * MIB_PAGES)

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(48);
    char *shared = mmap(NULL, SHARED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, SHARED_PAGES * PAGE_BYTES) == 0);
    char *mapped = mmap(NULL, SHARED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private =
        mmap(NULL, SHARED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && private != MAP_FAILED);
    pages_fill(shared, SHARED_PAGES, tag);
    pages_fill(mapped, SHARED_PAGES, tag + 1);
    pages_check(private, SHARED_PAGES, tag + 1);
    for (size_t i = 0; i < SHARED_PAGES; i += 2)
        page_fill(private + i * PAGE_BYTES, tag + 7 + i);
    press();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(shared, SHARED_PAGES, tag);
        pages_fill(shared, SHARED_PAGES, tag + 9);
        press();
        pages_fill(mapped, 100, tag + 10);
        _exit(0);
    }
    CHECK_CHILD(child);
    press();
    pages_check(shared, SHARED_PAGES, tag + 9);
    pages_check(mapped, 100, tag + 10);
    pages_check(mapped + 100 * PAGE_BYTES, SHARED_PAGES - 100, tag + 101);
    for (size_t i = 0; i < SHARED_PAGES; i += 2)
        page_check(private + i * PAGE_BYTES, tag + 7 + i);
    /* A private file page that was dropped shows the file again. */
    CHECK(madvise(private, SHARED_PAGES * PAGE_BYTES, MADV_DONTNEED) == 0);
    pages_check(private, 100, tag + 10);
    /* A file mapped over managed memory, and managed memory over a file. */
    char *area = ballast + 4 * MIB_PAGES * PAGE_BYTES;
    CHECK(mmap(area, MIB_PAGES * PAGE_BYTES, PROT_READ, MAP_FIXED | MAP_SHARED, fd, 0) == area);
    pages_check(area, 100, tag + 10);
    CHECK(mmap(area, MIB_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
               MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          == area);
    zeros_check(area, MIB_PAGES * PAGE_BYTES);
    pages_fill(area, MIB_PAGES, BALLAST_TAG + 4 * MIB_PAGES);
    note_bytes(shared, 1 << 20);
    return victim_end();
}
