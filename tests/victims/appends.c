/*
 * Records that several processes append to one file, and read of it at the position that they
 * share: each is whole, though it is larger than what the budget lets a call have in pieces.
 */
#include "victim.h"
#include <sched.h>
#include <sys/uio.h>

#define PROCESSES 3
#define RECORDS 8 /* of each process */
#define RECORD_PAGES 256ul
#define RECORD_BYTES (RECORD_PAGES * PAGE_BYTES)
#define LAST_PAGES 200ul
#define ALL (PROCESSES * RECORDS)

static char *record;
static uint64_t seed;
static unsigned *meetings;

static uint64_t tag_of(size_t number) {
    return mix(seed + number);
}

/* All processes go on together. */
static void meet(void) {
    unsigned here = 1 + __atomic_fetch_add(meetings, 1, __ATOMIC_RELAXED);
    unsigned all = (here + PROCESSES - 1) / PROCESSES * PROCESSES;
    while (__atomic_load_n(meetings, __ATOMIC_RELAXED) < all)
        sched_yield();
}

static void append(int fd, size_t number) {
    pages_fill(record, RECORD_PAGES, tag_of(number));
    press();
    meet();
    if (number % 2 == 0) {
        CHECK(write(fd, record, RECORD_BYTES) == (ssize_t)RECORD_BYTES);
        return;
    }
    size_t first = 100 * PAGE_BYTES + number;
    struct iovec parts[] = {{record, first}, {record + first, RECORD_BYTES - first}};
    CHECK(writev(fd, parts, 2) == (ssize_t)RECORD_BYTES);
}

/* The number of the record that lies there. */
static size_t number_of(const char *found) {
    for (size_t number = 0; number < ALL; number++)
        if (*(const uint64_t *)found == page_word(tag_of(number), 0))
            return number;
    CHECK(!"a record begins here");
    return 0;
}

static void in_children(int fd, void (*each)(int, size_t)) {
    pid_t children[PROCESSES];
    for (size_t i = 0; i < PROCESSES; i++) {
        CHECK((children[i] = fork()) >= 0);
        if (children[i] == 0) {
            each(fd, i);
            _exit(0);
        }
    }
    for (size_t i = 0; i < PROCESSES; i++)
        CHECK_CHILD(children[i]);
}

static void append_all(int fd, size_t process) {
    for (size_t i = 0; i < RECORDS; i++)
        append(fd, process * RECORDS + i);
}

/* The last one is shorter than what is asked for. */
static void read_all(int fd, size_t process) {
    (void)process;
    for (;;) {
        ssize_t bytes = read(fd, record, RECORD_BYTES);
        if (bytes == 0)
            return;
        CHECK(bytes == (ssize_t)RECORD_BYTES || bytes == (ssize_t)(LAST_PAGES * PAGE_BYTES));
        pages_check(record, bytes / PAGE_BYTES, tag_of(number_of(record)));
    }
}

int main(int argc, char **argv) {
    seed = mix(victim_start(argc, argv));
    ballast_make(32);
    record = pages_map(RECORD_PAGES);
    meetings = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(meetings != MAP_FAILED);
    char name[] = "appends-XXXXXX";
    int plain = mkstemp(name), fd = open(name, O_RDWR | O_APPEND);
    CHECK(plain >= 0 && fd >= 0 && unlink(name) == 0);
    in_children(fd, append_all);
    uint64_t sum = 0;
    for (size_t i = 0; i < ALL; i++) {
        CHECK(pread(plain, record, RECORD_BYTES, i * RECORD_BYTES) == (ssize_t)RECORD_BYTES);
        size_t number = number_of(record);
        pages_check(record, RECORD_PAGES, tag_of(number));
        sum += mix(number);
    }
    note(sum);
    CHECK(ftruncate(plain, (ALL - 1) * RECORD_BYTES + LAST_PAGES * PAGE_BYTES) == 0);
    in_children(plain, read_all);
    return victim_end();
}
