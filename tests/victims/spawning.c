/*
 * vfork and exec, posix_spawn, system and popen, with every argument, path and
 * environment string in absent memory; and programs that replace themselves.
 * A child that wants to be traced before it is a process of its own, as a debugger's
 * does, ends, whether it may or not.
 * Called with `echo` it is its own child; with `chain N` it executes itself N
 * times more, each time with another environment.
 */
#include "victim.h"
#include <spawn.h>
#include <sys/ptrace.h>

#define ARGUMENTS 200

static char *self;
static char **arguments_make(const char *first, uint64_t tag) {
    char **list = pages_map(16), *text = pages_map(ARGUMENTS * 2 + 16);
    list[0] = strcpy(text, self);
    list[1] = strcpy(text + PAGE_BYTES, first);
    for (int i = 2; i < ARGUMENTS; i++) {
        list[i] = text + i * 2 * PAGE_BYTES - 8;
        sprintf(list[i], "argument-%016lx", mix(tag + i));
    }
    list[ARGUMENTS] = NULL;
    return list;
}

static char **environment_make(uint64_t tag) {
    char **list = pages_map(16), *text = pages_map(64);
    for (int i = 0; i < 10; i++) {
        list[i] = text + i * 3 * PAGE_BYTES + PAGE_BYTES - 6;
        sprintf(list[i], "VICTIM_%d=%lx", i, mix(tag + i));
    }
    list[10] = NULL;
    return list;
}

/* The child's side: prints what it was given, digested. */
static int echo(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        note_bytes(argv[i], strlen(argv[i]));
    for (int i = 0; i < 10; i++) {
        char name[16];
        sprintf(name, "VICTIM_%d", i);
        if (getenv(name))
            note_bytes(getenv(name), strlen(getenv(name)));
    }
    char *own = pages_map(2 * MIB_PAGES);
    pages_fill(own, 2 * MIB_PAGES, digest);
    pages_check(own, 2 * MIB_PAGES, digest);
    printf("echo %016lx\n", digest);
    return 0;
}

static int chain(int left, uint64_t tag) {
    ballast_make(40);
    press();
    if (left == 0) {
        printf("end of the chain\n");
        return 0;
    }
    char **list = pages_map(16), *text = pages_map(64);
    list[0] = strcpy(text, self);
    list[1] = strcpy(text + 4 * PAGE_BYTES, "chain");
    list[2] = text + 8 * PAGE_BYTES;
    sprintf(list[2], "%d", left - 1);
    press();
    execve(list[0], list, left % 2 ? environment_make(tag) : NULL);
    CHECK(!"execve returned");
    return 1;
}

static void by_vfork(uint64_t tag) {
    for (int i = 0; i < 3; i++) {
        char **list = arguments_make("echo", tag + i), **environment = environment_make(tag + i);
        press();
        pid_t child = vfork();
        if (child == 0) {
            execve(self, list, environment);
            _exit(90);
        }
        CHECK(child > 0);
        CHECK_CHILD(child);
    }
    pid_t child = vfork();
    if (child == 0)
        _exit(17);
    CHECK(WEXITSTATUS(wait_for(child)) == 17);
    press();
    child = vfork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        getppid();
        _exit(18);
    }
    CHECK(WEXITSTATUS(wait_for(child)) == 18);
}

static void by_spawn(uint64_t tag) {
    posix_spawn_file_actions_t *actions = pages_map(16);
    posix_spawnattr_t *attributes = pages_map(16);
    pid_t *child = pages_map(16);
    posix_spawn_file_actions_init(actions);
    posix_spawn_file_actions_addopen(actions, 5, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(attributes);
    sigset_t set;
    sigfillset(&set);
    posix_spawnattr_setsigmask(attributes, &set);
    posix_spawnattr_setsigdefault(attributes, &set);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    for (int i = 0; i < 3; i++) {
        char **list = arguments_make("echo", tag + i), **environment = environment_make(tag + i);
        press();
        CHECK(posix_spawn(child, self, actions, attributes, list, environment) == 0);
        CHECK_CHILD(*child);
    }
    char *missing[] = {"no-such-program", NULL};
    CHECK(posix_spawnp(child, missing[0], NULL, NULL, missing, environ) == ENOENT);
}

static void by_shell(void) {
    press();
    char *command = pages_map(16);
    strcpy(command, "echo from the shell; exit 3");
    press();
    CHECK(WEXITSTATUS(system(command)) == 3);
    FILE *pipe = popen("cat", "w");
    CHECK(pipe && fputs("through a pipe\n", pipe) > 0);
    press();
    CHECK(pclose(pipe) == 0);
}

static void by_exec(uint64_t tag) {
    char count[8] = "4", *list[] = {self, "chain", count, NULL};
    press();
    pid_t child = fork();
    if (child == 0) {
        execve(self, list, environment_make(tag));
        _exit(90);
    }
    CHECK_CHILD(child);
}

/* exec from a thread that is not the first, while the first faults. */
static void *exec_in_thread(void *argument) {
    char **list = argument;
    execv(list[0], list);
    return NULL;
}

static void by_exec_in_a_thread(void) {
    char *list[] = {self, "chain", "0", NULL};
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, exec_in_thread, list) == 0);
        for (;;)
            press();
    }
    CHECK_CHILD(child);
}

/* As posix_spawn of newer libc's does: handlers are cleared by the kernel, or by the child where that refuses. */
static void spawn_clearing(void) {
    const uint64_t clear_handlers = 1ull << 32, vfork_flags = 0x4100;
    uint64_t arguments[11] = {clear_handlers | vfork_flags, 0, 0, 0, SIGCHLD};
    long child = raw(SYS_clone3, (long)arguments, sizeof arguments, 0, 0, 0, 0);
    if (child == -EINVAL || child == -ENOSYS)
        child = raw(SYS_vfork, 0, 0, 0, 0, 0, 0);
    if (child == 0) {
        raw(SYS_getppid, 0, 0, 0, 0, 0, 0);
        raw(SYS_exit_group, 3, 0, 0, 0, 0, 0);
    }
    int status = 0;
    CHECK(child > 0 && wait4(child, &status, 0, NULL) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1 && strcmp(argv[1], "echo") == 0)
        return echo(argc, argv);
    if (argc > 2 && strcmp(argv[1], "chain") == 0)
        return chain(atoi(argv[2]), 5);
    uint64_t tag = mix(victim_start(argc, argv));
    setvbuf(stdout, NULL, _IONBF, 0);
    ballast_make(40);
    by_vfork(tag);
    by_spawn(tag + 1000);
    by_shell();
    spawn_clearing();
    by_exec(tag);
    by_exec_in_a_thread();
    return victim_end();
}
