/* A daemon: two forks and a new session, every descriptor closed, its parent long gone. */
#include "victim.h"
#include <sys/stat.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;

static void serve(int result_fd) {
    CHECK(setsid() > 0);
    if (fork() != 0)
        _exit(0);
    umask(0);
    CHECK(dup2(result_fd, 3) == 3);
    CHECK(close_range(4, ~0u, 0) == 0);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        CHECK(dup2(null, fd) == fd);
    CHECK(chdir("/") == 0);
    alarm(60);
    pages_check(big, BIG_PAGES, 0);
    for (uint64_t tag = 1; tag < 4; tag++) {
        pages_fill(big, BIG_PAGES, tag);
        pages_check(big, BIG_PAGES, tag);
    }
    CHECK(write(3, "the daemon is right", 19) == 19);
    _exit(0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    int fds[2];
    CHECK(pipe(fds) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        serve(fds[1]);
    CHECK_CHILD(child);
    close(fds[1]);
    /* The daemon uses the budget alone while this process only waits. */
    char text[32];
    CHECK(read(fds[0], text, 32) == 19 && memcmp(text, "the daemon is right", 19) == 0);
    note_bytes(text, 19);
    CHECK(read(fds[0], text, 32) == 0);
    pages_check(big, BIG_PAGES, 0);
    return victim_end();
}
