/*
 * A program that loads much and then forks workers, which leave it alone while they go through memory of their
 * own, so that it makes way in all of them; then each reads all of it and writes some pages, has a child that does
 * the same, and goes through its own memory again.
 */
#include "victim.h"

#define LOADED_PAGES (24 * MIB_PAGES)
#define OWN_PAGES (5 * MIB_PAGES)
#define WORKERS 4
#define ROUNDS 12

static char *loaded;
static uint64_t *tags;

/* Reads all, and writes one page in sixteen. */
static void use(struct random *random) {
    for (size_t page = 0; page < LOADED_PAGES; page++) {
        page_check(loaded + page * PAGE_BYTES, tags[page]);
        if (below(random, 16) == 0)
            page_fill(loaded + page * PAGE_BYTES, tags[page] = draw(random));
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
    use(&random);
    go_through(own, tag);
    pid_t child = has_child ? fork() : -1;
    CHECK(child >= 0 || !has_child);
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
    loaded = pages_map(LOADED_PAGES);
    tags = calloc(LOADED_PAGES, sizeof *tags);
    for (size_t page = 0; page < LOADED_PAGES; page++)
        page_fill(loaded + page * PAGE_BYTES, tags[page] = draw(&random));
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
