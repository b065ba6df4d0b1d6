/*
 * A child that has given up its user, and a child of that which begins a thread: it may not open what is its own in
 * /proc, as it was made by fork(2) since.
 */
#include "victim.h"
#include <pthread.h>

#define PAGES (24 * MIB_PAGES)
#define NOBODY 65534

static char *memory;
static uint64_t tag;

static void *looks(void *unused) {
    (void)unused;
    pages_check(memory, PAGES, tag + 1);
    return NULL;
}

static void begin_thread(void) {
    pages_check(memory, PAGES, tag);
    pages_fill(memory, PAGES, tag + 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, looks, NULL) == 0);
    pages_check(memory, PAGES, tag + 1);
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(0);
}

static void give_up(void) {
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    pages_check(memory, PAGES, tag);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        begin_thread();
    CHECK_CHILD(child);
    pages_check(memory, PAGES, tag);
    _exit(0);
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        give_up();
    CHECK_CHILD(child);
    pages_check(memory, PAGES, tag);
    note(tag);
    return victim_end();
}
