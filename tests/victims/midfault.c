/*
 * Signals that come while a thread serves a fault: real-time signals in order, each with its value, from a
 * timer and from another thread, SIGBUS, SIGSYS and SIGURG that are sent, handlers that fault themselves, that leave
 * by siglongjmp, and a thread's vector registers, flags and red zone, which nothing of it may change.
 */
#include "victim.h"
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/time.h>

#define PAGES (40 * MIB_PAGES)
#define ROUNDS 12000
#define SENT 4000
#define PATTERN 0x1122334455667788ull

static char *memory;
static uint64_t tag;
static volatile int next_value[2];
static volatile sig_atomic_t alarms, own[3], jumps;
static sigjmp_buf back;
static volatile sig_atomic_t may_jump;
static atomic_int ended;

static void on_queued(int signal, siginfo_t *info, void *context) {
    (void)context;
    int kind = signal - SIGRTMIN;
    CHECK(info->si_value.sival_int == next_value[kind]);
    if (next_value[kind] % 8 == 0) {
        uint64_t page = mix(tag + next_value[kind]) % PAGES;
        page_check(memory + page * PAGE_BYTES, tag + page);
    }
    next_value[kind]++;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    if (may_jump && alarms % 4 == 0) {
        may_jump = 0;
        jumps++;
        siglongjmp(back, 1);
    }
}

static void on_own(int signal) {
    own[signal == SIGBUS ? 0 : signal == SIGSYS ? 1 : 2]++;
}

static void *send_all(void *target) {
    static const int kinds[] = {SIGBUS, SIGSYS, SIGURG};
    pid_t tid = *(pid_t *)target;
    for (int i = 0; i < SENT; i++) {
        for (int kind = SIGRTMIN; kind < SIGRTMIN + 2; kind++) {
            siginfo_t info = {.si_code = SI_QUEUE, .si_signo = kind};
            info.si_value.sival_int = i;
            while (syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, kind, &info) != 0)
                CHECK(errno == EAGAIN && usleep(50) == 0);
        }
        if (i % 8 == 0)
            CHECK(syscall(SYS_tgkill, getpid(), tid, kinds[i / 8 % 3]) == 0);
        if (i % 4 == 0)
            usleep(30);
    }
    ended = 1;
    return NULL;
}

/* Reads a word in a way that shows what a fault leaves of the registers, the flags and what lies below the stack. */
static uint64_t read_guarded(volatile uint64_t *place) {
    uint64_t word, kept, below_stack, flags;
    __asm__ volatile("movq %[pattern], %%xmm0\n\t"
                     "punpcklqdq %%xmm0, %%xmm0\n\t"
                     "movdqa %%xmm0, %%xmm15\n\t"
                     "mov %[pattern], %%r8\n\tmov %[pattern], %%r9\n\tmov %[pattern], %%r10\n\t"
                     "mov %[pattern], %%r12\n\tmov %[pattern], %%r13\n\tmov %[pattern], %%r14\n\t"
                     "mov %[pattern], %%r15\n\t"
                     "mov %[pattern], -64(%%rsp)\n\t"
                     "stc\n\t"
                     "mov (%[place]), %[word]\n\t"
                     "setc %b[flags]\n\t"
                     "mov -64(%%rsp), %[below]\n\t"
                     "xor %[pattern], %%r8\n\txor %[pattern], %%r9\n\txor %[pattern], %%r10\n\t"
                     "xor %[pattern], %%r12\n\txor %[pattern], %%r13\n\txor %[pattern], %%r14\n\t"
                     "xor %[pattern], %%r15\n\t"
                     "or %%r9, %%r8\n\tor %%r10, %%r8\n\tor %%r12, %%r8\n\tor %%r13, %%r8\n\t"
                     "or %%r14, %%r8\n\tor %%r15, %%r8\n\t"
                     "pcmpeqb %%xmm15, %%xmm0\n\t"
                     "pmovmskb %%xmm0, %%eax\n\t"
                     "xor $0xffff, %%eax\n\t"
                     "or %%rax, %%r8\n\t"
                     "mov %%r8, %[kept]\n\t"
                     : [word] "=&c"(word), [kept] "=&S"(kept), [below] "=&d"(below_stack),
                       [flags] "=&b"(flags)
                     : [place] "D"(place), [pattern] "r"(PATTERN)
                     : "rax", "r8", "r9", "r10", "r12", "r13", "r14", "r15", "xmm0", "xmm15", "cc",
                       "memory");
    CHECK(kept == 0 && below_stack == PATTERN && (flags & 0xff) == 1);
    return word;
}

static void handle(int signal, struct sigaction action) {
    CHECK(sigaction(signal, &action, NULL) == 0);
}

int main(int argc, char **argv) {
    tag = victim_start(argc, argv);
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);

    /* A jump out of one that counts would lose its value. */
    struct sigaction counts = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigfillset(&counts.sa_mask);
    handle(SIGRTMIN, counts);
    handle(SIGRTMIN + 1, counts);
    handle(SIGALRM, (struct sigaction){.sa_handler = on_alarm});
    handle(SIGBUS, (struct sigaction){.sa_handler = on_own});
    handle(SIGSYS, (struct sigaction){.sa_handler = on_own});
    handle(SIGURG, (struct sigaction){.sa_handler = on_own});

    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pid_t self = gettid();
    pthread_t sender;
    CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
    CHECK(pthread_create(&sender, NULL, send_all, &self) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (volatile int round = 0; round < ROUNDS || !ended; round++) {
        sigsetjmp(back, 1);
        may_jump = 1;
        uint64_t page = mix(tag ^ round) % PAGES;
        unsigned index = round % PAGE_WORDS;
        uint64_t word = read_guarded((uint64_t *)(memory + page * PAGE_BYTES) + index);
        may_jump = 0;
        CHECK(word == page_word(tag + page, index));
        if (round < ROUNDS)
            note(word);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(next_value[0] == SENT && next_value[1] == SENT);
    CHECK(jumps > 0 && own[0] > 0 && own[1] > 0 && own[2] > 0);
    return victim_end();
}
