/*
 * Limits that a program sets on its own address space and data, with room for
 * what it goes on to map: they must not count what the pager keeps for itself.
 */
#include "victim.h"
#include <sys/resource.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define MORE_PAGES (16 * MIB_PAGES)

static char *big;

/* Maps, fills and gives back a part that the limit leaves room for, and is refused a larger one. */
static void map_within(uint64_t tag, size_t refused_bytes) {
    char *more = pages_map(MORE_PAGES);
    pages_fill(more, MORE_PAGES, tag);
    pages_check(big, BIG_PAGES, 0);
    pages_check(more, MORE_PAGES, tag);
    CHECK(munmap(more, MORE_PAGES * PAGE_BYTES) == 0);
    void *block = malloc(100000);
    CHECK(block);
    free(block);
    void *refused =
        mmap(NULL, refused_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(refused == MAP_FAILED && errno == ENOMEM);
}

/* A program that is started has the limits that were set, no others. */
static void passed_on(void) {
    FILE *told = popen("ulimit -S -v; ulimit -S -d; ulimit -H -d", "r");
    char line[64];
    for (int i = 0; i < 3; i++) {
        CHECK(told && fgets(line, sizeof line, told));
        CHECK(strcmp(line, i < 2 ? "262144\n" : "unlimited\n") == 0);
    }
    CHECK(pclose(told) == 0);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    struct rlimit limit = {256ul << 20, RLIM_INFINITY}, found;
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
    map_within(tag, 512ul << 20);
    CHECK(getrlimit(RLIMIT_DATA, &found) == 0 && found.rlim_cur == limit.rlim_cur);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    map_within(tag + 1, 512ul << 20);
    CHECK(getrlimit(RLIMIT_AS, &found) == 0 && found.rlim_cur == limit.rlim_cur);
    passed_on();
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && setrlimit(RLIMIT_DATA, &limit) == 0);
    CHECK(munmap(pages_map(2ul << 18), 2ul << 30) == 0);
    limit = (struct rlimit){2, 1};
    CHECK(setrlimit(RLIMIT_AS, &limit) == -1 && errno == EINVAL);
    pages_check(big, BIG_PAGES, 0);
    note(tag);
    return victim_end();
}
