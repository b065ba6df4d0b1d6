/*
 * Threads that wait for pages in the store at the same time, for one another's and for those that
 * others drop, move, write anew or share with a child meanwhile.
 */
#include "victim.h"

#define THREADS 5
#define COMMON_PAGES (16 * MIB_PAGES)
#define OWN_PAGES (5 * MIB_PAGES)
#define STEPS 3000
#define CHILDREN 10
#define MOVED_PAGES 3
/* Not in the headers of every libc. */
#define DONTUNMAP 4

/* Each thread's pages, and which contents they have; 0 is none. */
struct own {
    char *pages;
    uint32_t versions[OWN_PAGES];
    uint64_t seed;
};

static uint64_t *common;
static struct own owns[THREADS];
static int is_over;

/* No page shrinks, so that nearly all of them lie in the store. */
static uint64_t noise(uint64_t tag, unsigned index) {
    return mix(mix(tag) + index);
}

static void noise_fill(uint64_t *page, uint64_t tag) {
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        page[i] = noise(tag, i);
}

static void noise_check(const uint64_t *page, uint64_t tag) {
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        CHECK(page[i] == noise(tag, i));
}

static uint64_t tag_of(const struct own *own, size_t page) {
    return mix(own->seed + own->versions[page]) + page;
}

static uint64_t *own_page(const struct own *own, size_t page) {
    return (uint64_t *)(own->pages + page * PAGE_BYTES);
}

static void own_write(struct own *own, size_t page, uint32_t version) {
    own->versions[page] = version;
    noise_fill(own_page(own, page), tag_of(own, page));
}

static void own_drop(struct own *own, size_t page) {
    CHECK(madvise(own_page(own, page), PAGE_BYTES, MADV_DONTNEED) == 0);
    own->versions[page] = 0;
    zeros_check(own_page(own, page), PAGE_BYTES);
}

/* The moved pages keep what they hold: its tag is that of the place they had. */
static void own_move(struct own *own, size_t from, size_t to) {
    uint64_t first[MOVED_PAGES];
    for (size_t i = 0; i < MOVED_PAGES; i++)
        first[i] = own->versions[from + i] ? noise(tag_of(own, from + i), 7) : 0;
    CHECK(mremap(own_page(own, from), MOVED_PAGES * PAGE_BYTES, MOVED_PAGES * PAGE_BYTES,
                 MREMAP_MAYMOVE | MREMAP_FIXED | DONTUNMAP, own_page(own, to)) ==
          own_page(own, to));
    zeros_check(own_page(own, from), MOVED_PAGES * PAGE_BYTES);
    for (size_t i = 0; i < MOVED_PAGES; i++) {
        CHECK(own_page(own, to + i)[7] == first[i]);
        own->versions[from + i] = 0;
        own_write(own, to + i, 1);
    }
}

static void own_check(const struct own *own, size_t page) {
    if (own->versions[page])
        noise_check(own_page(own, page), tag_of(own, page));
    else
        zeros_check(own_page(own, page), PAGE_BYTES);
}

static void *body(void *argument) {
    struct own *own = argument;
    struct random random = {own->seed};
    for (uint32_t step = 2; step < STEPS + 2; step++) {
        size_t page = below(&random, COMMON_PAGES), own_at = below(&random, OWN_PAGES);
        noise_check(common + page * PAGE_WORDS, page);
        size_t from = below(&random, OWN_PAGES / 2 - MOVED_PAGES);
        size_t to = OWN_PAGES / 2 + below(&random, OWN_PAGES / 2 - MOVED_PAGES);
        switch (below(&random, 8)) {
        case 0:
            own_write(own, own_at, step);
            break;
        case 1:
            own_drop(own, own_at);
            break;
        case 2:
            own_move(own, from, to);
            break;
        case 3:
            /* A few in order, some of them for others, too. */
            for (size_t i = page; i < page + 6 && i < COMMON_PAGES; i++)
                noise_check(common + i * PAGE_WORDS, i);
            break;
        default:
            own_check(own, own_at);
        }
    }
    return NULL;
}

static void *fork_body(void *argument) {
    struct random random = {(uint64_t)argument};
    for (int i = 0; i < CHILDREN || !__atomic_load_n(&is_over, __ATOMIC_RELAXED); i++) {
        uint64_t seed = draw(&random);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct random own = {seed};
            for (int k = 0; k < 100; k++) {
                size_t page = below(&own, COMMON_PAGES);
                noise_check(common + page * PAGE_WORDS, page);
            }
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    common = pages_map(COMMON_PAGES);
    for (size_t i = 0; i < COMMON_PAGES; i++)
        noise_fill(common + i * PAGE_WORDS, i);
    settle();
    pthread_t threads[THREADS], forker;
    for (size_t i = 0; i < THREADS; i++) {
        owns[i].seed = mix(seed + i);
        owns[i].pages = pages_map(OWN_PAGES);
        for (size_t page = 0; page < OWN_PAGES; page++)
            own_write(&owns[i], page, 1);
    }
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, &owns[i]) == 0);
    CHECK(pthread_create(&forker, NULL, fork_body, (void *)seed) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(forker, NULL) == 0);
    for (size_t page = 0; page < COMMON_PAGES; page++)
        noise_check(common + page * PAGE_WORDS, page);
    for (size_t i = 0; i < THREADS; i++)
        for (size_t page = 0; page < OWN_PAGES; page++) {
            own_check(&owns[i], page);
            note(owns[i].versions[page]);
        }
    return victim_end();
}
