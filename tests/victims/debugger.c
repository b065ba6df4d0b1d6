/*
 * Begins programs to trace them, as debuggers do: by fork(2), then waiting for the end of a pipe that the program
 * closes, as lldb does; by vfork(2), as gdb does; after a program that there is not; and after a stop, as proot
 * does. Each is to stop for nothing but that it begins. Some begin none: one only wants to know whether it is traced,
 * and has a child of its own; others fault, with a handler and without, or meet a breakpoint, as in gdb's first try of
 * what the kernel does. One is traced as it is, by who passes no signal on.
 */
#include "victim.h"
#include <sys/personality.h>
#include <sys/ptrace.h>

#define STATUS 7
#define PAGES (40 * MIB_PAGES)
#define CALLS 50

enum way { BY_PIPE, BY_VFORK, AFTER_FAILURE, AFTER_STOP, WITHOUT, FAULTING, HANDLING, BREAKING, WAYS };

static char *memory;
static char *volatile nowhere;
static uint64_t tag;

static void no_stop_for_children(void) {
    sigset_t told;
    sigemptyset(&told);
    sigaddset(&told, SIGCHLD);
    sigprocmask(SIG_BLOCK, &told, NULL);
}

static void on_fault(int signal) {
    _exit(signal == SIGSEGV ? STATUS : 94);
}

/* Its own fault or breakpoint, after the fault of a child of its own, which nobody traces. */
static void cause(enum way way) {
    int status;
    if (way == HANDLING)
        signal(SIGSEGV, on_fault);
    no_stop_for_children();
    pid_t child = fork();
    if (child == 0)
        *nowhere = 1;
    if (waitpid(child, &status, 0) != child)
        _exit(95);
    if (way == HANDLING ? status != STATUS << 8 : !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
        _exit(96);
    if (way == BREAKING)
        __asm__ volatile("int3");
    else
        *nowhere = 1;
    _exit(STATUS);
}

static void begin(enum way way, char **arguments) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != -1)
        _exit(90);
    if (way == WITHOUT) {
        pages_check(memory, PAGES, tag);
        no_stop_for_children();
        pid_t child = fork();
        if (child == 0)
            execv("/proc/self/exe", arguments);
        int status;
        _exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 93);
    }
    if (way >= FAULTING)
        cause(way);
    if (way == AFTER_STOP)
        kill(getpid(), SIGSTOP);
    else if (way != BY_VFORK && personality(0xffffffff) == -1)
        _exit(91);
    if (way == AFTER_FAILURE)
        execv("/no/such/program", arguments);
    execv("/proc/self/exe", arguments);
    _exit(92);
}

static pid_t start(enum way way, char **arguments) {
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = way == BY_VFORK ? vfork() : fork();
    CHECK(child >= 0);
    if (child == 0)
        begin(way, arguments);
    close(ends[1]);
    char byte;
    if (way == BY_PIPE)
        CHECK(read(ends[0], &byte, 1) == 0);
    close(ends[0]);
    return child;
}

/* What a stopped one is to get: its own signals, of which it has some while it is managed. */
static void go_on(pid_t child, int *status) {
    int signal = WSTOPSIG(*status);
    CHECK(ptrace(PTRACE_CONT, child, NULL, signal == SIGTRAP || signal == SIGSTOP ? 0 : signal) == 0);
    CHECK(waitpid(child, status, 0) == child);
}

static void trace(enum way way, char **arguments) {
    pid_t child = start(way, arguments);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) == (way != WITHOUT));
    if (way != WITHOUT) {
        int stops[WAYS] = {[AFTER_STOP] = SIGSTOP, [FAULTING] = SIGSEGV, [HANDLING] = SIGSEGV};
        CHECK(WSTOPSIG(status) == (stops[way] ? stops[way] : SIGTRAP));
        go_on(child, &status);
    }
    while (way >= AFTER_STOP && WIFSTOPPED(status))
        go_on(child, &status);
    if (way == FAULTING) {
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        return;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
}

/* Makes its calls, each of which stops twice, and ends. */
static void trace_calls(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(97);
        kill(getpid(), SIGSTOP);
        for (int i = 0; i < CALLS; i++)
            raw(SYS_getppid, 0, 0, 0, 0, 0, 0);
        _exit(STATUS);
    }
    int status, stops = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    for (; WIFSTOPPED(status); stops++) {
        CHECK(stops < 3 * CALLS && ptrace(PTRACE_SYSCALL, child, NULL, 0) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(!WIFSTOPPED(status) || WSTOPSIG(status) == SIGTRAP);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == STATUS && stops > 2 * CALLS);
}

int main(int argc, char **argv) {
    if (argc == 3)
        return STATUS;
    char *arguments[] = {argv[0], argv[1], "traced", NULL};
    tag = mix(victim_start(argc, argv));
    trace_calls();
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (enum way way = 0; way < WAYS; way++) {
        pages_check(memory, PAGES, tag);
        trace(way, arguments);
    }
    pages_check(memory, PAGES, tag);
    return victim_end();
}
