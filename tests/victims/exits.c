/*
 * The ways in which a program ends, under pressure; the second argument names
 * one. What counts is the wait status, which must be the program's own.
 */
#include "victim.h"
#include <sys/resource.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;

static void *faults_for_ever(void *argument) {
    struct random random = {(uint64_t)argument};
    for (;;) {
        size_t page = below(&random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
    }
    return NULL;
}

static uint64_t recurse(uint64_t depth, volatile char *above) {
    volatile char frame[3000];
    frame[depth % 3000] = (char)depth + *above;
    return depth == UINT64_MAX ? 0 : recurse(depth + 1, frame) + frame[(depth + 1) % 3000];
}

static void overflow(void) {
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    char top = 0;
    setrlimit(RLIMIT_STACK, &limit);
    note(recurse(0, &top));
}

static void say_goodbye(void) {
    pages_check(big, BIG_PAGES, 0);
    printf("goodbye\n");
}

static void *exits_with_21(void *argument) {
    (void)argument;
    exit(21);
}

static void *outlives_main(void *argument) {
    usleep(50000);
    pages_check(big, BIG_PAGES, 0);
    /* With the first thread `/proc/self/maps` is empty. */
    char *to = pages_map(64);
    CHECK(mremap(big, 64 * PAGE_BYTES, 64 * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    CHECK(mremap(to, 64 * PAGE_BYTES, 64 * PAGE_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, big) == big);
    pages_check(big, BIG_PAGES, 0);
    printf("the last thread\n");
    return argument;
}

static void thread_start(void *(*body)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, (void *)1) == 0);
    CHECK(pthread_detach(thread) == 0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    const char *way = argc > 2 ? argv[2] : "return";
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    pages_check(big, BIG_PAGES, 0);
    printf("leaving by %s\n", way);
    fflush(stdout);
    atexit(say_goodbye);
    if (strcmp(way, "return") == 0)
        return 20;
    if (strcmp(way, "thread") == 0) {
        thread_start(faults_for_ever);
        thread_start(exits_with_21);
        faults_for_ever((void *)2);
    }
    if (strcmp(way, "main-thread") == 0) {
        thread_start(outlives_main);
        pthread_exit(NULL);
    }
    if (strcmp(way, "faulting") == 0) {
        thread_start(faults_for_ever);
        usleep(10000);
        exit(22);
    }
    if (strcmp(way, "_exit") == 0)
        _exit(23);
    if (strcmp(way, "exit_group") == 0)
        raw(SYS_exit_group, 24, 0, 0, 0, 0, 0);
    if (strcmp(way, "quick") == 0)
        quick_exit(25);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "null") == 0)
        *(volatile int *)address(0) = 1;
    if (strcmp(way, "protected") == 0) {
        CHECK(mprotect(big, PAGE_BYTES, PROT_NONE) == 0);
        note(*(volatile char *)big);
    }
    if (strcmp(way, "overflow") == 0)
        overflow();
    if (strcmp(way, "trap") == 0)
        __asm__ volatile("ud2");
    if (strcmp(way, "divide") == 0) {
        volatile int zero = 0, one = 1;
        one /= zero;
    }
    const struct {
        const char *name;
        int number;
    } signals[] = {{"SIGTERM", SIGTERM}, {"SIGKILL", SIGKILL},   {"SIGSYS", SIGSYS},
                   {"SIGBUS", SIGBUS},   {"SIGHUP", SIGHUP},     {"SIGPIPE", SIGPIPE},
                   {"SIGXCPU", SIGXCPU}, {"SIGRT", SIGRTMIN + 3}};
    for (size_t i = 0; i < COUNT(signals); i++)
        if (strcmp(way, signals[i].name) == 0)
            raise(signals[i].number);
    return 99;
}
