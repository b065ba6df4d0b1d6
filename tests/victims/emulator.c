/*
 * Runs a program and serves its brk(2), and that of all that it starts, in the kernel's place, by ptrace(2),
 * as proot does: nobody gets any memory by it. Other calls are the kernel's. Its status is the program's.
 */
#include "victim.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#define BREAK 0x7000000000
#define TRACEES_MAX 64
#define OPTIONS                                                                                       \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |            \
     PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC)

static pid_t asking[TRACEES_MAX];

/* At the entry the call is made one that there is not; at the exit it has succeeded. */
static void serve_break(pid_t tracee) {
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, tracee, NULL, &registers) == 0);
    size_t at = 0, free = 0;
    while (at < TRACEES_MAX && asking[at] != tracee)
        at++;
    if (at < TRACEES_MAX) {
        asking[at] = 0;
        registers.rax = BREAK;
    } else if ((long)registers.rax == -ENOSYS && registers.orig_rax == SYS_brk) {
        while (asking[free] != 0)
            CHECK(++free < TRACEES_MAX);
        asking[free] = tracee;
        registers.orig_rax = -1;
    }
    CHECK(ptrace(PTRACE_SETREGS, tracee, NULL, &registers) == 0);
}

/* The signal that a tracee which has stopped gets. */
static int serve_stop(pid_t tracee, int status) {
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
        serve_break(tracee);
        return 0;
    }
    /* Events of what it starts, which begins with a stop. */
    return signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    pid_t first = fork();
    if (first == 0) {
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        raise(SIGSTOP);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    int status;
    CHECK(waitpid(first, &status, 0) == first && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, first, NULL, OPTIONS) == 0);
    CHECK(ptrace(PTRACE_SYSCALL, first, NULL, 0) == 0);
    for (;;) {
        pid_t tracee = waitpid(-1, &status, __WALL);
        CHECK(tracee > 0);
        if (WIFSTOPPED(status))
            ptrace(PTRACE_SYSCALL, tracee, NULL, serve_stop(tracee, status));
        else if (tracee == first)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}
