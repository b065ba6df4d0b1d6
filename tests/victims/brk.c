/* The heap grown and shrunk: by the bare system call, by sbrk, and by malloc with malloc_trim. */
#include "victim.h"
#include <malloc.h>

#define HEAP_PAGES (40 * MIB_PAGES)

static long bare_brk(long end) {
    return raw(SYS_brk, end, 0, 0, 0, 0, 0);
}

/* Page tags of the heap that this victim has grown; in a shared mapping, so outside the heap. */
static uint64_t *tags;

static void heap_check(char *base, size_t pages) {
    for (size_t i = 0; i < pages; i++) {
        if (tags[i])
            page_check(base + i * PAGE_BYTES, tags[i]);
        else
            zeros_check(base + i * PAGE_BYTES, PAGE_BYTES);
    }
}

static void bare(struct random *random) {
    long start = (bare_brk(0) + PAGE_BYTES - 1) & -PAGE_BYTES;
    CHECK(bare_brk(start) == start);
    size_t pages = 0;
    uint64_t tag = 1;
    for (int round = 0; round < 60; round++) {
        size_t wanted =
            round % 4 == 0 ? HEAP_PAGES - below(random, 1000) : below(random, HEAP_PAGES);
        long end = start + wanted * PAGE_BYTES - below(random, 100);
        CHECK(bare_brk(end) == end);
        for (size_t i = wanted; i < pages; i++)
            tags[i] = 0;
        pages = wanted;
        heap_check((char *)start, pages);
        for (size_t i = below(random, 7); i < pages; i += 1 + below(random, 7)) {
            tags[i] = tag++;
            page_fill((char *)start + i * PAGE_BYTES, tags[i]);
        }
    }
    heap_check((char *)start, pages);
    CHECK(bare_brk(start) == start);
    note(tag);
}

/* Blocks below the mmap threshold, so that all of them lie in the heap. */
static void blocks(struct random *random) {
    enum { BLOCKS = 1200 };
    static char *block[BLOCKS];
    static uint64_t tag[BLOCKS];
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 128 << 10);
    for (int step = 0; step < 20000; step++) {
        int i = below(random, BLOCKS);
        size_t pages = 1 + i % 16;
        if (block[i])
            pages_check(block[i], pages, tag[i]);
        if (block[i] && below(random, 3) == 0) {
            free(block[i]);
            block[i] = NULL;
            if (step % 64 == 0)
                malloc_trim(0);
            continue;
        }
        if (!block[i])
            block[i] = malloc(pages * PAGE_BYTES);
        CHECK(block[i]);
        tag[i] = 1000000000ull + step * 16;
        pages_fill(block[i], pages, tag[i]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (block[i])
            pages_check(block[i], 1 + i % 16, tag[i]);
        free(block[i]);
    }
    malloc_trim(0);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    tags = mmap(NULL, HEAP_PAGES * sizeof *tags, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    CHECK(tags != MAP_FAILED);
    mallopt(M_TOP_PAD, 0);
    bare(&random);
    blocks(&random);
    note(draw(&random));
    return victim_end();
}
