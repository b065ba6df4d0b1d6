/*
 * Eight GiB reserved with PROT_NONE and opened piecewise, as V8 and the JVM do:
 * committed by mprotect or a fixed mmap, decommitted in the three usual ways.
 */
#include "victim.h"

#define RESERVED_BYTES (8ul << 30)
#define CHUNK_PAGES 64ul
#define CHUNK_BYTES (CHUNK_PAGES * PAGE_BYTES)
#define CHUNKS (RESERVED_BYTES / CHUNK_BYTES)
#define OPEN_CHUNKS 240

static char *reserved;
static struct chunk {
    size_t number;
    uint64_t tag;
} chunks[OPEN_CHUNKS];

static void chunk_open(struct chunk *chunk, struct random *random) {
    chunk->number = below(random, CHUNKS);
    for (int i = 0; i < OPEN_CHUNKS; i++)
        if (chunks + i != chunk && chunks[i].tag && chunks[i].number == chunk->number)
            return;
    char *start = reserved + chunk->number * CHUNK_BYTES;
    if (below(random, 3))
        CHECK(mprotect(start, CHUNK_BYTES, PROT_READ | PROT_WRITE) == 0);
    else
        CHECK(mmap(start, CHUNK_BYTES, PROT_READ | PROT_WRITE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
              == start);
    zeros_check(start, CHUNK_BYTES);
    chunk->tag = draw(random) | 1;
    pages_fill(start, CHUNK_PAGES, chunk->tag);
}

static void chunk_close(struct chunk *chunk, struct random *random) {
    char *start = reserved + chunk->number * CHUNK_BYTES;
    pages_check(start, CHUNK_PAGES, chunk->tag);
    switch (below(random, 3)) {
    case 0:
        CHECK(mmap(start, CHUNK_BYTES, PROT_NONE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
              == start);
        break;
    case 1:
        CHECK(mprotect(start, CHUNK_BYTES, PROT_NONE) == 0);
        CHECK(madvise(start, CHUNK_BYTES, MADV_DONTNEED) == 0);
        break;
    default:
        CHECK(madvise(start, CHUNK_BYTES, MADV_DONTNEED) == 0);
        CHECK(mprotect(start, CHUNK_BYTES, PROT_NONE) == 0);
    }
    chunk->tag = 0;
}

/* The same pages shut and opened again keep what they hold: a guard, not a decommit. */
static void chunk_guard(struct chunk *chunk, struct random *random) {
    char *start = reserved + chunk->number * CHUNK_BYTES;
    CHECK(mprotect(start, CHUNK_BYTES, below(random, 2) ? PROT_NONE : PROT_READ) == 0);
    CHECK(mprotect(start, CHUNK_BYTES, PROT_READ | PROT_WRITE) == 0);
    pages_check(start, CHUNK_PAGES, chunk->tag);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    reserved =
        mmap(NULL, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(reserved != MAP_FAILED);
    for (int step = 0; step < 2500; step++) {
        struct chunk *chunk = &chunks[below(&random, OPEN_CHUNKS)];
        if (!chunk->tag)
            chunk_open(chunk, &random);
        else if (below(&random, 3))
            chunk_guard(chunk, &random);
        else
            chunk_close(chunk, &random);
    }
    for (int i = 0; i < OPEN_CHUNKS; i++)
        if (chunks[i].tag)
            pages_check(reserved + chunks[i].number * CHUNK_BYTES, CHUNK_PAGES, chunks[i].tag);
    note(draw(&random));
    CHECK(munmap(reserved, RESERVED_BYTES) == 0);
    return victim_end();
}
