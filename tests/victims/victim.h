/*
 * What every victim needs: page contents that can be checked, memory that
 * presses everything else out of RAM, a digest, and system calls without libc.
 *
 * A victim takes a seed as its first argument, checks itself as it goes (CHECK
 * ends it with status 99 and names the line), and prints a digest that depends
 * on nothing but the seed: the same free and managed.
 */
#ifndef VICTIM_H
#define VICTIM_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096ul
#define PAGE_WORDS 512
#define MIB_PAGES 256ul
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__FILE__, __LINE__, #condition);                                                  \
    } while (0)

static inline void fail(const char *file, int line, const char *condition) {
    int error = errno;
    dprintf(2, "%s:%d: does not hold: %s (errno %d, process %d)\n", file, line, condition, error,
            (int)getpid());
    _exit(99);
}

/* splitmix64: one well-mixed word from another. */
static inline uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

struct random {
    uint64_t state;
};

static inline uint64_t draw(struct random *random) {
    return mix(random->state++);
}

static inline uint64_t below(struct random *random, uint64_t bound) {
    return draw(random) % bound;
}

/*
 * The word at `index` of the page that `tag` names. Most pages shrink to about
 * a tenth; one in sixteen is same-filled, one in sixty-four incompressible.
 */
static inline uint64_t page_word(uint64_t tag, unsigned index) {
    uint64_t base = mix(tag);
    if (base % 16 == 0)
        return base;
    if (base % 64 == 1 || index % 16 == 0)
        return mix(base + index);
    return base;
}

/*
 * Waits a little, once, when the victim has filled more than its tests' budgets:
 * a supervisor that only watches so far gets the time to enter it.
 */
static inline void settle(void) {
    usleep(150000);
}

static inline void page_fill(void *page, uint64_t tag) {
    static size_t filled;
    uint64_t *words = page;
    if (__atomic_add_fetch(&filled, 1, __ATOMIC_RELAXED) == 26 * MIB_PAGES)
        settle();
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        words[i] = page_word(tag, i);
}

static inline void page_check_at(const void *page, uint64_t tag, const char *file, int line) {
    const uint64_t *words = page;
    for (unsigned i = 0; i < PAGE_WORDS; i++) {
        uint64_t found = words[i], wanted = page_word(tag, i);
        if (found == wanted)
            continue;
        dprintf(2,
                "%s:%d: page %p word %u of tag %lx is %lx, should be %lx, again %lx (process %d)\n",
                file, line, page, i, tag, found, wanted, ((const volatile uint64_t *)words)[i],
                (int)getpid());
        _exit(99);
    }
}
#define page_check(page, tag) page_check_at(page, tag, __FILE__, __LINE__)

static inline void pages_fill(void *start, size_t pages, uint64_t tag) {
    for (size_t i = 0; i < pages; i++)
        page_fill((char *)start + i * PAGE_BYTES, tag + i);
}

static inline void pages_check_at(const void *start, size_t pages, uint64_t tag, const char *file,
                                  int line) {
    for (size_t i = 0; i < pages; i++)
        page_check_at((const char *)start + i * PAGE_BYTES, tag + i, file, line);
}
#define pages_check(start, pages, tag) pages_check_at(start, pages, tag, __FILE__, __LINE__)

static inline void zeros_check_at(const void *start, size_t bytes, const char *file, int line) {
    const char *p = start;
    if (bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0))
        return;
    size_t i = 0;
    while (i < bytes && p[i] == 0)
        i++;
    dprintf(2, "%s:%d: byte %zu at %p is %d, should be zero (process %d)\n", file, line, i,
            (const void *)(p + i), i < bytes ? p[i] : 0, (int)getpid());
    _exit(99);
}
#define zeros_check(start, bytes) zeros_check_at(start, bytes, __FILE__, __LINE__)

static inline void *pages_map(size_t pages) {
    void *start =
        mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

/*
 * Ballast: memory whose only purpose is to be larger than the budget. press()
 * goes over it in order, so that whatever else the victim holds has left RAM
 * when it returns; its contents are checked on the way.
 */
static char *ballast;
static size_t ballast_pages;
#define BALLAST_TAG 0x62616c6c61737400ull

static inline void ballast_make(size_t mib) {
    ballast_pages = mib * MIB_PAGES;
    ballast = pages_map(ballast_pages);
    pages_fill(ballast, ballast_pages, BALLAST_TAG);
}

static inline void press(void) {
    for (size_t i = 0; i < ballast_pages; i++) {
        volatile uint64_t *word = (uint64_t *)(ballast + i * PAGE_BYTES);
        CHECK(*word == page_word(BALLAST_TAG + i, 0));
        *word = page_word(BALLAST_TAG + i, 0);
    }
}

static uint64_t digest = 0xcbf29ce484222325ull;

static inline void note(uint64_t value) {
    digest = mix(digest ^ value);
}

static inline void note_bytes(const void *start, size_t bytes) {
    const unsigned char *p = start;
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ p[i]) * 0x100000001b3ull;
}

/* The seed; also makes sure that the victim ends, whatever happens to it. */
static inline uint64_t victim_start(int argc, char **argv) {
    alarm(140);
    return argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
}

static inline int victim_end(void) {
    if (ballast)
        pages_check(ballast, ballast_pages, BALLAST_TAG);
    printf("digest %016lx\n", digest);
    fflush(stdout);
    return 0;
}

/*
 * All of so much memory is used several times, by who has room for it once it was noticed that others
 * are gone.
 */
static inline void need_room(size_t pages, uint64_t tag) {
    usleep(600000);
    char *memory = pages_map(pages);
    pages_fill(memory, pages, tag);
    for (int pass = 0; pass < 10; pass++)
        pages_check(memory, pages, tag);
}

/* Waits for `pid` and returns its wait status; ends the victim if there is none. */
static inline int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) != pid)
        CHECK(errno == EINTR);
    return status;
}

/* Until process `pid` sleeps in a call. */
static inline void until_asleep(pid_t pid) {
    char path[64], stat[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int asleep = 0; asleep < 3; usleep(500)) {
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        ssize_t got = read(fd, stat, sizeof stat - 1);
        CHECK(got > 0 && close(fd) == 0);
        stat[got] = 0;
        asleep = strstr(stat, ") S ") ? asleep + 1 : 0;
    }
}

#define CHECK_CHILD(pid)                                                                           \
    do {                                                                                           \
        int child_status = wait_for(pid);                                                          \
        if (child_status != 0)                                                                     \
            dprintf(2, "child's wait status is %#x\n", child_status);                              \
        CHECK(child_status == 0);                                                                  \
    } while (0)

/* The address as a pointer that the compiler knows nothing of. */
static inline void *address(uintptr_t value) {
    __asm__ volatile("" : "+r"(value));
    return (void *)value;
}

/* A system call without libc; returns the kernel's value, a negative error number included. */
static inline long raw(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

#endif
