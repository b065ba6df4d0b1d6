/*
 * Begins programs to trace them, as debuggers do: by fork(2), then waiting for the end of a pipe that the program
 * closes, as lldb does; by vfork(2), as gdb does; after a program that there is not; and after a stop, as proot
 * does. Each is to stop for nothing but that it begins. One begins none: it only wants to know whether it is traced,
 * and has a child of its own.
 */
#include "victim.h"
#include <sys/personality.h>
#include <sys/ptrace.h>

#define STATUS 7
#define PAGES (40 * MIB_PAGES)

enum way { BY_PIPE, BY_VFORK, AFTER_FAILURE, AFTER_STOP, WITHOUT, WAYS };

static char *memory;
static uint64_t tag;

static void begin(enum way way, char **arguments) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != -1)
        _exit(90);
    if (way == WITHOUT) {
        pages_check(memory, PAGES, tag);
        sigset_t told;
        sigemptyset(&told);
        sigaddset(&told, SIGCHLD);
        /* It would stop for that. */
        sigprocmask(SIG_BLOCK, &told, NULL);
        pid_t child = fork();
        if (child == 0)
            execv("/proc/self/exe", arguments);
        int status;
        _exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 93);
    }
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
        CHECK(WSTOPSIG(status) == (way == AFTER_STOP ? SIGSTOP : SIGTRAP));
        go_on(child, &status);
    }
    while (way == AFTER_STOP && WIFSTOPPED(status))
        go_on(child, &status);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
}

int main(int argc, char **argv) {
    if (argc == 3)
        return STATUS;
    char *arguments[] = {argv[0], argv[1], "traced", NULL};
    tag = mix(victim_start(argc, argv));
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (enum way way = 0; way < WAYS; way++) {
        pages_check(memory, PAGES, tag);
        trace(way, arguments);
    }
    pages_check(memory, PAGES, tag);
    return victim_end();
}
