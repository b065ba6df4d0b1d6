/*
 * A child of a process most of which is compressed goes through a little of it while its parent
 * waits: what it gives of the pool that both have is no room as long as its parent has it too, and
 * what it would move within that costs a copy. The budget holds all the same.
 */
#include "victim.h"

#define PAGES (240 * MIB_PAGES)
#define ROUNDS 2
#define CHILD_READS 3000

/* A page of which up to half does not shrink. */
static void fill(uint64_t *words, uint64_t tag) {
    uint64_t shrunk = PAGE_WORDS / 2 + mix(tag) % (PAGE_WORDS / 2);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        words[i] = i < shrunk ? tag : mix(tag + i);
}

static void check(const uint64_t *words, uint64_t tag) {
    uint64_t wanted[PAGE_WORDS];
    fill(wanted, tag);
    CHECK(memcmp(words, wanted, PAGE_BYTES) == 0);
}

static void read_some(char *memory, struct random *random, size_t reads) {
    for (size_t i = 0; i < reads; i++) {
        size_t page = below(random, PAGES);
        check((uint64_t *)(memory + page * PAGE_BYTES), page);
    }
}

int main(int argc, char **argv) {
    struct random random = {argc > 1 ? strtoull(argv[1], NULL, 0) : 1};
    char *memory = pages_map(PAGES);
    for (size_t page = 0; page < PAGES; page++)
        fill((uint64_t *)(memory + page * PAGE_BYTES), page);
    for (int round = 0; round < ROUNDS; round++) {
        read_some(memory, &random, PAGES / 2);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            read_some(memory, &random, CHILD_READS);
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    read_some(memory, &random, PAGES);
    puts("right");
    return 0;
}
