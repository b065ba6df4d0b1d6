/*
 * Threads that read and seldom write, side by side, pages that lie in the pool and in the store in turns:
 * of what leaves as a batch, of what lies between, and of what comes back between them meanwhile and is
 * taken for clean, no write is lost. One more thread has them wait: it forks, protects and gives back.
 */
#include "victim.h"

#define THREADS 3
#define PAGES (32 * MIB_PAGES)
#define STEPS 100000
#define WRITES_ONE_IN 8
#define NOISE_ONE_IN 16
#define DROPPED_PAGES 40

static uint64_t *words;
static uint64_t *dropped;
static int running = THREADS;

/* Some pages do not shrink and go to the store, each between many that stay in the pool: a batch is a
 * stretch without clean pages. */
static uint64_t content(size_t page, unsigned index) {
    int is_noise = page % NOISE_ONE_IN == 0;
    return is_noise ? mix(page * PAGE_WORDS + index) : page_word(page, index % 8);
}

/* The first words are counters, of which each is advanced by one thread alone. */
static void *body(void *argument) {
    uint64_t self = (uint64_t)argument;
    struct random random = {self + 31};
    for (int i = 0; i < STEPS; i++) {
        size_t page = below(&random, PAGES);
        volatile uint64_t *of_page = words + page * PAGE_WORDS;
        unsigned index = THREADS + below(&random, PAGE_WORDS - THREADS);
        CHECK(of_page[index] == content(page, index));
        if (i % WRITES_ONE_IN == 0)
            of_page[self] = of_page[self] + 1;
    }
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
    return NULL;
}

static uint64_t counted(uint64_t self) {
    uint64_t sum = 0;
    for (size_t page = 0; page < PAGES; page++)
        sum += words[page * PAGE_WORDS + self];
    return sum;
}

/* A child has no more than was counted afterwards, and no less than before. */
static void check_in_child(void) {
    uint64_t before = counted(0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        uint64_t at_fork = counted(0);
        CHECK(at_fork >= before && at_fork <= STEPS / WRITES_ONE_IN);
        _exit(0);
    }
    CHECK_CHILD(pid);
}

static void disturb(struct random *random) {
    char *start = (char *)(words + below(random, PAGES - DROPPED_PAGES) * PAGE_WORDS);
    CHECK(mprotect(start, DROPPED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    CHECK(mprotect(start, DROPPED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    for (unsigned i = 0; i < DROPPED_PAGES; i++)
        dropped[i * PAGE_WORDS] = draw(random);
    CHECK(madvise(dropped, DROPPED_PAGES * PAGE_BYTES, MADV_DONTNEED) == 0);
    zeros_check((char *)dropped, DROPPED_PAGES * PAGE_BYTES);
}

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    words = (uint64_t *)pages_map(PAGES);
    dropped = (uint64_t *)pages_map(DROPPED_PAGES);
    for (size_t page = 0; page < PAGES; page++)
        for (unsigned i = THREADS; i < PAGE_WORDS; i++)
            words[page * PAGE_WORDS + i] = content(page, i);
    settle();
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (unsigned turn = 0; __atomic_load_n(&running, __ATOMIC_RELAXED) > 0; turn++) {
        usleep(2000);
        disturb(&random);
        if (turn % 64 == 63)
            check_in_child();
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uint64_t self = 0; self < THREADS; self++)
        CHECK(counted(self) == STEPS / WRITES_ONE_IN);
    for (size_t page = 0; page < PAGES; page++)
        for (unsigned i = THREADS; i < PAGE_WORDS; i++)
            CHECK(words[page * PAGE_WORDS + i] == content(page, i));
    note(counted(0));
    return victim_end();
}
