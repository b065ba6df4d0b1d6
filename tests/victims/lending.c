/*
 * Threads go through absent memory, and are interrupted by a timer, while another one
 * makes children by vfork, which have the memory until they end or run something else:
 * before, meanwhile and after that no signal stays blocked, and none is lost.
 */
#include "victim.h"
#include <sys/time.h>

#define WALKERS 2
#define PAGES (32 * MIB_PAGES)
#define CHILDREN 200

static char *self;
static volatile int is_over;
static volatile sig_atomic_t ticks;
static char *memory;

static void on_tick(int signal) {
    (void)signal;
    ticks++;
}

static void none_is_blocked(void) {
    sigset_t set;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &set) == 0);
    for (int signal = 1; signal < 32; signal++)
        CHECK(!sigismember(&set, signal));
}

/* Page by page in an order of its own, until there are no more children. */
static void *walk(void *seed) {
    struct random random = {(uint64_t)seed};
    while (!is_over) {
        for (int i = 0; i < 64; i++) {
            uint64_t page = below(&random, PAGES);
            page_check(memory + page * PAGE_BYTES, page);
        }
        none_is_blocked();
    }
    return NULL;
}

/* What a child does that has its parent's memory: brings some of it in. */
static void borrow(int number) {
    for (int i = 0; i < 8; i++)
        page_check(memory + mix(number * 8 + i) % PAGES * PAGE_BYTES, mix(number * 8 + i) % PAGES);
    if (number % 2)
        execl(self, self, "child", NULL);
    _exit(number % 2 ? 90 : 7);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return 7;
    uint64_t tag = victim_start(argc, argv);
    memory = pages_map(PAGES);
    for (uint64_t page = 0; page < PAGES; page++)
        page_fill(memory + page * PAGE_BYTES, page);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval timer = {{0, 2000}, {0, 2000}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    pthread_t walkers[WALKERS];
    for (int i = 0; i < WALKERS; i++)
        CHECK(pthread_create(&walkers[i], NULL, walk, (void *)(uintptr_t)mix(tag + i)) == 0);
    for (int number = 0; number < CHILDREN; number++) {
        pid_t child = vfork();
        if (child == 0)
            borrow(number);
        CHECK(child > 0);
        CHECK(WEXITSTATUS(wait_for(child)) == 7);
        none_is_blocked();
    }
    is_over = 1;
    for (int i = 0; i < WALKERS; i++)
        CHECK(pthread_join(walkers[i], NULL) == 0);
    /* Alone again: faults, and the timer, go on. */
    int before = ticks;
    for (int i = 0; i < 1000 && ticks < before + 5; i++) {
        pages_check(memory, PAGES, 0);
        none_is_blocked();
    }
    CHECK(ticks >= before + 5);
    struct itimerval off = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    note(PAGES);
    return victim_end();
}
