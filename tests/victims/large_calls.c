/*
 * Memory that is filled by one call of libc, of which it is the first thing that is large: a file is read as a
 * whole, or what is mapped is filled. By each way there is; by two threads at once, while a third computes; by
 * a child; and, where it says "fits", into memory that is there already.
 */
#include "victim.h"

#include <stdbool.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* 110 MiB, or as many as its third argument says. */
static size_t pages = 110 * MIB_PAGES;
#define BYTES (pages * PAGE_BYTES)
#define TAG 0x6c61726765ull
/* Of one write. */
#define PART_PAGES MIB_PAGES

/* Those of fortified programs (_FORTIFY_SOURCE), which headers declare only then. */
ssize_t __read_chk(int fd, void *to, size_t bytes, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t bytes, off_t from, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t bytes, off_t from, size_t room);
size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *file);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *file);
#pragma weak __read_chk
#pragma weak __pread_chk
#pragma weak __pread64_chk
#pragma weak __fread_chk
#pragma weak __fread_unlocked_chk

static FILE *source;

static void make_source(void) {
    static char part[PART_PAGES * PAGE_BYTES];
    source = tmpfile();
    CHECK(source);
    for (size_t i = 0; i < pages; i += PART_PAGES) {
        for (size_t j = 0; j < PART_PAGES; j++)
            page_fill(part + j * PAGE_BYTES, TAG + i + j);
        CHECK(write(fileno(source), part, sizeof part) == sizeof part);
    }
    CHECK(lseek(fileno(source), 0, SEEK_SET) == 0);
}

/* Fills new memory with a part of the file, by the way that is named. */
static char *filled(const char *way, size_t bytes, size_t from) {
    char *to = malloc(bytes);
    int fd = fileno(source);
    ssize_t got = (ssize_t)bytes;
    CHECK(to);
#define WAY(name, call)                                                                            \
    if (strcmp(way, name) == 0)                                                                    \
        got = (ssize_t)(call)
    WAY("read", read(fd, to, bytes));
    WAY("pread", pread(fd, to, bytes, (off_t)from));
    WAY("fread", fread(to, 1, bytes, source));
    WAY("fread_unlocked", PAGE_BYTES * fread_unlocked(to, PAGE_BYTES, bytes / PAGE_BYTES, source));
#ifdef __GLIBC__
    WAY("pread64", pread64(fd, to, bytes, (off64_t)from));
    WAY("__read_chk", __read_chk(fd, to, bytes, bytes));
    WAY("__pread_chk", __pread_chk(fd, to, bytes, (off_t)from, bytes));
    WAY("__pread64_chk", __pread64_chk(fd, to, bytes, (off_t)from, bytes));
    WAY("__fread_chk", __fread_chk(to, bytes, 1, bytes, source));
    WAY("__fread_unlocked_chk", __fread_unlocked_chk(to, bytes, 1, bytes, source));
#endif
    CHECK(got == (ssize_t)bytes);
    return to;
}

/* Has the kernel fill what is mapped, and fills it itself then. */
static char *mapped(const char *way) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (strcmp(way, "mmap") == 0)
        flags |= MAP_POPULATE;
    char *to = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(to != MAP_FAILED);
    /* Not before Linux 5.14. */
    if (strcmp(way, "madvise") == 0)
        CHECK(madvise(to, BYTES, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
    zeros_check(to, BYTES);
    pages_fill(to, pages, TAG);
    return to;
}

static volatile bool is_over;

static void *compute(void *none) {
    while (!is_over)
        ;
    return none;
}

static void *fill_half(void *half) {
    size_t at = (size_t)half;
    return filled("pread", BYTES / 2, at * BYTES / 2);
}

static void by_threads(void) {
    pthread_t threads[2], busy;
    void *halves[2];
    CHECK(pthread_create(&busy, NULL, compute, NULL) == 0);
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, fill_half, (void *)i) == 0);
    for (size_t i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], &halves[i]) == 0);
    is_over = true;
    CHECK(pthread_join(busy, NULL) == 0);
    for (size_t i = 0; i < 2; i++)
        pages_check(halves[i], pages / 2, TAG + i * (pages / 2));
}

static void by_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_check(filled("read", BYTES, 0), pages, TAG);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* As much as is asked for, as a file gives it. */
static void of_a_device(const char *name) {
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0);
    for (int round = 0; round < 4; round++) {
        char *to = malloc(BYTES);
        CHECK(read(fd, to, BYTES) == (ssize_t)BYTES);
        zeros_check(to, BYTES);
        free(to);
    }
    CHECK(close(fd) == 0);
}

/* The same memory again and again, and less than is asked for. */
static void what_fits(void) {
    size_t part = BYTES / 8;
    char *to = malloc(BYTES);
    for (size_t at = 0; at < BYTES; at += part) {
        CHECK(read(fileno(source), to, part) == (ssize_t)part);
        pages_check(to, part / PAGE_BYTES, TAG + at / PAGE_BYTES);
    }
    CHECK(ftruncate(fileno(source), (off_t)part) == 0);
    CHECK(pread(fileno(source), to, BYTES, 0) == (ssize_t)part);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "few", 3) == 3);
    CHECK(read(ends[0], to, BYTES) == 3 && memcmp(to, "few", 3) == 0);
    CHECK(read(-1, to, BYTES) == -1 && errno == EBADF);
    CHECK(read(fileno(source), (void *)PAGE_BYTES, 0) == 0);
}

int main(int argc, char **argv) {
    victim_start(argc, argv);
    const char *way = argc > 2 ? argv[2] : "read";
    if (argc > 3)
        pages = strtoul(argv[3], NULL, 0) * MIB_PAGES;
    make_source();
    if (strcmp(way, "threads") == 0)
        by_threads();
    else if (strcmp(way, "child") == 0)
        by_a_child();
    else if (strcmp(way, "fits") == 0)
        what_fits();
    else if (way[0] == '/')
        of_a_device(way);
    else if (way[0] == 'm')
        pages_check(mapped(way), pages, TAG);
    else
        pages_check(filled(way, BYTES, 0), pages, TAG);
    return victim_end();
}
