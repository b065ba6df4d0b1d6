/*
 * fork: a child sees exactly its parent's memory and each goes its own way;
 * grandchildren; fork without libc; fifty short children, up to eight at once; fork from
 * one thread while others fault; a parent that ends before its child.
 */
#include "victim.h"

#define BIG_PAGES (32 * MIB_PAGES)
#define OWN_PAGES (4 * MIB_PAGES)

static char *big;

static void deeper(int depth, uint64_t tag, char *own) {
    pages_check(big, BIG_PAGES, 0);
    pages_check(own, OWN_PAGES, tag);
    if (depth == 0)
        return;
    pages_fill(own, OWN_PAGES, tag + depth);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        deeper(depth - 1, tag + depth, own);
        _exit(0);
    }
    pages_check(own, OWN_PAGES, tag + depth);
    CHECK_CHILD(child);
    pages_check(own, OWN_PAGES, tag + depth);
}

/* Parent and child write the same pages at the same time, and each keeps its own. */
static void diverge(uint64_t tag, char *own) {
    pages_fill(own, OWN_PAGES, tag);
    pid_t child = raw(SYS_fork, 0, 0, 0, 0, 0, 0);
    CHECK(child >= 0);
    uint64_t mine = child == 0 ? tag + 100000 : tag + 200000;
    for (size_t i = 0; i < OWN_PAGES; i += 2)
        page_fill(own + i * PAGE_BYTES, mine + i);
    pages_check(big, BIG_PAGES, 0);
    for (size_t i = 0; i < OWN_PAGES; i++)
        page_check(own + i * PAGE_BYTES, (i % 2 ? tag : mine) + i);
    if (child == 0)
        raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
    CHECK_CHILD(child);
}

#define SHORT 50
/* Each has tables of its own in the budget: how many live is not left to how busy the machine is. */
#define SHORT_AT_ONCE 8

static void end_short(pid_t child, int number) {
    CHECK(WEXITSTATUS(wait_for(child)) == number);
}

static void many_short(uint64_t tag) {
    pid_t children[SHORT];
    for (int i = 0; i < SHORT; i++) {
        if (i >= SHORT_AT_ONCE)
            end_short(children[i - SHORT_AT_ONCE], i - SHORT_AT_ONCE);
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            struct random random = {tag + i};
            for (int k = 0; k < 200; k++) {
                size_t page = below(&random, BIG_PAGES);
                page_check(big + page * PAGE_BYTES, page);
                page_fill(big + page * PAGE_BYTES, page);
            }
            _exit(i);
        }
    }
    for (int i = SHORT - SHORT_AT_ONCE; i < SHORT; i++)
        end_short(children[i], i);
}

static volatile int stop;

static void *faults(void *argument) {
    struct random random = {(uint64_t)argument};
    uint64_t count = 0;
    while (!stop) {
        size_t page = below(&random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
        page_fill(big + page * PAGE_BYTES, page);
        void *block = malloc(50000);
        memset(block, 1, 50000);
        free(block);
        count++;
    }
    return (void *)count;
}

static void *forks(void *argument) {
    for (int i = 0; i < 15; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* Another thread may have been in the middle of a page: each word is right or was just
             * so. */
            for (size_t page = (uint64_t)argument % 5; page < BIG_PAGES; page += 5)
                page_check(big + page * PAGE_BYTES, page);
            _exit(0);
        }
        CHECK_CHILD(child);
    }
    return NULL;
}

static void from_threads(uint64_t tag) {
    pthread_t faulting[2], forking[2];
    for (uint64_t i = 0; i < 2; i++) {
        CHECK(pthread_create(&faulting[i], NULL, faults, (void *)(tag + i)) == 0);
        CHECK(pthread_create(&forking[i], NULL, forks, (void *)(tag + i)) == 0);
    }
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(forking[i], NULL) == 0);
    stop = 1;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(faulting[i], NULL) == 0);
}

/* The child in the middle ends first; its child goes on with the memory of both. */
static void orphan(uint64_t tag, char *own) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    pages_fill(own, OWN_PAGES, tag);
    pid_t child = fork();
    if (child == 0) {
        pages_fill(own, OWN_PAGES / 2, tag + 1);
        if (fork() == 0) {
            close(fds[1]);
            char byte;
            CHECK(read(fds[0], &byte, 1) == 0); /* the write end is gone: so is the parent */
            pages_check(own, OWN_PAGES / 2, tag + 1);
            pages_check(own + OWN_PAGES / 2 * PAGE_BYTES, OWN_PAGES / 2, tag + OWN_PAGES / 2);
            pages_check(big, BIG_PAGES, 0);
            dprintf(1, "orphan is right\n");
        }
        _exit(0);
    }
    CHECK_CHILD(child);
    close(fds[1]);
    usleep(1000);
    pages_check(own, OWN_PAGES, tag);
    close(fds[0]);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    char *own = pages_map(OWN_PAGES);
    pages_fill(own, OWN_PAGES, tag);
    deeper(4, tag, own);
    diverge(tag + 1000000, own);
    many_short(tag);
    from_threads(tag);
    int done[2];
    CHECK(pipe(done) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(done[0]);
        orphan(tag + 2000000, own);
        _exit(0);
    }
    close(done[1]);
    CHECK_CHILD(child);
    char byte;
    CHECK(read(done[0], &byte, 1) == 0); /* until the orphan has ended too */
    pages_check(big, BIG_PAGES, 0);
    note(tag);
    return victim_end();
}
