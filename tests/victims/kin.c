/*
 * Parents and children that share pages since a fork: each writes, reads, drops
 * and moves the same pages in random order, has the kernel write and read them,
 * and presses them out of RAM, also while a thread waits in a read; each then has what it did itself, and nothing of
 * what the others did. Children have children, wait for them, and are killed.
 */
#include "victim.h"

#define SHARED_PAGES (6 * MIB_PAGES)
#define STEPS 1000
#define RUN_MAX 8
#define DEPTH_MAX 2

static char *pages;
/* What each page holds by now; 0 for zeros. */
static uint64_t *tags;
static int pipe_fds[2];

static char *at(size_t page) {
    return pages + page * PAGE_BYTES;
}

static void check(size_t page) {
    if (tags[page])
        page_check(at(page), tags[page]);
    else
        zeros_check(at(page), PAGE_BYTES);
}

/* The kernel writes a page, and reads one. */
static void through_pipe(size_t from, size_t to) {
    CHECK(write(pipe_fds[1], at(from), PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    CHECK(read(pipe_fds[0], at(to), PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    tags[to] = tags[from];
}

/* Some pages move away and back; the kernel may forget a protection on the way. */
static void move(size_t page, size_t count) {
    char *away = mmap(NULL, count * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(away != MAP_FAILED);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    CHECK(mremap(at(page), count * PAGE_BYTES, count * PAGE_BYTES, flags, away) == away);
    for (size_t i = 0; i < count; i++)
        if (tags[page + i])
            page_check(away + i * PAGE_BYTES, tags[page + i]);
    CHECK(mremap(away, count * PAGE_BYTES, count * PAGE_BYTES, flags, at(page)) == at(page));
}

static void step(struct random *random) {
    size_t page = below(random, SHARED_PAGES - RUN_MAX), count = 1 + below(random, RUN_MAX);
    unsigned what = below(random, 100);
    for (size_t i = page; i < page + count; i++) {
        if (what < 40)
            page_fill(at(i), tags[i] = draw(random) | 1);
        else if (what < 70)
            check(i);
        else if (what < 80)
            through_pipe(below(random, SHARED_PAGES), i);
    }
    if (what >= 80 && what < 88) {
        CHECK(madvise(at(page), count * PAGE_BYTES, MADV_DONTNEED) == 0);
        memset(tags + page, 0, count * sizeof *tags);
    } else if (what >= 88 && what < 90) {
        move(page, count);
    } else if (what >= 90 && what < 95) {
        CHECK(mprotect(at(page), count * PAGE_BYTES, PROT_READ) == 0);
        for (size_t i = page; i < page + count; i++)
            check(i);
        CHECK(mprotect(at(page), count * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    } else if (what == 99) {
        press();
    }
}

static void live(struct random random, int depth) {
    pid_t children[DEPTH_MAX];
    int made = 0;
    CHECK(pipe(pipe_fds) == 0);
    for (int i = 0; i < STEPS; i++) {
        step(&random);
        if (made == DEPTH_MAX - depth || below(&random, STEPS / 4))
            continue;
        struct random theirs = {draw(&random)};
        pid_t child = children[made++] = fork();
        CHECK(child >= 0);
        if (child == 0) {
            live(theirs, depth + 1);
            _exit(0);
        }
    }
    /* One that is killed in the middle of something leaves nothing behind. */
    pid_t killed = fork();
    CHECK(killed >= 0);
    if (killed == 0) {
        for (;;)
            step(&random);
    }
    usleep(3000);
    CHECK(kill(killed, SIGKILL) == 0);
    wait_for(killed);
    for (size_t i = 0; i < SHARED_PAGES; i++)
        check(i);
    for (int i = 0; i < made; i++)
        CHECK_CHILD(children[i]);
    for (size_t i = 0; i < SHARED_PAGES; i++)
        check(i);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* Waits in the kernel for what will be written to a page that a fork shares meanwhile. */
static void *reader(void *argument) {
    CHECK(read(pipe_fds[0], argument, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    return NULL;
}

static void fork_during_read(uint64_t tag) {
    char *buffer = pages_map(16), source[PAGE_BYTES];
    page_fill(source, tag);
    CHECK(pipe(pipe_fds) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        page_fill(buffer, tag + 1);
        CHECK(pthread_create(&thread, NULL, reader, buffer) == 0);
        usleep(2000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            page_check(buffer, tag + 1);
            _exit(0);
        }
        CHECK_CHILD(child);
        CHECK(write(pipe_fds[1], source, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
        CHECK(pthread_join(thread, NULL) == 0);
        page_check(buffer, tag);
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(14);
    tags = malloc(SHARED_PAGES * sizeof *tags);
    CHECK(tags != NULL);
    pages = pages_map(SHARED_PAGES);
    for (size_t i = 0; i < SHARED_PAGES; i++)
        page_fill(at(i), tags[i] = mix(tag + i) | 1);
    fork_during_read(tag);
    live((struct random){tag}, 0);
    for (size_t i = 0; i < SHARED_PAGES; i++)
        note(tags[i]);
    return victim_end();
}
