/*
 * Threads that fault side by side, in order and at random, on the same pages and on others, while one
 * more forks, has the kernel read and write such pages, protects them and gives them back: what is on
 * its way in is neither missed nor lost. Then the same on one processor, where that one interrupts the
 * others wherever they are.
 */
#include "victim.h"

#include <sched.h>

#define THREADS 3
#define COUNTED_PAGES (16 * MIB_PAGES)
#define TAGGED_PAGES (16 * MIB_PAGES)
#define OWN_PAGES (2 * MIB_PAGES)
#define SWEEPS 2
#define STEPS 10000
#define PROTECTED_PAGES 24
#define TAG 0x666c69676874ull

static uint64_t *counted;
static char *tagged;
static int running = THREADS;
static uint64_t turn;

/* The tagged page of a turn: who asks for one of the last wants it at the same time as who has the turn. */
static char *page_of(uint64_t of_turn, size_t *number) {
    *number = mix(of_turn) % TAGGED_PAGES;
    return tagged + *number * PAGE_BYTES;
}

/* Every word is a counter that one thread alone advances; the others of the page are on the way, too. */
static void *body(void *argument) {
    uint64_t self = (uint64_t)argument;
    struct random random = {self + 5};
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < STEPS; i++) {
            size_t page = below(&random, COUNTED_PAGES);
            volatile uint64_t *word = counted + page * PAGE_WORDS + self;
            *word = *word + 1;
            volatile uint64_t *tags =
                (uint64_t *)page_of(__atomic_add_fetch(&turn, 1, __ATOMIC_RELAXED), &page);
            CHECK(tags[i % PAGE_WORDS] == page_word(TAG + page, i % PAGE_WORDS));
        }
        /* All threads at about the same place, in order: windows of one meet those of another. */
        pages_check(tagged, TAGGED_PAGES, TAG);
    }
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* A child has what was on its way when it was forked, wherever that was. */
static void check_in_child(void) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        for (size_t i = 0; i < COUNTED_PAGES; i++)
            CHECK(counted[i * PAGE_WORDS + 511] == mix(i));
        for (size_t i = 0; i < TAGGED_PAGES; i++)
            CHECK(*(uint64_t *)(tagged + i * PAGE_BYTES) == page_word(TAG + i, 0));
        _exit(0);
    }
    CHECK_CHILD(pid);
}

/* The kernel reads pages that the threads want just now, and writes others. */
static void copy_by_pipe(const int ends[2], char *own) {
    uint64_t last = __atomic_load_n(&turn, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < THREADS; i++) {
        size_t number;
        char *page = page_of(last - i, &number);
        CHECK(write(ends[1], page, PAGE_BYTES) == (long)PAGE_BYTES);
        CHECK(read(ends[0], own, PAGE_BYTES) == (long)PAGE_BYTES);
        page_check(own, TAG + number);
    }
}

static void protect(struct random *random) {
    char *start = tagged + below(random, TAGGED_PAGES - PROTECTED_PAGES) * PAGE_BYTES;
    CHECK(mprotect(start, PROTECTED_PAGES * PAGE_BYTES, PROT_READ) == 0);
    CHECK(mprotect(start, PROTECTED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
}

/* Memory of its own comes, is pressed out, moves and goes. */
static void change(struct random *random, char *own) {
    uint64_t tag = draw(random);
    pages_fill(own, OWN_PAGES, tag);
    size_t half = OWN_PAGES / 2 * PAGE_BYTES;
    CHECK(madvise(own, half, MADV_DONTNEED) == 0);
    zeros_check(own, half);
    char *moved = mremap(own + half, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, own);
    CHECK(moved == own);
    pages_check(own, OWN_PAGES / 2, tag + OWN_PAGES / 2);
    CHECK(mmap(own + half, half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0) == own + half);
}

static void disturb(struct random *random, const int ends[2], char *own) {
    check_in_child();
    for (int i = 0; i < 100; i++)
        copy_by_pipe(ends, own);
    protect(random);
    change(random, own);
}

/* The one who wakes goes first: the others are interrupted in the middle of things. */
static void interrupt(struct random *random, const int ends[2], char *own) {
    usleep(100);
    copy_by_pipe(ends, own);
    /* A fault of its own: none of the others is alone. */
    size_t page = below(random, TAGGED_PAGES);
    CHECK(*(volatile uint64_t *)(tagged + page * PAGE_BYTES) == page_word(TAG + page, 0));
}

static void stay_here(void) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    CHECK(sched_setaffinity(0, sizeof here, &here) == 0);
}

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    counted = (uint64_t *)pages_map(COUNTED_PAGES);
    tagged = pages_map(TAGGED_PAGES);
    char *own = pages_map(OWN_PAGES);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pages_fill(tagged, TAGGED_PAGES, TAG);
    for (size_t i = 0; i < COUNTED_PAGES; i++)
        counted[i * PAGE_WORDS + 511] = mix(i);
    settle();
    for (int is_alone = 0; is_alone < 2; is_alone++) {
        pthread_t threads[THREADS];
        running = THREADS;
        if (is_alone)
            stay_here();
        for (uint64_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
        while (__atomic_load_n(&running, __ATOMIC_RELAXED) > 0)
            (is_alone ? interrupt : disturb)(&random, ends, own);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
    uint64_t sums[THREADS] = {0};
    for (size_t i = 0; i < COUNTED_PAGES; i++) {
        CHECK(counted[i * PAGE_WORDS + 511] == mix(i));
        for (int k = 0; k < THREADS; k++)
            sums[k] += counted[i * PAGE_WORDS + k];
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(sums[k] == 2 * SWEEPS * STEPS);
    pages_check(tagged, TAGGED_PAGES, TAG);
    note(sums[0]);
    return victim_end();
}
