/*
 * A tree of processes that share one budget: six children, each with a set of
 * its own and all with their parent's, working in turns of idleness and hurry,
 * so that the budget has to move between them.
 */
#include "victim.h"

#define CHILDREN 6
#define COMMON_PAGES (12 * MIB_PAGES)
#define OWN_PAGES (14 * MIB_PAGES)
#define TURNS 3

static char *common;

static void child_work(int self, uint64_t tag, int turn_fd, int done_fd) {
    char *own = pages_map(OWN_PAGES);
    for (int turn = 0; turn < TURNS; turn++) {
        char go;
        CHECK(read(turn_fd, &go, 1) == 1);
        if (turn > 0)
            pages_check(own, OWN_PAGES, tag + turn - 1);
        pages_fill(own, OWN_PAGES, tag + turn);
        pages_check(common, COMMON_PAGES, 0);
        for (size_t i = self; i < COMMON_PAGES; i += CHILDREN)
            page_fill(common + i * PAGE_BYTES, i);
        CHECK(write(done_fd, &go, 1) == 1);
    }
    pages_check(own, OWN_PAGES, tag + TURNS - 1);
}

/* What the parent holds of a child; each pipe has one reader and one writer, so an end is seen. */
struct child {
    pid_t pid;
    int turn_fd, done_fd;
};

static struct child child_start(int self, uint64_t tag) {
    int turn[2], done[2];
    CHECK(pipe2(turn, O_CLOEXEC) == 0 && pipe2(done, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(turn[1]);
        close(done[0]);
        child_work(self, tag + 1000000 * self, turn[0], done[1]);
        _exit(0);
    }
    close(turn[0]);
    close(done[1]);
    return (struct child){pid, turn[1], done[0]};
}

static void await(const struct child *child) {
    char gone;
    CHECK(read(child->done_fd, &gone, 1) == 1);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    common = pages_map(COMMON_PAGES);
    pages_fill(common, COMMON_PAGES, 0);
    struct child children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        children[i] = child_start(i, tag);
    for (int turn = 0; turn < TURNS; turn++) {
        /* One at a time in even turns, all at once in odd ones. */
        for (int i = 0; i < CHILDREN; i++) {
            CHECK(write(children[i].turn_fd, "g", 1) == 1);
            if (turn % 2 == 0)
                await(&children[i]);
        }
        for (int i = 0; turn % 2 == 1 && i < CHILDREN; i++)
            await(&children[i]);
        pages_check(common, COMMON_PAGES, 0);
    }
    for (int i = 0; i < CHILDREN; i++)
        CHECK_CHILD(children[i].pid);
    note(tag);
    return victim_end();
}
