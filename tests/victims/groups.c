/*
 * A group of processes that is ended by one signal to all of it while it forks, where a fork takes long: nobody
 * is left. What is sent to the one that forks alone comes to no child.
 */
#include "victim.h"

#include <sys/prctl.h>

#define ROUNDS 6
#define CHILDREN_MAX 40
#define LEADER_PAGES (14 * MIB_PAGES)
#define CHILD_PAGES (1 * MIB_PAGES)
#define END_NAPS_MAX 5000

static pid_t leader;
static int *has_erred;

static void on_user(int signal) {
    (void)signal;
    if (getpid() != leader)
        __atomic_store_n(has_erred, 1, __ATOMIC_RELAXED);
}

/* As libc's, which blocks all signals meanwhile, or without. */
static pid_t fork_as(int is_raw) {
    return is_raw ? (pid_t)raw(SYS_fork, 0, 0, 0, 0, 0, 0) : fork();
}

static void lead(int is_raw, uint64_t tag) {
    leader = getpid();
    CHECK(signal(SIGUSR1, on_user) != SIG_ERR);
    /* Who runs in a shell's background inherits that it is ignored. */
    CHECK(signal(SIGINT, SIG_DFL) != SIG_ERR);
    char *own = pages_map(LEADER_PAGES), *childs = pages_map(CHILD_PAGES);
    pages_fill(own, LEADER_PAGES, tag);
    for (int i = 0; i < CHILDREN_MAX; i++) {
        pid_t child = fork_as(is_raw);
        CHECK(child >= 0);
        if (child == 0) {
            pages_fill(childs, CHILD_PAGES, tag + i);
            for (;;)
                pause();
        }
    }
    for (;;)
        pause();
}

/* All of the group end soon, each by `signal`. */
static void expect_end(pid_t group, int signal) {
    for (int naps = 0;; naps++) {
        int status;
        pid_t ended = waitpid(-group, &status, WNOHANG);
        if (ended > 0)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signal);
        else if (ended < 0)
            break;
        else if (naps == END_NAPS_MAX) {
            kill(-group, SIGKILL);
            CHECK(!"somebody was left");
        } else
            usleep(1000);
    }
    CHECK(errno == ECHILD);
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    struct random random = {seed};
    has_erred = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(has_erred != MAP_FAILED);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t group = fork();
        CHECK(group >= 0);
        if (group == 0)
            lead(round % 2, mix(seed + round));
        CHECK(setpgid(group, group) == 0);
        int signal = round % 4 < 2 ? SIGINT : SIGTERM;
        usleep(100000 + below(&random, 200000));
        for (uint64_t i = below(&random, 20); i > 0; i--) {
            CHECK(kill(group, SIGUSR1) == 0);
            usleep(5000);
        }
        CHECK(kill(-group, signal) == 0);
        expect_end(group, signal);
    }
    CHECK(!__atomic_load_n(has_erred, __ATOMIC_RELAXED));
    return victim_end();
}
