/*
 * Groups of processes that are ended by one signal to all of them while they fork, where a fork takes long: nobody
 * is left. Where libc forks, which blocks all signals a moment before, one group may have been hit in that moment. What
 * is sent to the one that forks alone comes to no child.
 */
#include "victim.h"

#include <sys/prctl.h>

#define ROUNDS 10
#define LEFT_ROUNDS_MAX 1
#define CHILDREN_MAX 16
#define LEADER_PAGES (14 * MIB_PAGES)
#define CHILD_PAGES (2 * MIB_PAGES)
#define END_NAPS_MAX 3000
#define BALLAST_MIB 40

/* What the processes have in common. */
struct common {
    int has_begun, has_erred;
};

static pid_t leader;
static struct common *common;

static void on_user(int signal) {
    (void)signal;
    if (getpid() != leader)
        __atomic_store_n(&common->has_erred, 1, __ATOMIC_RELAXED);
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
    pid_t children[CHILDREN_MAX] = {0};
    __atomic_store_n(&common->has_begun, 1, __ATOMIC_RELAXED);
    for (size_t i = 0;; i++) {
        pid_t *child = &children[i % CHILDREN_MAX];
        if (*child != 0) {
            CHECK(kill(*child, SIGKILL) == 0);
            wait_for(*child);
        }
        *child = fork_as(is_raw);
        CHECK(*child >= 0);
        if (*child == 0) {
            pages_fill(childs, CHILD_PAGES, tag + i);
            for (;;)
                pause();
        }
    }
}

/* Waits for all of the group, each of which ends by `signal` or was ended before; gives whether somebody was left. */
static int is_somebody_left(pid_t group, int signal) {
    for (int naps = 0; naps < END_NAPS_MAX; naps++) {
        int status;
        pid_t ended = waitpid(-group, &status, WNOHANG);
        if (ended > 0)
            CHECK(WIFSIGNALED(status) &&
                  (WTERMSIG(status) == signal || WTERMSIG(status) == SIGKILL));
        else if (ended == 0)
            usleep(1000);
        else {
            CHECK(errno == ECHILD);
            return 0;
        }
    }
    CHECK(kill(-group, SIGKILL) == 0);
    while (waitpid(-group, NULL, 0) > 0)
        ;
    return 1;
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    struct random random = {seed};
    common = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(common != MAP_FAILED);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    int left_rounds = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int is_raw = round % 2;
        __atomic_store_n(&common->has_begun, 0, __ATOMIC_RELAXED);
        pid_t group = fork();
        CHECK(group >= 0);
        if (group == 0)
            lead(is_raw, mix(seed + round));
        CHECK(setpgid(group, group) == 0);
        int signal = round % 4 < 2 ? SIGINT : SIGTERM;
        while (!__atomic_load_n(&common->has_begun, __ATOMIC_RELAXED))
            usleep(1000);
        usleep(50000 + below(&random, 100000));
        for (uint64_t i = below(&random, 20); i > 0; i--) {
            CHECK(kill(group, SIGUSR1) == 0);
            usleep(5000);
        }
        CHECK(kill(-group, signal) == 0);
        int is_left = is_somebody_left(group, signal);
        CHECK(!is_left || !is_raw);
        left_rounds += is_left;
    }
    CHECK(left_rounds <= LEFT_ROUNDS_MAX);
    CHECK(!__atomic_load_n(&common->has_erred, __ATOMIC_RELAXED));
    ballast_make(BALLAST_MIB);
    press();
    return victim_end();
}
