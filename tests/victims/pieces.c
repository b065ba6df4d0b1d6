/*
 * Much memory in small pieces with guards between them that were there before the
 * program needed much, as a hardened allocator has it: whoever takes the program
 * over later finds nothing but such pieces.
 */
#include "victim.h"

#define PIECES 1600
#define PIECE_PAGES 15

static char *piece(size_t at, char *memory) {
    return memory + at * (PIECE_PAGES + 1) * PAGE_BYTES;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    struct random random = {tag};
    char *memory = pages_map(PIECES * (PIECE_PAGES + 1));
    for (size_t at = 0; at < PIECES; at++)
        CHECK(mprotect(piece(at, memory) + PIECE_PAGES * PAGE_BYTES, PAGE_BYTES, PROT_NONE) == 0);
    for (size_t at = 0; at < PIECES; at++) {
        pages_fill(piece(at, memory), PIECE_PAGES, tag + at);
        if (at % 16 == 0)
            usleep(4000);
    }
    for (int i = 0; i < 4000; i++) {
        size_t at = below(&random, PIECES);
        pages_check(piece(at, memory), PIECE_PAGES, tag + at);
        pages_fill(piece(at, memory), 1, tag + at);
    }
    for (size_t at = 0; at < PIECES; at++)
        pages_check(piece(at, memory), PIECE_PAGES, tag + at);
    note(draw(&random));
    return victim_end();
}
