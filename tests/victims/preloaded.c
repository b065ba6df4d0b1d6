/*
 * A program that loads much and then forks workers, which leave it alone while they go through memory of their
 * own, so that it makes way in all of them; then each reads all of it and writes some pages, has a child that does
 * the same, and goes through its own memory again. `preloaded SEED still`: what was loaded does not shrink, and is
 * not wanted before the end.
 */
#include "victim.h"

#define LOADED_PAGES (24 * MIB_PAGES)
#define OWN_PAGES (5 * MIB_PAGES)
#define WORKERS 4
#define ROUNDS 12

static char *loaded;
static uint64_t *tags;
static int is_still;

static void load(size_t page) {
    uint64_t *words = (uint64_t *)(loaded + page * PAGE_BYTES);
    for (unsigned i = 0; is_still && i < PAGE_WORDS; i++)
        words[i] = mix(tags[page] + i);
    if (!is_still)
        page_fill(words, tags[page]);
}

static void check(size_t page) {
    const uint64_t *words = (const uint64_t *)(loaded + page * PAGE_BYTES);
    for (unsigned i = 0; is_still && i < PAGE_WORDS; i++)
        CHECK(words[i] == mix(tags[page] + i));
    if (!is_still)
        page_check(words, tags[page]);
}

/* Reads all, and writes one page in sixteen. */
static void use(struct random *random) {
    for (size_t page = 0; page < LOADED_PAGES; page++) {
        check(page);
        if (!is_still && below(random, 16) == 0) {
            tags[page] = draw(random);
            load(page);
        }
    }
}

static void go_through(char *own, uint64_t tag) {
    for (int round = 0; round < ROUNDS; round++)
        pages_check(own, OWN_PAGES, tag);
}

static void work(struct random random, int has_child) {
    char *own = pages_map(OWN_PAGES);
    uint64_t tag = draw(&random);
    pages_fill(own, OWN_PAGES, tag);
    go_through(own, tag);
    if (!is_still) {
        use(&random);
        go_through(own, tag);
    }
    pid_t child = has_child && !is_still ? fork() : -1;
    CHECK(child >= 0 || !has_child || is_still);
    if (child == 0) {
        work((struct random){mix(draw(&random))}, 0);
        _exit(0);
    }
    use(&random);
    if (child > 0)
        CHECK_CHILD(child);
    munmap(own, OWN_PAGES * PAGE_BYTES);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    is_still = argc == 3 && strcmp(argv[2], "still") == 0;
    loaded = pages_map(LOADED_PAGES);
    tags = calloc(LOADED_PAGES, sizeof *tags);
    for (size_t page = 0; page < LOADED_PAGES; page++) {
        tags[page] = draw(&random);
        load(page);
    }
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        CHECK(workers[i] >= 0);
        if (workers[i] == 0) {
            work((struct random){mix(draw(&random) + i)}, i % 2);
            _exit(0);
        }
    }
    for (int i = 0; i < WORKERS; i++)
        CHECK_CHILD(workers[i]);
    use(&random);
    for (size_t page = 0; page < LOADED_PAGES; page++)
        note(tags[page]);
    return victim_end();
}
