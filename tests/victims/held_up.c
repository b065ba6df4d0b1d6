/*
 * A child that writes what it shares with its parent, while the parent, which has most to give, is
 * held up again and again, as on a machine that lends its processors to others: it answers late, and
 * the budget is to hold all the same.
 */
#include "victim.h"

#include <poll.h>

#define ROUNDS 3
#define HELD_UP_MICROSECONDS 40000
#define FREE_MILLISECONDS 10

/* Another process does it: a thread's calls may have to wait for what its own process waits for. It
 * ends once the other end of the pipe is closed, and only where nobody is held up. */
static pid_t hold_up(pid_t held_up, const int ends[2]) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) {
        CHECK(close(ends[0]) == 0);
        return child;
    }
    CHECK(close(ends[1]) == 0);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    while (poll(&end, 1, FREE_MILLISECONDS) <= 0) {
        if (kill(held_up, SIGSTOP) != 0)
            break;
        usleep(HELD_UP_MICROSECONDS);
        kill(held_up, SIGCONT);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t holder = hold_up(getpid(), ends);
    ballast_make(44);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            press();
            _exit(0);
        }
        CHECK_CHILD(child);
        press();
    }
    CHECK(close(ends[1]) == 0);
    CHECK_CHILD(holder);
    return victim_end();
}
