/* The program's own SIGSYS handler: kept, told back, run for a signal sent and for a seccomp trap.
 */
#include "victim.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;
static volatile int caught, code, number;

static void handler(int signal, siginfo_t *information, void *context) {
    static struct random random = {3};
    CHECK(signal == SIGSYS);
    caught++;
    code = information->si_code;
    number = information->si_syscall;
    for (int i = 0; i < 50; i++) {
        size_t page = below(&random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
    }
    if (code == 1 && information->si_call_addr) { /* SYS_SECCOMP */
        greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
        CHECK(registers[REG_RIP] == (greg_t)information->si_call_addr);
        registers[REG_RAX] = 4242;
    }
}

/* Traps getpgrp, which nothing else here calls. */
static void filter(void) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgrp, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(instructions), instructions};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, found;
    CHECK(sigaction(SIGSYS, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGSYS, &action, &found) == 0 && found.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGSYS, NULL, &found) == 0 && found.sa_sigaction == handler);
    CHECK(raise(SIGSYS) == 0 && caught == 1 && code == SI_TKILL);
    pages_check(big, BIG_PAGES, 0);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    CHECK(raise(SIGSYS) == 0 && caught == 1);
    pages_check(big, BIG_PAGES, 0);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && caught == 2);
    /* Sent as the kernel itself sends it: by a filter (1), or for a call that is dispatched (2). */
    for (int as = 1; as <= 2; as++) {
        siginfo_t told = {.si_signo = SIGSYS, .si_code = as};
        CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGSYS, &told) == 0);
        CHECK(caught == 1 + as);
        pages_check(big, BIG_PAGES, 0);
        CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0 && caught == 2 + as && code == as);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSYS, SIG_DFL);
        raise(SIGSYS);
        _exit(0);
    }
    CHECK(WTERMSIG(wait_for(child)) == SIGSYS);
    /* A call of 32-bit programs is none of ours by its number: `getpid` is `writev` to others. */
    int fds[2];
    CHECK(pipe2(fds, O_NONBLOCK) == 0);
    struct iovec vector = {big, 8};
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(20), "b"(0), "D"(fds[1]), "S"(&vector), "d"(1)
                     : "memory", "r8", "r9", "r10", "r11");
    CHECK(result == getpid() || result == -ENOSYS);
    char byte;
    CHECK(read(fds[0], &byte, 1) == -1 && errno == EAGAIN);
    filter();
    for (int i = 0; i < 20; i++) {
        CHECK(raw(SYS_getpgrp, 0, 0, 0, 0, 0, 0) == 4242 && code == 1 && number == SYS_getpgrp);
        pages_check(big + i * MIB_PAGES * PAGE_BYTES, MIB_PAGES, i * MIB_PAGES);
    }
    note(caught);
    return victim_end();
}
