/*
 * Programs that close, replace and limit their descriptors, and that limit
 * their address space: what the pager holds is not in their way, nor they in its.
 */
#include "victim.h"
#include <dirent.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;

static void turn_over(uint64_t *tag) {
    pages_check(big, BIG_PAGES, *tag);
    *tag = mix(*tag);
    pages_fill(big, BIG_PAGES, *tag);
}

/* The lowest free numbers are handed out in order, as without a pager. */
static void numbers(void) {
    for (int i = 3; i < 40; i++)
        CHECK(open("/dev/null", O_RDONLY) == i);
    CHECK(fcntl(0, F_DUPFD, 100) == 100);
    for (int i = 3; i < 40; i++)
        CHECK(close(i) == 0);
    CHECK(close(100) == 0);
}

static void close_each(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (rlim_t i = 3; i < limit.rlim_cur && i < 70000; i++)
        close(i);
}

/* After close_each: there is none, whichever way one asks. */
static void find_none(void) {
    struct rlimit limit;
    struct stat status;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (rlim_t i = 3; i < limit.rlim_cur && i < 70000; i++) {
        CHECK(fcntl((int)i, F_GETFD) == -1 && errno == EBADF);
        CHECK(fstat((int)i, &status) == -1 && errno == EBADF);
        CHECK(raw(SYS_fstat, (long)i, (long)&status, 0, 0, 0, 0) == -EBADF);
        CHECK(dup((int)i) == -1 && dup2((int)i, 3) == -1 && errno == EBADF);
    }
}

static void replace_each(void) {
    int fd = open("/dev/null", O_RDWR);
    CHECK(fd == 3);
    for (int i = 4; i < 1024; i++)
        CHECK(dup2(fd, i) == i);
    uint64_t word = 5;
    for (int i = 4; i < 1024; i++)
        CHECK(write(i, &word, 8) == 8);
    closefrom(3);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    CHECK(close_range(3, ~0u, 0) == 0);
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, tag);
    numbers();
    turn_over(&tag);
    CHECK(close_range(3, ~0u, 0) == 0);
    turn_over(&tag);
    closefrom(3);
    turn_over(&tag);
    close_each();
    find_none();
    turn_over(&tag);
    replace_each();
    turn_over(&tag);
    CHECK(close_range(3, ~0u, CLOSE_RANGE_UNSHARE) == 0);
    turn_over(&tag);
    CHECK(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0);

    struct rlimit limit = {16, 16};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 3; i < 16; i++)
        CHECK(open("/dev/null", O_RDONLY) == i);
    CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
    turn_over(&tag);
    pid_t child = fork(); /* with every descriptor in use */
    CHECK(child >= 0);
    if (child == 0) {
        turn_over(&tag);
        turn_over(&tag);
        _exit(0);
    }
    CHECK_CHILD(child);
    turn_over(&tag);
    close_range(3, ~0u, 0);

    limit = (struct rlimit){.rlim_cur = 1ul << 30, .rlim_max = 1ul << 30};
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    turn_over(&tag);
    CHECK(mmap(NULL, 2ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          == MAP_FAILED);
    CHECK(errno == ENOMEM);
    turn_over(&tag);
    note(tag);
    return victim_end();
}
