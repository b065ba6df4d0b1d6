/*
 * Pages that come back from the store, are only read, and leave again; and all
 * ways in which such a page may change before it leaves: written by the program,
 * by another thread while it leaves, by the kernel for a call, by a signal's
 * frame, by another process; given back, moved, protected, forked.
 */
#include "victim.h"
#include <sys/uio.h>

/* Does not shrink, so that it goes to the store. */
#define AREA_PAGES (32 * MIB_PAGES)
#define ROUNDS 200
#define THREADS 3
#define STEPS 4000

static char *area;
static uint64_t tags[AREA_PAGES];
static struct random chance;
static volatile uintptr_t signalled;
/* Pages that are not what their tags say at the moment. */
static size_t changed_from, changed_end;

static uint64_t noise(uint64_t tag, unsigned index) {
    return mix(tag * PAGE_WORDS + index);
}

static uint64_t *page_at(size_t page) {
    return (uint64_t *)(area + page * PAGE_BYTES);
}

static void fill(size_t page, uint64_t tag) {
    tags[page] = tag;
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        page_at(page)[i] = noise(tag, i);
}

/* Reads all of a page: it is as it was, and comes back without being written. */
static void check(size_t page) {
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        CHECK(page_at(page)[i] == noise(tags[page], i));
}

static void check_all(void) {
    for (size_t page = 0; page < AREA_PAGES; page++)
        check(page);
}

static void changes(size_t page, size_t pages) {
    changed_from = page;
    changed_end = page + pages;
}

/* Reads here and there, so that pages leave and come. */
static void wander(size_t pages) {
    for (size_t i = 0; i < pages; i++) {
        size_t page = below(&chance, AREA_PAGES);
        if (page < changed_from || page >= changed_end)
            check(page);
    }
}

/* A page that was just read. */
static size_t read_one(void) {
    size_t page = below(&chance, AREA_PAGES - 4);
    for (size_t i = 0; i < 4; i++)
        check(page + i);
    changes(page, 4);
    return page;
}

static void by_the_program(void) {
    size_t page = read_one();
    uint64_t word = draw(&chance);
    page_at(page)[7] = word;
    wander(10);
    CHECK(page_at(page)[7] == word && page_at(page)[8] == noise(tags[page], 8));
    fill(page, word);
    check(page + 1);
    __atomic_fetch_add(page_at(page) + 9, 5, __ATOMIC_SEQ_CST);
    CHECK(page_at(page)[9] == noise(tags[page], 9) + 5);
    fill(page, word);
}

static void by_a_call(void) {
    static int ends[2];
    if (ends[0] == 0)
        CHECK(pipe(ends) == 0);
    /* Read by one call, written by another: bytes over the border of two pages. */
    size_t to = read_one(), from = read_one();
    changes(to, 4);
    char *source = area + from * PAGE_BYTES + 100, *target = area + to * PAGE_BYTES + 3000;
    size_t bytes = 2 * PAGE_BYTES;
    char *expected = malloc(bytes);
    memcpy(expected, source, bytes);
    CHECK(write(ends[1], source, bytes) == (ssize_t)bytes);
    for (size_t i = 0; i < 4; i++)
        check(to + i);
    CHECK(read(ends[0], target, bytes) == (ssize_t)bytes);
    wander(5);
    CHECK(memcmp(target, expected, bytes) == 0);
    free(expected);
    for (size_t i = 0; i < 4; i++)
        fill(to + i, draw(&chance));
    /* A small answer in the midst of a page, and none of libc's wrappers. */
    size_t page = read_one();
    struct timespec *now = (struct timespec *)(page_at(page) + 20);
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, now) == 0);
    CHECK(now->tv_nsec >= 0 && now->tv_nsec < 1000000000);
    CHECK(page_at(page)[19] == noise(tags[page], 19));
    fill(page, draw(&chance));
}

static void by_itself(void) {
    size_t page = read_one();
    uint64_t words[4] = {draw(&chance), 1, 2, 3};
    struct iovec local = {words, sizeof words}, remote = {page_at(page) + 30, sizeof words};
    CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == sizeof words);
    CHECK(page_at(page)[30] == words[0] && page_at(page)[33] == 3);
    fill(page, words[0]);
}

static void given_back(void) {
    size_t page = read_one();
    CHECK(madvise(page_at(page), 2 * PAGE_BYTES, MADV_DONTNEED) == 0);
    zeros_check(page_at(page), 2 * PAGE_BYTES);
    fill(page, draw(&chance));
    fill(page + 1, draw(&chance));
}

static void moved(void) {
    size_t page = read_one();
    char *there = mmap(NULL, 4 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(there != MAP_FAILED);
    char *here = area + page * PAGE_BYTES;
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    CHECK(mremap(here, 4 * PAGE_BYTES, 4 * PAGE_BYTES, flags, there) == there);
    uint64_t *words = (uint64_t *)there;
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        CHECK(words[i] == noise(tags[page], i));
    words[11] = 11;
    CHECK(mremap(there, 4 * PAGE_BYTES, 4 * PAGE_BYTES, flags, here) == here);
    CHECK(page_at(page)[11] == 11 && page_at(page)[12] == noise(tags[page], 12));
    page_at(page)[11] = noise(tags[page], 11);
    wander(5);
    for (size_t i = 0; i < 4; i++)
        check(page + i);
}

static void protected(void) {
    size_t page = read_one();
    char *here = area + page * PAGE_BYTES;
    CHECK(mprotect(here, 4 * PAGE_BYTES, PROT_READ) == 0);
    check(page + 1);
    wander(10);
    check(page + 2);
    CHECK(mprotect(here, 4 * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    page_at(page + 2)[40] = 40;
    wander(10);
    CHECK(page_at(page + 2)[40] == 40);
    fill(page + 2, draw(&chance));
    for (size_t i = 0; i < 4; i++)
        check(page + i);
}

static void on_signal(int signal) {
    volatile char local[600];
    for (size_t i = 0; i < sizeof local; i++)
        local[i] = signal;
    signalled = (uintptr_t)local;
}

/* The kernel's frame and the handler's own lie in pages that were only read. */
static void by_a_signal(void) {
    size_t pages = 16, page = below(&chance, AREA_PAGES - pages);
    for (size_t i = 0; i < pages; i++)
        check(page + i);
    stack_t stack = {.ss_sp = page_at(page), .ss_size = pages * PAGE_BYTES}, before;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaltstack(&stack, &before) == 0);
    signalled = 0;
    CHECK(raise(SIGUSR1) == 0);
    CHECK(signalled - (uintptr_t)page_at(page) < pages * PAGE_BYTES);
    CHECK(sigaltstack(&before, NULL) == 0);
    for (size_t i = 0; i < pages; i++)
        fill(page + i, draw(&chance));
}

/* Parent and child read the same pages, and each writes its own copy. */
static void forked(void) {
    int parents[2];
    CHECK(pipe(parents) == 0);
    size_t page = read_one();
    pid_t pid = fork();
    CHECK(pid >= 0);
    uint64_t tag = pid == 0 ? 71 : 72;
    page_at(page)[50] = tag;
    for (int i = 0; i < 20; i++) {
        size_t other = below(&chance, AREA_PAGES);
        if (other >= changed_from && other < changed_end)
            continue;
        check(other);
        if (i % 4 == 0)
            fill(other, tag + i);
    }
    wander(100);
    CHECK(page_at(page)[50] == tag && page_at(page)[51] == noise(tags[page], 51));
    fill(page, tag);
    changes(0, 0);
    if (pid == 0) {
        /* The parent's pages, which it has only read, from here. */
        check_all();
        struct iovec local = {&tag, 8}, remote;
        CHECK(read(parents[0], &remote, sizeof remote) == sizeof remote);
        CHECK(process_vm_writev(getppid(), &local, 1, &remote, 1, 0) == 8);
        _exit(0);
    }
    size_t shown = read_one();
    struct iovec remote = {page_at(shown) + 60, 8};
    CHECK(write(parents[1], &remote, sizeof remote) == sizeof remote);
    int status = wait_for(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(page_at(shown)[60] == 71 && page_at(shown)[61] == noise(tags[shown], 61));
    fill(shown, draw(&chance));
    CHECK(close(parents[0]) == 0 && close(parents[1]) == 0);
}

/* Each thread counts in a word of its own of pages that all read. */
static void *count(void *argument) {
    uint64_t self = (uint64_t)argument;
    struct random random = {mix(self + 5)};
    for (int i = 0; i < STEPS; i++) {
        size_t page = below(&random, 2) ? below(&random, AREA_PAGES) : below(&random, 200);
        volatile uint64_t *words = page_at(page);
        for (unsigned at = 100; at < 110; at++)
            CHECK(words[at] == noise(tags[page], at));
        if (below(&random, 8) == 0)
            words[self] = words[self] + 1;
    }
    return NULL;
}

static void by_threads(void) {
    for (size_t page = 0; page < AREA_PAGES; page++)
        memset(page_at(page), 0, THREADS * 8);
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, count, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    uint64_t counted = 0, expected = 0;
    for (size_t page = 0; page < AREA_PAGES; page++)
        for (int i = 0; i < THREADS; i++)
            counted += page_at(page)[i];
    for (uint64_t i = 0; i < THREADS; i++) {
        struct random random = {mix(i + 5)};
        for (int step = 0; step < STEPS; step++) {
            below(&random, below(&random, 2) ? AREA_PAGES : 200);
            expected += below(&random, 8) == 0;
        }
    }
    CHECK(counted == expected);
    note(counted);
}

int main(int argc, char **argv) {
    chance.state = mix(victim_start(argc, argv));
    static void (*const ways[])(void) = {by_the_program, by_a_call, by_itself,  given_back,
                                         moved,          protected, by_a_signal};
    area = pages_map(AREA_PAGES);
    for (size_t page = 0; page < AREA_PAGES; page++)
        fill(page, draw(&chance));
    settle();
    check_all();
    wander(AREA_PAGES / 2);
    for (int round = 0; round < ROUNDS; round++) {
        ways[below(&chance, COUNT(ways))]();
        changes(0, 0);
        wander(20);
        if (round % 80 == 40)
            forked();
    }
    check_all();
    by_threads();
    note(draw(&chance));
    return victim_end();
}
