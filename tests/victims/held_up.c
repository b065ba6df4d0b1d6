/*
 * A child that writes what it shares with its parent, while the parent, which has most to give, is
 * held up again and again, as on a machine that lends its processors to others: it answers late, and
 * the budget is to hold all the same.
 */
#include "victim.h"

#define ROUNDS 3
#define HELD_UP_MICROSECONDS 40000
#define FREE_MICROSECONDS 10000

/* Another process does it: a thread's calls may have to wait for what its own process waits for. */
static pid_t hold_up(pid_t held_up) {
    pid_t child = fork();
    CHECK(child >= 0);
    while (child == 0) {
        if (kill(held_up, SIGSTOP) != 0)
            _exit(0);
        usleep(HELD_UP_MICROSECONDS);
        kill(held_up, SIGCONT);
        usleep(FREE_MICROSECONDS);
    }
    return child;
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    pid_t holder = hold_up(getpid());
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
    CHECK(kill(holder, SIGKILL) == 0);
    wait_for(holder);
    return victim_end();
}
