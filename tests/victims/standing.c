/*
 * A library that stands before libc's read itself, and the program that it is linked to: whatever stands before
 * both, the library sees each call, once. The one is this file with LIBRARY defined, the other without; with
 * INDIRECT the library says where its function is only when it is asked.
 */
#ifdef LIBRARY
#include <sys/syscall.h>
#include <unistd.h>

static size_t seen;

size_t calls_seen(void);

size_t calls_seen(void) { return seen; }

#ifdef INDIRECT
#define READ static ssize_t read_here
#else
#define READ ssize_t read
#endif

READ(int fd, void *to, size_t bytes) {
    seen++;
    return syscall(SYS_read, fd, to, bytes);
}

#ifdef INDIRECT
typedef ssize_t reading(int, void *, size_t);

static reading *found(void) { return read_here; }

ssize_t read(int fd, void *to, size_t bytes) __attribute__((ifunc("found")));
#endif

#else
#include "victim.h"

#define BYTES (110 * MIB_PAGES * PAGE_BYTES)

size_t calls_seen(void);

int main(int argc, char **argv) {
    victim_start(argc, argv);
    size_t before = calls_seen();
    char few[8];
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "few", 3) == 3);
    CHECK(read(ends[0], few, sizeof few) == 3 && memcmp(few, "few", 3) == 0);
    CHECK(calls_seen() == before + 1);

    char *to = malloc(BYTES);
    FILE *file = tmpfile();
    CHECK(to && file && ftruncate(fileno(file), BYTES) == 0);
    CHECK(read(fileno(file), to, BYTES) == BYTES);
    CHECK(calls_seen() == before + 2);
    zeros_check(to, BYTES);
    pages_fill(to, BYTES / PAGE_BYTES, 7);
    pages_check(to, BYTES / PAGE_BYTES, 7);
    return victim_end();
}
#endif
