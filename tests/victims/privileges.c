/*
 * A server that locks itself in under pressure: it changes its root and gives up
 * its user where it may, forbids others to look into it, and goes on with
 * threads, forks and execs. Everything that the pager needs it must hold by then.
 * With the argument `early` it gives up its user before it needs any memory.
 */
#include "victim.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define NOBODY 65534

static char *big;

static void *checks(void *argument) {
    pages_check(big, BIG_PAGES, (uint64_t)argument);
    return NULL;
}

static void turn_over(uint64_t *tag) {
    pages_check(big, BIG_PAGES, *tag);
    *tag = mix(*tag);
    pages_fill(big, BIG_PAGES, *tag);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, checks, (void *)*tag) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(big, BIG_PAGES, *tag);
        pages_fill(big, BIG_PAGES, *tag + 1);
        pages_check(big, BIG_PAGES, *tag + 1);
        _exit(0);
    }
    CHECK_CHILD(child);
}

static void leave_user(void) {
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    if (argc > 2 && geteuid() == 0)
        leave_user();
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, tag);
    turn_over(&tag);
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    turn_over(&tag);
    if (geteuid() == 0) {
        CHECK(mkdir("jail", 0755) == 0 && chroot("jail") == 0 && chdir("/") == 0);
        turn_over(&tag);
        leave_user();
    }
    turn_over(&tag);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_CORE, &none) == 0);
    CHECK(clearenv() == 0);
    turn_over(&tag);
    note(tag);
    return victim_end();
}
