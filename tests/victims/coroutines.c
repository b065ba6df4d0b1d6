/* Coroutines whose stacks lie in managed memory, with signals arriving while they run there. */
#include "victim.h"
#include <sys/time.h>
#include <ucontext.h>

#define COROUTINES 300
#define STACK_BYTES (96ul << 10)
#define TURNS 40

static ucontext_t back, contexts[COROUTINES];
static char *stacks[COROUTINES];
static uint64_t sums[COROUTINES];
static volatile int alarms;

static void on_alarm(int signal, siginfo_t *information, void *context) {
    volatile char frame[6000];
    (void)signal;
    (void)information;
    (void)context;
    for (size_t i = 0; i < sizeof frame; i += 64)
        frame[i] = (char)i;
    alarms++;
}

static uint64_t descend(int self, int depth, uint64_t tag) {
    char frame[3 * PAGE_BYTES];
    char *aligned = (char *)(((uintptr_t)frame + PAGE_BYTES - 1) & -PAGE_BYTES);
    pages_fill(aligned, 2, tag + depth);
    if (depth == 0)
        for (int turn = 0; turn < TURNS; turn++) {
            CHECK(swapcontext(&contexts[self], &back) == 0);
            pages_check(aligned, 2, tag);
            tag = mix(tag + turn);
            pages_fill(aligned, 2, tag);
            /* The kernel reads and writes this stack too. */
            struct timespec now;
            CHECK(raw(SYS_clock_gettime, CLOCK_REALTIME, (long)&now, 0, 0, 0, 0) == 0);
        }
    uint64_t sum = depth ? descend(self, depth - 1, tag) : tag;
    if (depth)
        pages_check(aligned, 2, tag + depth);
    return mix(sum + depth);
}

static void coroutine(int self) {
    sums[self] = descend(self, 5, 100000 * (uint64_t)self);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    for (int i = 0; i < COROUTINES; i++) {
        stacks[i] = malloc(STACK_BYTES);
        memset(stacks[i], i, STACK_BYTES);
        CHECK(getcontext(&contexts[i]) == 0);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = &back;
        makecontext(&contexts[i], (void (*)(void))(void *)coroutine, 1, i);
    }
    struct itimerval fast = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &fast, NULL) == 0);
    for (int turn = 0; turn <= TURNS; turn++)
        for (int i = 0; i < COROUTINES; i++) {
            if (i % 10 == 0)
                raise(SIGALRM);
            CHECK(swapcontext(&back, &contexts[i]) == 0);
        }
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    for (int i = 0; i < COROUTINES; i++) {
        note(sums[i]);
        free(stacks[i]);
    }
    CHECK(alarms > COROUTINES / 10);
    return victim_end();
}
