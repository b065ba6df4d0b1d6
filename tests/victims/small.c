/*
 * All memory in small mappings, side by side and with guards between them, as an
 * allocator has that asks the kernel for a few pages at a time (musl's does).
 */
#include "victim.h"

#define PIECES 6000
#define PIECE_PAGES_MAX 4
#define ROUNDS 3

static struct {
    char *start;
    size_t pages;
    uint64_t tag;
} pieces[PIECES];

static void check_piece(int at) {
    if (pieces[at].start)
        pages_check(pieces[at].start, pieces[at].pages, pieces[at].tag);
}

static void make_piece(int at, struct random *random) {
    size_t pages = 1 + below(random, PIECE_PAGES_MAX);
    pieces[at].pages = pages;
    pieces[at].tag = draw(random);
    if (at % 2) {
        pieces[at].start = pages_map(pages);
    } else {
        char *start = mmap(NULL, (pages + 2) * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
        CHECK(start != MAP_FAILED);
        pieces[at].start = start + PAGE_BYTES;
        CHECK(mprotect(pieces[at].start, pages * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    }
    zeros_check(pieces[at].start, pages * PAGE_BYTES);
    pages_fill(pieces[at].start, pages, pieces[at].tag);
}

static void drop_piece(int at) {
    check_piece(at);
    size_t guard = at % 2 ? 0 : PAGE_BYTES;
    CHECK(munmap(pieces[at].start - guard, pieces[at].pages * PAGE_BYTES + 2 * guard) == 0);
    pieces[at].start = NULL;
}

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    for (int at = 0; at < PIECES; at++)
        make_piece(at, &random);
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = round; at < PIECES; at += 3)
            drop_piece(at);
        for (int at = round; at < PIECES; at += 3)
            make_piece(at, &random);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int at = 0; at < PIECES; at += 7)
            check_piece(at);
        _exit(0);
    }
    CHECK_CHILD(child);
    for (int at = 0; at < PIECES; at++)
        check_piece(at);
    note(draw(&random));
    return victim_end();
}
