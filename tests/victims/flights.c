/*
 * Threads that fault side by side, in order and at random, on the same pages and on others, while one
 * more forks, has the kernel read and write such pages, protects them and gives them back: what is on
 * its way in is neither missed nor lost.
 */
#include "victim.h"

#define THREADS 3
#define COUNTED_PAGES (16 * MIB_PAGES)
#define TAGGED_PAGES (16 * MIB_PAGES)
#define OWN_PAGES (2 * MIB_PAGES)
#define SWEEPS 3
#define STEPS 12000
#define COPIED_PAGES 24
#define TAG 0x666c69676874ull

static uint64_t *counted;
static char *tagged;
static int running = THREADS;

/* Every word is a counter that one thread alone advances; the others of the page are on the way, too. */
static void *body(void *argument) {
    uint64_t self = (uint64_t)argument;
    struct random random = {self + 5};
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int i = 0; i < STEPS; i++) {
            size_t page = below(&random, COUNTED_PAGES);
            volatile uint64_t *word = counted + page * PAGE_WORDS + self;
            *word = *word + 1;
            page = below(&random, TAGGED_PAGES);
            CHECK(((uint64_t *)(tagged + page * PAGE_BYTES))[i % PAGE_WORDS] ==
                  page_word(TAG + page, i % PAGE_WORDS));
        }
        /* All threads at about the same place, in order: windows of one meet those of another. */
        pages_check(tagged, TAGGED_PAGES, TAG);
    }
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void check_in_child(struct random *random) {
    size_t first = below(random, TAGGED_PAGES - COPIED_PAGES);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        pages_check(tagged + first * PAGE_BYTES, COPIED_PAGES, TAG + first);
        _exit(0);
    }
    CHECK_CHILD(pid);
}

/* The kernel reads pages that the threads want, and writes others. */
static void copy_by_pipe(struct random *random, char *own) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    size_t first = below(random, TAGGED_PAGES - COPIED_PAGES);
    for (size_t i = 0; i < COPIED_PAGES; i++) {
        char *to = own + i * PAGE_BYTES;
        CHECK(write(ends[1], tagged + (first + i) * PAGE_BYTES, PAGE_BYTES) == (long)PAGE_BYTES);
        CHECK(read(ends[0], to, PAGE_BYTES) == (long)PAGE_BYTES);
        page_check(to, TAG + first + i);
    }
    close(ends[0]);
    close(ends[1]);
}

static void protect(struct random *random) {
    char *start = tagged + below(random, TAGGED_PAGES - COPIED_PAGES) * PAGE_BYTES;
    CHECK(mprotect(start, COPIED_PAGES * PAGE_BYTES, PROT_READ) == 0);
    CHECK(mprotect(start, COPIED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
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

int main(int argc, char **argv) {
    struct random random = {victim_start(argc, argv)};
    counted = (uint64_t *)pages_map(COUNTED_PAGES);
    tagged = pages_map(TAGGED_PAGES);
    char *own = pages_map(OWN_PAGES);
    pages_fill(tagged, TAGGED_PAGES, TAG);
    for (size_t i = 0; i < COUNTED_PAGES; i++)
        counted[i * PAGE_WORDS + 511] = mix(i);
    settle();
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    do {
        check_in_child(&random);
        copy_by_pipe(&random, own);
        protect(&random);
        change(&random, own);
        usleep(1000);
    } while (__atomic_load_n(&running, __ATOMIC_RELAXED) > 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    uint64_t sums[THREADS] = {0};
    for (size_t i = 0; i < COUNTED_PAGES; i++) {
        CHECK(counted[i * PAGE_WORDS + 511] == mix(i));
        for (int k = 0; k < THREADS; k++)
            sums[k] += counted[i * PAGE_WORDS + k];
    }
    for (int k = 0; k < THREADS; k++)
        CHECK(sums[k] == SWEEPS * STEPS);
    pages_check(tagged, TAGGED_PAGES, TAG);
    note(sums[0]);
    return victim_end();
}
