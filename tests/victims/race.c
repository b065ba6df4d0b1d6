/*
 * Threads that write one another's pages while they are lifted out: no store
 * is ever lost. Every word is a counter that one thread alone advances.
 */
#include "victim.h"

#define THREADS 4
#define PAGES (32 * MIB_PAGES)
#define STEPS 150000

static uint64_t *words;
static uint64_t totals[THREADS];

static void *body(void *argument) {
    uint64_t self = (uint64_t)argument;
    struct random random = {self};
    for (int i = 0; i < STEPS; i++) {
        /* Half of the steps fall on few pages, so that hot and cold ones mix. */
        size_t page = below(&random, 2) ? below(&random, PAGES) : below(&random, 300);
        volatile uint64_t *word = words + page * PAGE_WORDS + self * 8 + below(&random, 8);
        *word = *word + 1;
        totals[self]++;
    }
    return NULL;
}

static void *atomic_body(void *argument) {
    struct random random = {(uint64_t)argument + 77};
    for (int i = 0; i < STEPS; i++) {
        size_t page = below(&random, 2) ? below(&random, PAGES) : below(&random, 300);
        __atomic_fetch_add(words + page * PAGE_WORDS + 500, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    words = pages_map(PAGES);
    for (size_t i = 0; i < PAGES; i++)
        words[i * PAGE_WORDS + 511] = i;
    settle();
    for (int round = 0; round < 2; round++) {
        pthread_t threads[THREADS];
        for (uint64_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, round ? atomic_body : body, (void *)i) == 0);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    uint64_t sums[THREADS] = {0}, atomic_sum = 0;
    for (size_t i = 0; i < PAGES; i++) {
        CHECK(words[i * PAGE_WORDS + 511] == i);
        atomic_sum += words[i * PAGE_WORDS + 500];
        for (int k = 0; k < THREADS * 8; k++)
            sums[k / 8] += words[i * PAGE_WORDS + k];
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(sums[k] == totals[k] && sums[k] == STEPS);
    CHECK(atomic_sum == THREADS * STEPS);
    note(atomic_sum);
    return victim_end();
}
