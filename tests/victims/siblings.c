/*
 * A parent and children that it forked before the budget came near: all have its memory in common when they
 * are taken over, the stacks of its sleeping threads with it. Then each reads all of it and writes some
 * pages, and has what it wrote itself, and nothing of what the others did; children have a child, too.
 */
#include "victim.h"
#include <semaphore.h>

#define SHARED_PAGES (20 * MIB_PAGES)
#define OWN_PAGES (22 * MIB_PAGES)
#define CHILDREN 4
#define THREADS 3
#define ROUNDS 3

static char *area;
static uint64_t *tags;
static sem_t waits;

static void *sleeper(void *argument) {
    char frame[3 * PAGE_BYTES];
    memset(frame, (int)(uintptr_t)argument, sizeof frame);
    sem_wait(&waits);
    for (size_t i = 0; i < sizeof frame; i++)
        CHECK(frame[i] == (char)(uintptr_t)argument);
    return NULL;
}

/* Reads all, and writes one page in eight. */
static void use(struct random *random) {
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t page = 0; page < SHARED_PAGES; page++) {
            page_check(area + page * PAGE_BYTES, tags[page]);
            if (below(random, 8 * ROUNDS) == 0)
                page_fill(area + page * PAGE_BYTES, tags[page] = draw(random));
        }
    }
}

/* The kernel writes pages that are in common, and reads them. */
static void through_pipe(struct random *random) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 200; i++) {
        size_t from = below(random, SHARED_PAGES), to = below(random, SHARED_PAGES);
        CHECK(write(ends[1], area + from * PAGE_BYTES, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
        CHECK(read(ends[0], area + to * PAGE_BYTES, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
        tags[to] = tags[from];
    }
    close(ends[0]);
    close(ends[1]);
}

static void child_body(struct random random, int go, int has_child);

static pid_t begin(struct random random, int go, int has_child) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        child_body(random, go, has_child);
        _exit(0);
    }
    return child;
}

static void child_body(struct random random, int go, int has_child) {
    char byte;
    pid_t grandchild = has_child ? begin((struct random){mix(draw(&random))}, go, 0) : 0;
    CHECK(read(go, &byte, 1) == 1);
    through_pipe(&random);
    use(&random);
    if (has_child)
        CHECK_CHILD(grandchild);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    area = pages_map(SHARED_PAGES);
    tags = calloc(SHARED_PAGES, sizeof *tags);
    for (size_t page = 0; page < SHARED_PAGES; page++)
        page_fill(area + page * PAGE_BYTES, tags[page] = draw(&random));
    sem_init(&waits, 0, 0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, sleeper, (void *)(i + 1)) == 0);
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        children[i] = begin((struct random){mix(draw(&random))}, go[0], i % 2);
    char *own = pages_map(OWN_PAGES);
    for (size_t page = 0; page < OWN_PAGES; page += MIB_PAGES / 4) {
        pages_fill(own + page * PAGE_BYTES, MIB_PAGES / 4, page);
        usleep(1000);
    }
    for (int i = 0; i < CHILDREN + CHILDREN / 2; i++)
        CHECK(write(go[1], "", 1) == 1);
    use(&random);
    for (size_t page = 0; page < OWN_PAGES; page += MIB_PAGES / 4)
        pages_check(own + page * PAGE_BYTES, MIB_PAGES / 4, page);
    for (int i = 0; i < CHILDREN; i++)
        CHECK_CHILD(children[i]);
    for (int i = 0; i < THREADS; i++)
        sem_post(&waits);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (size_t page = 0; page < SHARED_PAGES; page++)
        note(tags[page]);
    return victim_end();
}
