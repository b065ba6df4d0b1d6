/*
 * Threads that are there before the agent is called, as a library's constructor makes them: one waits on a
 * condition, one sleeps in a read, one computes. Their stacks are of what leaves. It sleeps, too, for longer
 * than the supervisor is patient.
 */
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

static void begin(void) {
    CHECK(usleep(400000) == 0);
    CHECK(pipe(fds) == 0);
    for (size_t i = 0; i < COUNT(beginners); i++)
        CHECK(pthread_create(&beginners[i], NULL, waits, (void *)i) == 0);
}

/* Called before any library's constructor. */
__attribute__((section(".preinit_array"), used)) static void (*before_all)(void) = begin;

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
    note(tag);
    return victim_end();
}
