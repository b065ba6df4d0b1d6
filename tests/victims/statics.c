/* Large arrays in .bss and .data, large frames on the main stack and on a thread's. */
#include "victim.h"
#include <alloca.h>
#include <sys/resource.h>

#define BSS_PAGES (40 * MIB_PAGES)
#define DATA_WORDS (1 << 20)
#define FRAME_PAGES 6

static char bss[BSS_PAGES * PAGE_BYTES] __attribute__((aligned(4096)));
static uint64_t data[DATA_WORDS] = {[0] = 1, [DATA_WORDS / 2] = 2, [DATA_WORDS - 1] = 3};

/* Every frame holds pages of its own that must be right on the way back up. */
static uint64_t descend(int depth, uint64_t tag) {
    char *frame = alloca((FRAME_PAGES + 1) * PAGE_BYTES);
    char *aligned = (char *)(((uintptr_t)frame + PAGE_BYTES - 1) & -PAGE_BYTES);
    pages_fill(aligned, FRAME_PAGES, tag + depth * FRAME_PAGES);
    uint64_t below_here = depth ? descend(depth - 1, tag) : tag;
    if (depth % 50 == 25)
        press();
    pages_check(aligned, FRAME_PAGES, tag + depth * FRAME_PAGES);
    return mix(below_here + depth);
}

static void *on_a_thread(void *argument) {
    return (void *)descend(200, (uint64_t)argument);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(40);
    pages_fill(bss, BSS_PAGES, tag);
    for (size_t i = 1; i < DATA_WORDS / 2; i++)
        data[i] = page_word(i / PAGE_WORDS, i % PAGE_WORDS);
    note(descend(200, tag));
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, on_a_thread, (void *)tag) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    note((uint64_t)result);
    pages_check(bss, BSS_PAGES, tag);
    CHECK(data[0] == 1 && data[DATA_WORDS / 2] == 2 && data[DATA_WORDS - 1] == 3);
    for (size_t i = 1; i < DATA_WORDS / 2; i++)
        CHECK(data[i] == page_word(i / PAGE_WORDS, i % PAGE_WORDS));
    note_bytes(bss, 1 << 20);
    return victim_end();
}
