/* The program's own SIGBUS handler: what is real reaches it, what the pager uses does not. */
#include "victim.h"
#include <setjmp.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define FILE_PAGES 16

static char *big, *mapped;
static sigjmp_buf escape;
static volatile int caught, code;
static void *volatile where;

static void wander(struct random *random, int steps) {
    for (int i = 0; i < steps; i++) {
        size_t page = below(random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
    }
}

static void note_signal(int signal, siginfo_t *information) {
    static struct random random = {3};
    CHECK(signal == SIGBUS);
    caught++;
    where = information->si_addr;
    code = information->si_code;
    wander(&random, 50);
}

static void jumps(int signal, siginfo_t *information, void *context) {
    (void)context;
    note_signal(signal, information);
    siglongjmp(escape, 1);
}

static void stays(int signal, siginfo_t *information, void *context) {
    (void)context;
    note_signal(signal, information);
}

static void handle(void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO}, found;
    CHECK(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGBUS, NULL, &found) == 0);
    CHECK(found.sa_sigaction == handler && (found.sa_flags & ~0x04000000) == action.sa_flags);
}

static void behind_the_end(struct random *random) {
    for (volatile int i = 1; i < FILE_PAGES; i++) {
        wander(random, 200);
        char *at = mapped + i * PAGE_BYTES + i * 16;
        caught = 0;
        if (sigsetjmp(escape, 1) == 0)
            CHECK(*(volatile char *)at == 'x');
        CHECK(caught == 1 && where == at && code == BUS_ADRERR);
    }
}

static void sent(struct random *random) {
    sigset_t set, old, pending;
    handle(stays, 0);
    caught = 0;
    CHECK(raise(SIGBUS) == 0 && caught == 1 && code == SI_TKILL);
    CHECK(kill(getpid(), SIGBUS) == 0 && caught == 2 && code == SI_USER);
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    wander(random, 3000);
    CHECK(raise(SIGBUS) == 0 && caught == 2);
    wander(random, 3000);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGBUS) == 1);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && caught == 3);
    CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR && raise(SIGBUS) == 0 && caught == 3);
    wander(random, 3000);
}

static long send_as(siginfo_t *information) {
    return syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, information);
}

static void sends_on(int signal, siginfo_t *information, void *context) {
    (void)context;
    note_signal(signal, information);
    if (caught == 1)
        CHECK(send_as(information) == 0 && caught == 1);
    siglongjmp(escape, 1);
}

/* What the program sends itself of a fault's signal is no fault. */
static void sent_on(struct random *random) {
    siginfo_t told = {.si_signo = SIGBUS, .si_code = BUS_ADRERR}, found;
    sigset_t set, old;
    handle(sends_on, 0);
    for (int i = 1; i < FILE_PAGES; i++) {
        char *at = mapped + i * PAGE_BYTES + i;
        volatile int turns = 0;
        caught = 0;
        /* The second one comes when the jump unblocks it. */
        sigsetjmp(escape, 1);
        if (turns++ == 0)
            CHECK(*(volatile char *)at == 'x');
        CHECK(caught == 2 && turns == 2 && where == at && code == BUS_ADRERR);
    }
    handle(stays, 0);
    for (int i = 0; i < 100; i++) {
        caught = 0;
        told.si_addr = big + below(random, BIG_PAGES) * PAGE_BYTES;
        CHECK(send_as(&told) == 0 && caught == 1 && where == told.si_addr);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0 && send_as(&told) == 0);
    wander(random, 3000);
    CHECK(sigtimedwait(&set, &found, &(struct timespec){0, 0}) == SIGBUS && caught == 1);
    CHECK(found.si_code == BUS_ADRERR && found.si_addr == told.si_addr);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR && send_as(&told) == 0 && caught == 1);
    wander(random, 3000);
}

/* One that is sent ends a call that waits, or has it go on, as the handler's flags say. */
static void interrupts(void) {
    int fds[2];
    char byte;
    CHECK(pipe(fds) == 0);
    for (int is_restarted = 0; is_restarted < 2; is_restarted++) {
        handle(stays, is_restarted ? SA_RESTART : 0);
        caught = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            usleep(50000);
            CHECK(kill(getppid(), SIGBUS) == 0);
            usleep(50000);
            _exit(write(fds[1], "!", 1) != 1);
        }
        if (!is_restarted)
            CHECK(read(fds[0], &byte, 1) == -1 && errno == EINTR && caught == 1);
        CHECK(read(fds[0], &byte, 1) == 1 && byte == '!' && caught == 1);
        CHECK_CHILD(child);
    }
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

/* With the default action, or with the signal blocked, a real one is the end. */
static void ends(struct random *random) {
    for (int blocked = 0; blocked < 2; blocked++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(signal(SIGBUS, blocked ? SIG_IGN : SIG_DFL) != SIG_ERR);
            wander(random, 500);
            note(*(volatile char *)(mapped + 2 * PAGE_BYTES));
            _exit(0);
        }
        int status = wait_for(child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    }
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, FILE_PAGES * PAGE_BYTES) == 0);
    mapped = mmap(NULL, FILE_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    memset(mapped, 'x', FILE_PAGES * PAGE_BYTES);
    CHECK(ftruncate(fd, PAGE_BYTES) == 0);
    handle(jumps, 0);
    behind_the_end(&random);
    /* The handler on a stack of its own, which is absent by then. */
    char *stack = pages_map(32);
    memset(stack, 1, 32 * PAGE_BYTES);
    CHECK(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = 32 * PAGE_BYTES}, NULL) == 0);
    handle(jumps, SA_ONSTACK);
    behind_the_end(&random);
    interrupts();
    sent(&random);
    sent_on(&random);
    ends(&random);
    pages_check(big, BIG_PAGES, 0);
    note(caught);
    return victim_end();
}
