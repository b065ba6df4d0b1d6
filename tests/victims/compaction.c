/*
 * The kernel moves pages about while they are lifted out of the program: a thread has it compact
 * all of memory, which root may, as its pages are changed and checked.
 */
#include "victim.h"

#define AREA_PAGES (192 * MIB_PAGES)
#define ROUNDS 2

static int is_done;

static void *compact(void *unused) {
    int file = open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC);
    while (file >= 0 && !__atomic_load_n(&is_done, __ATOMIC_ACQUIRE)) {
        CHECK(write(file, "1", 1) == 1);
    }
    return unused;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    pthread_t thread;
    char *area = pages_map(AREA_PAGES);
    pages_fill(area, AREA_PAGES, tag);
    /* Not before: a thread that compacts can be stopped only when it has done so. */
    CHECK(pthread_create(&thread, NULL, compact, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < AREA_PAGES; i++) {
            char *page = area + i * PAGE_BYTES;
            page_check(page, tag + i);
            if ((i + round) % 3 == 0)
                page_fill(page, tag + i);
        }
    }
    __atomic_store_n(&is_done, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    note_bytes(area, AREA_PAGES / 16 * PAGE_BYTES);
    return victim_end();
}
