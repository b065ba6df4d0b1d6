/* malloc, calloc, realloc and aligned_alloc from several threads, blocks from bytes to megabytes.
 */
#include "victim.h"

#define THREADS 4
#define BLOCKS 600
#define STEPS 5000

struct block {
    uint64_t *words;
    size_t count;
    uint64_t tag;
};

static size_t size_draw(struct random *random) {
    switch (below(random, 20)) {
    case 0:
        return 1 + below(random, 150000);
    case 1:
    case 2:
    case 3:
        return 1 + below(random, 8000);
    default:
        return 1 + below(random, 400);
    }
}

static void block_fill(struct block *block, uint64_t tag) {
    block->tag = tag;
    for (size_t i = 0; i < block->count; i++)
        block->words[i] = page_word(tag + i / PAGE_WORDS, i % PAGE_WORDS);
}

static void block_check(const struct block *block, size_t count) {
    for (size_t i = 0; i < count; i++)
        CHECK(block->words[i] == page_word(block->tag + i / PAGE_WORDS, i % PAGE_WORDS));
}

static void block_make(struct block *block, struct random *random) {
    block->count = size_draw(random);
    if (below(random, 4) == 0) {
        block->words = calloc(block->count, 8);
        zeros_check(block->words, block->count * 8);
    } else if (below(random, 8) == 0) {
        block->words = aligned_alloc(PAGE_BYTES, (block->count * 8 + PAGE_BYTES - 1) & -PAGE_BYTES);
    } else {
        block->words = malloc(block->count * 8);
    }
    CHECK(block->words);
}

static void *body(void *argument) {
    struct random random = {(uint64_t)argument};
    struct block *blocks = calloc(BLOCKS, sizeof *blocks);
    for (int step = 0; step < STEPS; step++) {
        struct block *block = &blocks[below(&random, BLOCKS)];
        if (block->words)
            block_check(block, block->count);
        uint64_t choice = block->words ? below(&random, 3) : 3;
        if (choice == 0) {
            free(block->words);
            block->words = NULL;
            continue;
        }
        if (choice == 1) {
            size_t before = block->count;
            block->count = size_draw(&random);
            block->words = realloc(block->words, block->count * 8);
            block_check(block, before < block->count ? before : block->count);
        } else if (choice == 3) {
            block_make(block, &random);
        }
        block_fill(block, draw(&random));
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].words) {
            block_check(&blocks[i], blocks[i].count);
            free(blocks[i].words);
        }
    free(blocks);
    return (void *)draw(&random);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)(tag + 1000 * i)) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_join(threads[i], &result) == 0);
        note((uint64_t)result);
    }
    return victim_end();
}
