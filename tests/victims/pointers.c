/*
 * A program that walks over tables of pointers to pages which lie anywhere, most of them in the store: up, down and
 * through two tables in turns, as a merge does. What the pointers lead to next is written anew, dropped and
 * shared with children meanwhile, and read by another thread.
 */
#include "victim.h"

#define PAGES (32 * MIB_PAGES)
#define WALKS 7
#define CHILDREN_EVERY 4001
#define CHILD_STEPS 150
#define NEAR 12

/* As the lines of GNU sort. */
struct record {
    uint64_t length;
    uint64_t *page, *key, *end;
};

static struct record *records;
/* Which contents each page of the field has; 0 is none. */
static uint32_t *versions;
static uint64_t *field;
static int is_over;

static size_t page_of(const struct record *record) {
    return (size_t)(record->page - field) / PAGE_WORDS;
}

static uint64_t tag_of(size_t page) {
    return mix(page * 1000003 + versions[page]);
}

/* No page shrinks. */
static void page_write(size_t page, uint32_t version) {
    uint64_t *words = field + page * PAGE_WORDS;
    versions[page] = version;
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        words[i] = mix(tag_of(page) + i);
}

static void field_check(size_t page) {
    const uint64_t *words = field + page * PAGE_WORDS;
    if (!versions[page]) {
        zeros_check(words, PAGE_BYTES);
        return;
    }
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        CHECK(words[i] == mix(tag_of(page) + i));
}

/* A few of the pages that are wanted next become something else. */
static void disturb(struct random *random, const struct record *near, uint32_t version) {
    size_t page = page_of(near);
    switch (below(random, 3)) {
    case 0:
        page_write(page, version);
        break;
    case 1:
        CHECK(madvise(field + page * PAGE_WORDS, PAGE_BYTES, MADV_DONTNEED) == 0);
        versions[page] = 0;
        break;
    default:
        field_check(page);
    }
}

static void child_walk(size_t at) {
    for (size_t i = at; i < at + CHILD_STEPS && i < PAGES; i++)
        field_check(page_of(records + i));
    _exit(0);
}

static void step(struct random *random, size_t at, uint32_t version, int may_fork) {
    field_check(page_of(records + at));
    if (below(random, 16) == 0 && at + NEAR < PAGES && at >= NEAR)
        disturb(random, records + at - NEAR + below(random, 2 * NEAR), version);
    if (may_fork && at % CHILDREN_EVERY == CHILDREN_EVERY / 2) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            child_walk(at);
        field_check(page_of(records + (at + 1) % PAGES));
        CHECK(wait_for(child) == 0);
    }
}

static void walk(struct random *random, uint32_t version, int may_fork) {
    size_t low = 0, high = PAGES / 2;
    switch (version % 3) {
    case 0:
        for (size_t at = 0; at < PAGES; at++)
            step(random, at, version, may_fork);
        break;
    case 1:
        for (size_t at = PAGES; at-- > 0;)
            step(random, at, version, may_fork);
        break;
    default:
        while (low < PAGES / 2 && high < PAGES)
            step(random, draw(random) % 2 ? low++ : high++, version, may_fork);
    }
}

/* Reads what does not change: the table. */
static void *body(void *argument) {
    struct random random = {(uint64_t)argument};
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        const struct record *record = records + below(&random, PAGES);
        CHECK(record->page == record->key && record->length == page_of(record) % 100);
        usleep(200);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    struct random random = {seed};
    field = pages_map(PAGES);
    records = pages_map(PAGES * sizeof(struct record) / PAGE_BYTES);
    versions = pages_map(PAGES * sizeof(uint32_t) / PAGE_BYTES);
    for (size_t page = 0; page < PAGES; page++) {
        /* In an order of its own: a swap with one of those before. */
        size_t other = below(&random, page + 1);
        records[page] = records[other];
        uint64_t *words = field + page * PAGE_WORDS;
        records[other] = (struct record){page % 100, words, words, words + PAGE_WORDS};
    }
    for (size_t page = 0; page < PAGES; page++)
        page_write(page, 1);
    for (uint32_t version = 2; version < 2 + WALKS; version++) {
        pthread_t thread;
        int is_alone = version < 2 + WALKS - 2;
        if (!is_alone)
            CHECK(pthread_create(&thread, NULL, body, (void *)(uintptr_t)draw(&random)) == 0);
        walk(&random, version, version % 2);
        __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
        if (!is_alone)
            CHECK(pthread_join(thread, NULL) == 0);
        __atomic_store_n(&is_over, 0, __ATOMIC_RELAXED);
    }
    for (size_t page = 0; page < PAGES; page++) {
        field_check(page);
        note(field[page * PAGE_WORDS]);
    }
    return victim_end();
}
