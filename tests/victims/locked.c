/*
 * mlock, mlockall, munlock and mincore: what is locked is resident, and the rest still leaves. So does what lies beside
 * memory that is sealed, which the kernel does not drop either.
 */
#include "victim.h"
#include <sys/resource.h>

#define LOCKED_PAGES (1 * MIB_PAGES)
/* Locked before the budget comes near, between what leaves. */
#define EARLY_FROM 100
#define EARLY_PAGES 20

static size_t resident_count(const void *start, size_t pages) {
    unsigned char *resident = calloc(pages, 1);
    CHECK(mincore((void *)start, pages * PAGE_BYTES, resident) == 0);
    size_t n = 0;
    for (size_t i = 0; i < pages; i++)
        n += resident[i] & 1;
    free(resident);
    return n;
}

/* Read-only, with a part in its middle that nobody can drop any more, where the kernel has that (Linux 6.10). */
static char *map_sealed(uint64_t tag) {
    const long mseal = 462;
    char *start = pages_map(LOCKED_PAGES);
    pages_fill(start, LOCKED_PAGES, tag);
    CHECK(mprotect(start, LOCKED_PAGES * PAGE_BYTES, PROT_READ) == 0);
    syscall(mseal, start + EARLY_FROM * PAGE_BYTES, EARLY_PAGES * PAGE_BYTES, 0);
    return start;
}

/* A mapping that no neighbour can be one with. */
static char *map_alone(size_t pages) {
    char *start = pages_map(pages + 2), *end = start + (pages + 1) * PAGE_BYTES;
    CHECK(munmap(start, PAGE_BYTES) == 0 && munmap(end, PAGE_BYTES) == 0);
    return start + PAGE_BYTES;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *early = pages_map(LOCKED_PAGES), *early_locked = early + EARLY_FROM * PAGE_BYTES;
    pages_fill(early, LOCKED_PAGES, tag + 3);
    CHECK(mlock(early_locked, EARLY_PAGES * PAGE_BYTES) == 0);
    ballast_make(56);
    press();
    CHECK(resident_count(early_locked, EARLY_PAGES) == EARLY_PAGES);
    pages_check(early, LOCKED_PAGES, tag + 3);
    char *sealed = map_sealed(tag + 4);
    press();
    pages_check(sealed, LOCKED_PAGES, tag + 4);
    char *locked = pages_map(LOCKED_PAGES), *fresh = map_alone(LOCKED_PAGES);
    pages_fill(locked, LOCKED_PAGES, tag);
    press();
    CHECK(mlock(locked, LOCKED_PAGES * PAGE_BYTES) == 0);
    CHECK(resident_count(locked, LOCKED_PAGES) == LOCKED_PAGES);
    CHECK(mlock(fresh, 100 * PAGE_BYTES) == 0);
    CHECK(resident_count(fresh, 100) == 100);
    press();
    CHECK(resident_count(locked, LOCKED_PAGES) == LOCKED_PAGES);
    pages_check(locked, LOCKED_PAGES, tag);
    CHECK(munlock(locked, LOCKED_PAGES * PAGE_BYTES) == 0);
    CHECK(munlock(fresh, 100 * PAGE_BYTES) == 0);
    press();
    pages_check(locked, LOCKED_PAGES, tag);
    /* Partly: the middle of a range. */
    CHECK(mlock(locked + 10 * PAGE_BYTES, 20 * PAGE_BYTES) == 0);
    press();
    CHECK(resident_count(locked + 10 * PAGE_BYTES, 20) == 20);
    CHECK(munlockall() == 0);
    CHECK(mlock2(locked, 50 * PAGE_BYTES, MLOCK_ONFAULT) == 0 && munlockall() == 0);
    /* In many places of a mapping, which is one again then. */
    pages_fill(fresh, LOCKED_PAGES, tag + 9);
    for (size_t page = 0; page < LOCKED_PAGES; page += 8)
        CHECK(mlock(fresh + page * PAGE_BYTES, PAGE_BYTES) == 0);
    CHECK(munlock(fresh, LOCKED_PAGES * PAGE_BYTES) == 0);
    press();
    size_t bytes = LOCKED_PAGES * PAGE_BYTES;
    fresh = mremap(fresh, bytes, 4 * bytes, MREMAP_MAYMOVE);
    CHECK(fresh != MAP_FAILED);
    press();
    pages_check(fresh, LOCKED_PAGES, tag + 9);
    zeros_check(fresh + bytes, 3 * bytes);
    /* All that comes may be refused, as where the limit of locked memory forbids it. */
    int locks_all = mlockall(MCL_FUTURE) == 0;
    CHECK(locks_all || errno == ENOMEM || errno == EPERM);
    char *later = pages_map(64);
    CHECK(!locks_all || resident_count(later, 64) == 64);
    CHECK(munlockall() == 0);
    pages_fill(later, 64, tag + 5);
    press();
    pages_check(later, 64, tag + 5);
    unsigned char resident;
    CHECK(munmap(later, 64 * PAGE_BYTES) == 0);
    CHECK(mincore(later, PAGE_BYTES, &resident) == -1 && errno == ENOMEM);
    return victim_end();
}
