/*
 * A program whose first thread ends before the others do much: they fill memory, fork, make threads and
 * execute this program again, in which it is the same. What the kernel tells of such a process by its id is
 * of a thread that has no memory.
 */
#include "victim.h"

#define PAGES (40 * MIB_PAGES)

static char **arguments;
static uint64_t seed;

static void *checks(void *start) {
    pages_check(start, PAGES, seed);
    return NULL;
}

static void *outlives(void *first) {
    pthread_t others[2];
    CHECK(pthread_join(*(pthread_t *)first, NULL) == 0);
    char *pages = pages_map(PAGES);
    pages_fill(pages, PAGES, seed);
    for (size_t i = 0; i < COUNT(others); i++)
        CHECK(pthread_create(&others[i], NULL, checks, pages) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(pages, PAGES, seed);
        _exit(0);
    }
    CHECK_CHILD(child);
    for (size_t i = 0; i < COUNT(others); i++)
        CHECK(pthread_join(others[i], NULL) == 0);
    pages_check(pages, PAGES, seed);
    note(seed);
    if (arguments[2])
        exit(victim_end());
    execl("/proc/thread-self/exe", arguments[0], arguments[1], "again", NULL);
    CHECK(!"executed");
    return NULL;
}

int main(int argc, char **argv) {
    static pthread_t first, thread;
    seed = victim_start(argc, argv);
    arguments = argv;
    first = pthread_self();
    CHECK(pthread_create(&thread, NULL, outlives, &first) == 0);
    pthread_exit(NULL);
}
