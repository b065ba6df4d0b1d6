/*
 * What there is before a program's `main`, as libraries' constructors make it: threads, of which one waits on a
 * condition, one sleeps in a read and one computes, more memory than there is to be, and a child with as much.
 *
 * With -DLIBRARY all of it is a library that is called before the agent: it begins threads, whose stacks are of
 * what leaves, and sleeps for longer than the supervisor is patient. With -DOF_LIBRARY it is that one's program.
 */
#ifndef OF_LIBRARY
#include "victim.h"

#define STACK_BYTES_USED 20000
#define PAGES (48 * MIB_PAGES)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile int ends;
static pthread_t beginners[3];
static int fds[2];

static void used_check(const unsigned char *used) {
    for (size_t i = 0; i < STACK_BYTES_USED; i++)
        CHECK(used[i] == (unsigned char)(i * 7));
}

static void *waits(void *kind) {
    unsigned char used[STACK_BYTES_USED];
    for (size_t i = 0; i < STACK_BYTES_USED; i++)
        used[i] = (unsigned char)(i * 7);
    switch ((size_t)kind) {
    case 0:
        pthread_mutex_lock(&lock);
        while (!ends)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        break;
    case 1: {
        char byte;
        CHECK(read(fds[0], &byte, 1) == 0);
        break;
    }
    default:
        while (!ends)
            used_check(used);
    }
    used_check(used);
    return NULL;
}

static void threads_begin(void) {
    CHECK(pipe(fds) == 0);
    for (size_t i = 0; i < COUNT(beginners); i++)
        CHECK(pthread_create(&beginners[i], NULL, waits, (void *)i) == 0);
}

#ifdef LIBRARY
__attribute__((constructor)) static void begin(void) {
    CHECK(usleep(400000) == 0);
    threads_begin();
}
#else
static char *early;

static void begin(void) {
    early = pages_map(PAGES);
    pages_fill(early, PAGES, 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *own = pages_map(PAGES);
        pages_fill(own, PAGES, 2);
        pages_check(own, PAGES, 2);
        pages_check(early, PAGES, 1);
        _exit(0);
    }
    CHECK_CHILD(child);
    threads_begin();
}

/* Called before any library's constructor. */
__attribute__((section(".preinit_array"), used)) static void (*before_all)(void) = begin;
#endif

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    char *pages = pages_map(PAGES);
    pages_fill(pages, PAGES, tag);
    pages_check(pages, PAGES, tag);
    pthread_mutex_lock(&lock);
    ends = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    CHECK(close(fds[1]) == 0);
    for (size_t i = 0; i < COUNT(beginners); i++)
        CHECK(pthread_join(beginners[i], NULL) == 0);
    pages_check(pages, PAGES, tag);
#ifndef LIBRARY
    pages_check(early, PAGES, 1);
#endif
    note(tag);
    return victim_end();
}
#endif
