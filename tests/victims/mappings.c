/*
 * mmap, munmap, mremap, mprotect and madvise at random over a few large areas,
 * against a model that knows what every page must hold.
 *
 * A place is one page of a window of address space that the victim owns. The
 * model is one byte of state and one tag a place; it lies in a shared mapping,
 * which no pager manages. After each operation some places are checked, and
 * all of them at the end of every round. Second argument: `libc` makes the
 * calls through libc, `raw` by the bare instruction.
 */
#include "victim.h"
#include <sys/resource.h>
#include <sys/socket.h>

#define WINDOW_PAGES (48 * MIB_PAGES)
#define ROUNDS 8
#define STEPS 400
#define LONGEST 1500

enum state { UNMAPPED, READ_WRITE, READ_ONLY, NO_ACCESS };

struct place {
    uint8_t state;
    uint8_t wiped; /* zeros in a child: MADV_WIPEONFORK */
    uint8_t kept;  /* absent in a child: MADV_DONTFORK */
    uint64_t tag;  /* 0: reads as zeros */
};

static struct place *places;
static char *window;
static struct random rng;
static int by_libc;
static uint64_t next_tag = 1;

static char *at(size_t place) {
    return window + place * PAGE_BYTES;
}

static long do_mmap(void *start, size_t bytes, int protection, int flags) {
    if (by_libc) {
        void *p = mmap(start, bytes, protection, flags, -1, 0);
        return p == MAP_FAILED ? -errno : (long)p;
    }
    return raw(SYS_mmap, (long)start, bytes, protection, flags, -1, 0);
}

static long do_munmap(void *start, size_t bytes) {
    return by_libc ? munmap(start, bytes) : raw(SYS_munmap, (long)start, bytes, 0, 0, 0, 0);
}

static long do_mprotect(void *start, size_t bytes, int protection) {
    if (by_libc)
        return mprotect(start, bytes, protection) == 0 ? 0 : -errno;
    return raw(SYS_mprotect, (long)start, bytes, protection, 0, 0, 0);
}

static long do_madvise(void *start, size_t bytes, int advice) {
    if (by_libc)
        return madvise(start, bytes, advice) == 0 ? 0 : -errno;
    return raw(SYS_madvise, (long)start, bytes, advice, 0, 0, 0);
}

static long do_mremap(void *start, size_t old_bytes, size_t new_bytes, int flags, void *to) {
    if (by_libc) {
        void *p = mremap(start, old_bytes, new_bytes, flags, to);
        return p == MAP_FAILED ? -errno : (long)p;
    }
    return raw(SYS_mremap, (long)start, old_bytes, new_bytes, flags, (long)to, 0);
}

static void place_check(size_t place) {
    if (places[place].state != READ_WRITE && places[place].state != READ_ONLY)
        return;
    if (places[place].tag == 0)
        zeros_check(at(place), PAGE_BYTES);
    else
        page_check(at(place), places[place].tag);
}

static void all_check(void) {
    for (size_t i = 0; i < WINDOW_PAGES; i++)
        place_check(i);
}

static void places_set(size_t first, size_t count, enum state state, uint64_t tag) {
    for (size_t i = first; i < first + count; i++)
        places[i] = (struct place){.state = state, .tag = tag};
}

/* How many places from `first` on, `limit` at most, are mapped and in the same state. */
static size_t alike(size_t first, size_t limit) {
    size_t n = 0;
    while (n < limit && first + n < WINDOW_PAGES && places[first + n].state == places[first].state
           && places[first + n].wiped == places[first].wiped
           && places[first + n].kept == places[first].kept)
        n++;
    return places[first].state == UNMAPPED ? 0 : n;
}

/* A mapped range in one state. Its length is 0 where the draw fell on a hole. */
static size_t range(size_t *first) {
    *first = below(&rng, WINDOW_PAGES);
    return alike(*first, 1 + below(&rng, LONGEST));
}

static void step_map(void) {
    size_t first = below(&rng, WINDOW_PAGES - LONGEST), count = 1 + below(&rng, LONGEST);
    static const int protections[] = {PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_NONE,
                                      PROT_READ};
    static const enum state states[] = {READ_WRITE, READ_WRITE, NO_ACCESS, READ_ONLY};
    int kind = below(&rng, 4);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (below(&rng, 2) ? MAP_NORESERVE : 0);
    if (below(&rng, 8) == 0)
        flags |= MAP_POPULATE;
    CHECK(do_mmap(at(first), count * PAGE_BYTES, protections[kind], flags) == (long)at(first));
    places_set(first, count, states[kind], 0);
}

static void step_write(void) {
    size_t first, count = range(&first);
    if (count == 0 || places[first].state != READ_WRITE)
        return;
    for (size_t i = first; i < first + count; i++) {
        places[i].tag = next_tag++;
        page_fill(at(i), places[i].tag);
    }
}

static void step_unmap(void) {
    size_t first = below(&rng, WINDOW_PAGES - LONGEST), count = 1 + below(&rng, LONGEST / 2);
    CHECK(do_munmap(at(first), count * PAGE_BYTES) == 0);
    places_set(first, count, UNMAPPED, 0);
}

static void step_protect(void) {
    size_t first, count = range(&first);
    if (count == 0)
        return;
    static const int protections[] = {PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
    static const enum state states[] = {READ_WRITE, READ_ONLY, NO_ACCESS};
    int kind = below(&rng, 3);
    CHECK(do_mprotect(at(first), count * PAGE_BYTES, protections[kind]) == 0);
    for (size_t i = first; i < first + count; i++)
        places[i].state = states[kind];
}

static void step_discard(void) {
    size_t first, count = range(&first);
    if (count == 0)
        return;
    CHECK(do_madvise(at(first), count * PAGE_BYTES, MADV_DONTNEED) == 0);
    for (size_t i = first; i < first + count; i++)
        places[i].tag = 0;
}

/* Over whatever is there, holes too: what is mapped is dropped before the call says ENOMEM. */
static void step_discard_over_holes(void) {
    size_t first = below(&rng, WINDOW_PAGES - LONGEST), count = 1 + below(&rng, LONGEST);
    int holes = 0;
    for (size_t i = first; i < first + count; i++)
        holes |= places[i].state == UNMAPPED;
    CHECK(do_madvise(at(first), count * PAGE_BYTES, MADV_DONTNEED) == (holes ? -ENOMEM : 0));
    for (size_t i = first; i < first + count; i++)
        places[i].tag = 0;
}

/* Likewise a protection, which goes as far as the first hole. */
static void step_protect_up_to_a_hole(void) {
    size_t first = below(&rng, WINDOW_PAGES - LONGEST), count = 1 + below(&rng, LONGEST), n = 0;
    while (n < count && places[first + n].state != UNMAPPED)
        n++;
    if (n == 0)
        return;
    long r = do_mprotect(at(first), count * PAGE_BYTES, PROT_READ);
    CHECK(r == (n < count ? -ENOMEM : 0));
    for (size_t i = first; i < first + n; i++)
        places[i].state = READ_ONLY;
}

/* MADV_FREE leaves either the old contents or zeros, until the page is written. */
static void step_free(void) {
    size_t first, count = range(&first);
    if (count == 0 || places[first].state != READ_WRITE)
        return;
    CHECK(do_madvise(at(first), count * PAGE_BYTES, MADV_FREE) == 0);
    for (size_t i = first; i < first + count; i++) {
        volatile uint64_t *words = (uint64_t *)at(i);
        uint64_t last = words[PAGE_WORDS - 1];
        CHECK(last == 0 || (places[i].tag && last == page_word(places[i].tag, PAGE_WORDS - 1)));
        places[i].tag = next_tag++;
        page_fill(at(i), places[i].tag);
    }
}

static void step_advise(void) {
    static const int advices[] = {
        MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED,
        MADV_NORMAL,   MADV_COLD,       MADV_DONTDUMP,   MADV_DODUMP, MADV_POPULATE_READ,
    };
    size_t first, count = range(&first);
    if (count == 0)
        return;
    int advice = advices[below(&rng, COUNT(advices))];
    long r = do_madvise(at(first), count * PAGE_BYTES, advice);
    CHECK(r == 0 || r == -EINVAL
          || (advice == MADV_POPULATE_READ && places[first].state == NO_ACCESS));
}

static void step_populate(void) {
    size_t first, count = range(&first);
    if (count == 0 || places[first].state != READ_WRITE)
        return;
    long r = do_madvise(at(first), count * PAGE_BYTES, MADV_POPULATE_WRITE);
    CHECK(r == 0 || r == -EINVAL);
}

/*
 * Moves a range onto another within the window. The kernel refuses a range that
 * has become several areas by its history, perhaps after it moved some of them;
 * what it refused goes by halves, and a single page is never refused.
 */
static void range_move(size_t first, size_t count, size_t to) {
    long r = do_mremap(at(first), count * PAGE_BYTES, count * PAGE_BYTES,
                       MREMAP_MAYMOVE | MREMAP_FIXED, at(to));
    if (r == (long)at(to))
        return;
    CHECK(r == -EFAULT);
    if (count > 1) {
        range_move(first, count / 2, to);
        range_move(first + count / 2, count - count / 2, to + count / 2);
    } else {
        unsigned char resident;
        CHECK(mincore(at(first), PAGE_BYTES, &resident) == -1 && errno == ENOMEM);
    }
}

static void step_move(void) {
    size_t first, count = range(&first), to = below(&rng, WINDOW_PAGES - LONGEST);
    if (count == 0 || (to < first + count && first < to + count))
        return;
    range_move(first, count, to);
    memcpy(places + to, places + first, count * sizeof *places);
    places_set(first, count, UNMAPPED, 0);
}

/* Away and back, where it becomes one with what it was cut out of: that is advised alike. */
static void step_move_back(void) {
    static const int advices[] = {MADV_DONTDUMP, MADV_DODUMP, MADV_RANDOM, MADV_NORMAL};
    size_t first, count = range(&first), to = below(&rng, WINDOW_PAGES - LONGEST);
    if (count == 0 || (to < first + count && first < to + count))
        return;
    long r = do_madvise(window, WINDOW_PAGES * PAGE_BYTES, advices[below(&rng, COUNT(advices))]);
    CHECK(r == 0 || r == -ENOMEM);
    range_move(first, count, to);
    range_move(to, count, first);
    places_set(to, count, UNMAPPED, 0);
    for (size_t i = first < LONGEST ? 0 : first - LONGEST; i < first + count; i += 7)
        place_check(i);
}

/* A new mapping with contents, most of which has left RAM again: one area, whatever was there. */
static size_t fresh(size_t *first) {
    size_t count = 2 + below(&rng, LONGEST - 2);
    *first = below(&rng, WINDOW_PAGES - 2 * LONGEST);
    CHECK(do_mmap(at(*first), count * PAGE_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)
          == (long)at(*first));
    places_set(*first, count, READ_WRITE, 0);
    for (size_t i = *first; i < *first + count; i++)
        if (below(&rng, 4)) {
            places[i].tag = next_tag++;
            page_fill(at(i), places[i].tag);
        }
    for (size_t i = 0; i < 600; i++)
        place_check(below(&rng, WINDOW_PAGES));
    return count;
}

/* The move that makes a block longer or shorter on its way. */
static void step_move_resizing(void) {
    size_t first, count = fresh(&first), to = below(&rng, WINDOW_PAGES - 2 * LONGEST);
    size_t after = 1 + below(&rng, 2 * LONGEST);
    if (to < first + count && first < to + after)
        return;
    CHECK(do_mremap(at(first), count * PAGE_BYTES, after * PAGE_BYTES,
                    MREMAP_MAYMOVE | MREMAP_FIXED, at(to))
          == (long)at(to));
    for (size_t i = 0; i < after; i++)
        places[to + i] =
            (struct place){.state = READ_WRITE, .tag = i < count ? places[first + i].tag : 0};
    places_set(first, count, UNMAPPED, 0);
}

static void step_move_keeping(void) {
    size_t first, count = fresh(&first), to = below(&rng, WINDOW_PAGES - LONGEST);
    if (to < first + count && first < to + count)
        return;
    CHECK(do_mremap(at(first), count * PAGE_BYTES, count * PAGE_BYTES,
                    MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, at(to))
          == (long)at(to));
    memcpy(places + to, places + first, count * sizeof *places);
    places_set(first, count, READ_WRITE, 0);
}

/* Grows or shrinks a block outside the window, where the kernel may move it, and checks it. */
static void step_resize(void) {
    size_t pages = 1 + below(&rng, LONGEST), after = 1 + below(&rng, 2 * LONGEST);
    uint64_t tag = next_tag;
    next_tag += pages;
    char *block = (char *)do_mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS);
    pages_fill(block, pages, tag);
    block = (char *)do_mremap(block, pages * PAGE_BYTES, after * PAGE_BYTES, MREMAP_MAYMOVE, NULL);
    CHECK((long)block > 0);
    pages_check(block, pages < after ? pages : after, tag);
    if (after > pages)
        zeros_check(block + pages * PAGE_BYTES, (after - pages) * PAGE_BYTES);
    CHECK(do_munmap(block, after * PAGE_BYTES) == 0);
}

/* Shrinks in place, then grows in place again where a hole follows. */
static void step_in_place(void) {
    size_t first, count = fresh(&first), less = 1 + below(&rng, count - 1);
    CHECK(do_mremap(at(first), count * PAGE_BYTES, less * PAGE_BYTES, 0, NULL) == (long)at(first));
    places_set(first + less, count - less, UNMAPPED, 0);
    if (below(&rng, 2)) {
        CHECK(do_mremap(at(first), less * PAGE_BYTES, count * PAGE_BYTES, 0, NULL)
              == (long)at(first));
        places_set(first + less, count - less, READ_WRITE, 0);
    }
}

static void step_inheritance(void) {
    static const int advices[] = {MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK};
    size_t first, count = range(&first);
    if (count == 0)
        return;
    int advice = advices[below(&rng, 4)];
    if (below(&rng, 4))
        return;
    CHECK(do_madvise(at(first), count * PAGE_BYTES, advice) == 0);
    for (size_t i = first; i < first + count; i++) {
        if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
            places[i].kept = advice == MADV_DONTFORK;
        else
            places[i].wiped = advice == MADV_WIPEONFORK;
    }
}

static void child_check(void) {
    for (size_t i = 0; i < WINDOW_PAGES; i += 1 + i % 3) {
        if (places[i].kept) {
            unsigned char resident;
            CHECK(mincore(at(i), PAGE_BYTES, &resident) == -1 && errno == ENOMEM);
        } else if (places[i].wiped) {
            if (places[i].state == READ_WRITE || places[i].state == READ_ONLY)
                zeros_check(at(i), PAGE_BYTES);
        } else {
            place_check(i);
        }
        if (places[i].state == READ_WRITE && !places[i].kept && i % 5 == 0)
            page_fill(at(i), ~i);
    }
}

static void check_in_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        child_check();
        _exit(0);
    }
    CHECK_CHILD(child);
}

/* A mapping over a range that the kernel refuses once it has unmapped what is there: a socket has none. */
static void step_map_refused(void) {
    size_t first, count = fresh(&first), part = 1 + below(&rng, count - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(raw(SYS_mmap, (long)at(first), part * PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0)
          == -ENODEV);
    close(fd);
    unsigned char resident;
    if (mincore(at(first), PAGE_BYTES, &resident) == 0)
        return; /* a kernel that asks before it unmaps */
    places_set(first, part, UNMAPPED, 0);
    if (below(&rng, 2)) {
        CHECK(do_mmap(at(first), part * PAGE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE)
              == (long)at(first));
        places_set(first, part, READ_WRITE, 0);
    }
    if (below(&rng, 16) == 0)
        check_in_a_child();
}

/* Likewise a move, for which the address space is too small. */
static void step_move_refused(void) {
    size_t first, count = fresh(&first), to = below(&rng, WINDOW_PAGES - LONGEST);
    if (to < first + count && first < to + count)
        return;
    struct rlimit before, none = {0, RLIM_INFINITY};
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    none.rlim_max = before.rlim_max;
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    long r = raw(SYS_mremap, (long)at(first), count * PAGE_BYTES, count * PAGE_BYTES,
                 MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)at(to), 0);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK(r == -ENOMEM);
    for (size_t i = to; i < to + count; i++) {
        unsigned char resident;
        if (places[i].state != UNMAPPED && mincore(at(i), PAGE_BYTES, &resident) != 0)
            places_set(i, 1, UNMAPPED, 0);
    }
    if (below(&rng, 16) == 0)
        check_in_a_child();
}

static void step(void) {
    static void (*const steps[])(void) = {
        step_map,
        step_map,
        step_write,
        step_write,
        step_write,
        step_write,
        step_write,
        step_unmap,
        step_protect,
        step_protect,
        step_discard,
        step_free,
        step_advise,
        step_move,
        step_move_back,
        step_move_keeping,
        step_resize,
        step_in_place,
        step_populate,
        step_inheritance,
        step_move_resizing,
        step_discard_over_holes,
        step_protect_up_to_a_hole,
        step_map_refused,
        step_move_refused,
    };
    steps[below(&rng, COUNT(steps))]();
    for (int i = 0; i < 8; i++)
        place_check(below(&rng, WINDOW_PAGES));
}

int main(int argc, char **argv) {
    rng.state = mix(victim_start(argc, argv));
    by_libc = argc > 2 && strcmp(argv[2], "libc") == 0;
    places = mmap(NULL, WINDOW_PAGES * sizeof *places, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(places != MAP_FAILED);
    window = (char *)do_mmap(NULL, WINDOW_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS);
    CHECK((long)window > 0);
    places_set(0, WINDOW_PAGES, READ_WRITE, 0);
    for (size_t i = 0; i < WINDOW_PAGES; i++) {
        places[i].tag = next_tag++;
        page_fill(at(i), places[i].tag);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STEPS; i++)
            step();
        all_check();
        if (round % 4 == 3)
            check_in_a_child();
    }
    for (size_t i = 0; i < WINDOW_PAGES; i++)
        note(places[i].state * 1000003 + places[i].tag);
    return victim_end();
}
