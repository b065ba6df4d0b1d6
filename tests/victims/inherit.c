/* Spilled pages shared by parent and child: both read them, both replace them, either may end
 * first. */
#include "victim.h"

#define BIG_PAGES (256 * MIB_PAGES)

static char *big;

static void replace(size_t from, uint64_t tag) {
    for (size_t i = from; i < BIG_PAGES; i += 5)
        page_fill(big + i * PAGE_BYTES, tag + i);
}

static void check_replaced(size_t from, uint64_t tag) {
    for (size_t i = 0; i < BIG_PAGES; i++)
        page_check(big + i * PAGE_BYTES, i % 5 == from ? tag + i : i);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            replace(i + 1, 1000000 * (i + 1));
            check_replaced(i + 1, 1000000 * (i + 1));
            _exit(0);
        }
    }
    replace(0, 5000000);
    for (int i = 0; i < 2; i++)
        CHECK_CHILD(children[i]);
    check_replaced(0, 5000000);
    return victim_end();
}
