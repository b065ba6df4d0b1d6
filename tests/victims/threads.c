/*
 * Threads that come and go under pressure: joined, detached, with stacks of the
 * program's own in managed memory beside others, with thread-local data and destructors.
 */
#include "victim.h"
#include <semaphore.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define STACK_BYTES (256ul << 10)
#define SHORT_LIVED 400
#define LONG_LIVED 8

#ifdef __GLIBC__
#define HAS_BLOCK_ON_STACK 1
#else
#define HAS_BLOCK_ON_STACK 0
#endif

static char *big;
static __thread uint64_t local[600];
static pthread_key_t key;
static sem_t finished, filled;
static uint64_t destroyed;

static uint64_t wander(uint64_t tag, int steps) {
    struct random random = {tag};
    uint64_t sum = 0;
    for (int i = 0; i < steps; i++) {
        size_t page = below(&random, BIG_PAGES);
        uint64_t word = *(volatile uint64_t *)(big + page * PAGE_BYTES + 8 * (i % PAGE_WORDS));
        CHECK(word == page_word(page, i % PAGE_WORDS));
        sum = mix(sum + word);
    }
    return sum;
}

static void destructor(void *value) {
    wander((uint64_t)value, 3);
    free(value);
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
}

static void *body(void *argument) {
    char frame[5 * PAGE_BYTES];
    uint64_t tag = (uint64_t)argument;
    char *aligned = (char *)(((uintptr_t)frame + PAGE_BYTES - 1) & -PAGE_BYTES);
    pages_fill(aligned, 4, tag);
    for (size_t i = 0; i < COUNT(local); i++)
        local[i] = tag + i;
    CHECK(pthread_setspecific(key, malloc(100)) == 0);
    uint64_t sum = wander(tag, 40);
    pages_check(aligned, 4, tag);
    for (size_t i = 0; i < COUNT(local); i++)
        CHECK(local[i] == tag + i);
    return (void *)sum;
}

static void *detached_body(void *argument) {
    body(argument);
    sem_post(&finished);
    return NULL;
}

/* Leaves by pthread_exit from deep inside, or is cancelled in a wait. */
static void *exits_early(void *argument) {
    wander((uint64_t)argument, 10);
    pthread_exit(argument);
}

static void *waits_for_ever(void *argument) {
    while (pause() == -1)
        ;
    return argument;
}

static void joined(uint64_t tag) {
    for (int first = 0; first < SHORT_LIVED; first += 8) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            CHECK(pthread_create(&threads[i], NULL, body, (void *)(tag + first + i)) == 0);
        for (int i = 0; i < 8; i++) {
            void *sum;
            CHECK(pthread_join(threads[i], &sum) == 0);
            note((uint64_t)sum);
        }
    }
}

static void detached(uint64_t tag) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sem_init(&finished, 0, 0);
    pthread_t thread;
    for (int i = 0; i < SHORT_LIVED / 2; i++) {
        CHECK(pthread_create(&thread, &attributes, detached_body, (void *)(tag + i)) == 0);
        if (i % 4 == 3)
            for (int k = 0; k < 4; k++)
                while (sem_wait(&finished) != 0)
                    CHECK(errno == EINTR);
    }
}

static void on_own_stacks(uint64_t tag) {
    char *stacks = pages_map(LONG_LIVED * STACK_BYTES / PAGE_BYTES);
    for (int round = 0; round < 4; round++) {
        pthread_t threads[LONG_LIVED];
        for (int i = 0; i < LONG_LIVED; i++) {
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            CHECK(pthread_attr_setstack(&attributes, stacks + i * STACK_BYTES, STACK_BYTES) == 0);
            CHECK(pthread_create(&threads[i], &attributes, body,
                                 (void *)(tag + round * LONG_LIVED + i))
                  == 0);
        }
        for (int i = 0; i < LONG_LIVED; i++) {
            void *sum;
            CHECK(pthread_join(threads[i], &sum) == 0);
            note((uint64_t)sum);
        }
        wander(tag, 4000);
    }
    CHECK(munmap(stacks, LONG_LIVED * STACK_BYTES) == 0);
}

static void *moved_up(char *from, size_t pages, size_t more) {
    char *to = mremap(from, pages * PAGE_BYTES, (pages + more) * PAGE_BYTES, MREMAP_MAYMOVE);
    CHECK(to != MAP_FAILED);
    return to;
}

/* In a child, to which the kernel gives each mapping as it is at the fork, it is one, too. */
static void moved_in_child(char *from, size_t pages, size_t more, uint64_t tag) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(moved_up(from, pages, more), pages, tag);
        _exit(0);
    }
    CHECK_CHILD(child);
}

/* A thread whose stack lies right below other memory of the program's. */
struct beside {
    char *stack, *above;
    size_t pages;
    pthread_t thread;
    uint64_t tag;
    int is_late;
};

static struct beside beside_begin(void *(*run)(void *), uint64_t tag) {
    size_t pages = STACK_BYTES / PAGE_BYTES;
    char *stack = pages_map(2 * pages);
    struct beside beside = {stack, stack + STACK_BYTES, pages, 0, tag, run == body};
    pages_fill(beside.above, pages, tag);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK_BYTES) == 0);
    CHECK(pthread_create(&beside.thread, &attributes, run, (void *)tag) == 0);
    return beside;
}

/* What lies right above a thread's control block is moved with the rest of its mapping; where the thread
 * is gone its block's page may move with it, too. */
static void beside_end(struct beside *beside, size_t block_pages) {
    size_t more = beside->pages + 5;
    void *sum;
    CHECK(pthread_join(beside->thread, &sum) == 0);
    note((uint64_t)sum);
    /* Nobody knows where the stack ends of a thread that was there before whose control block musl has
     * elsewhere: more than the stack is left alone then, and is a mapping of its own in a child. */
    if (HAS_BLOCK_ON_STACK || beside->is_late)
        moved_in_child(beside->above, beside->pages, more, beside->tag);
    char *from = beside->above - block_pages * PAGE_BYTES;
    char *to = moved_up(from, block_pages + beside->pages, more);
    to += block_pages * PAGE_BYTES;
    wander(beside->tag, 500);
    pages_check(to, beside->pages, beside->tag);
    zeros_check(to + STACK_BYTES, more * PAGE_BYTES);
    CHECK(munmap(to, STACK_BYTES + more * PAGE_BYTES) == 0);
    CHECK(munmap(beside->stack, STACK_BYTES - PAGE_BYTES) == 0);
}

static void beside_memory(uint64_t tag) {
    for (int i = 0; i < 20; i++) {
        struct beside beside = beside_begin(body, tag + i);
        beside_end(&beside, i % 2 ? 0 : 1);
    }
}

static void *after_filling(void *argument) {
    while (sem_wait(&filled) != 0)
        CHECK(errno == EINTR);
    return body(argument);
}

static void early(uint64_t tag) {
    for (int i = 0; i < 20; i++) {
        pthread_t a, b;
        void *result;
        CHECK(pthread_create(&a, NULL, exits_early, (void *)(tag + i)) == 0);
        CHECK(pthread_create(&b, NULL, waits_for_ever, NULL) == 0);
        wander(tag + i, 100);
        CHECK(pthread_cancel(b) == 0);
        CHECK(pthread_join(a, &result) == 0 && result == (void *)(tag + i));
        CHECK(pthread_join(b, &result) == 0 && result == PTHREAD_CANCELED);
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    CHECK(pthread_key_create(&key, destructor) == 0);
    /* This one is there when its process is taken over. */
    sem_init(&filled, 0, 0);
    struct beside beside = beside_begin(after_filling, tag + 50000);
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    sem_post(&filled);
    beside_end(&beside, 0);
    joined(tag);
    detached(tag + 10000);
    on_own_stacks(tag + 20000);
    beside_memory(tag + 40000);
    early(tag + 30000);
    pages_check(big, BIG_PAGES, 0);
    return victim_end();
}
