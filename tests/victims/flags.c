/*
 * What a program may set under which its memory and instructions are not what others find: that accesses have to be
 * aligned ("alignment"), that nobody reads the time stamp counter ("time"), and that all that can be read can be
 * executed ("execution").
 */
#include "victim.h"
#include <sys/personality.h>
#include <sys/prctl.h>

#define PAGES (40 * MIB_PAGES)
#define ALIGNMENT_FLAG 0x40000

static void alignment_set(int checked) {
    __asm__ volatile("sub $128, %%rsp\n\t"
                     "pushf\n\t"
                     "andl %0, (%%rsp)\n\t"
                     "orl %1, (%%rsp)\n\t"
                     "popf\n\t"
                     "add $128, %%rsp"
                     :
                     : "r"(~ALIGNMENT_FLAG), "r"(checked ? ALIGNMENT_FLAG : 0)
                     : "memory", "cc");
}

/* Nothing but aligned words, and calls of the kernel's. */
static void words_change(uint64_t *words, uint64_t from, uint64_t to) {
    for (size_t at = 0; at < PAGES; at++) {
        volatile uint64_t *word = words + at * (PAGE_BYTES / sizeof *words);
        CHECK(*word == (from ? from + at : 0));
        *word = to + at;
        if (at % 256 == 0)
            CHECK(raw(SYS_madvise, (long)word, PAGE_BYTES, MADV_NORMAL, 0, 0, 0) == 0);
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv)) | 1;
    int is_aligned = !strcmp(argv[2], "alignment"), is_timeless = !strcmp(argv[2], "time");
    uint64_t *words = pages_map(PAGES);
    words_change(words, 0, tag);
    if (is_aligned)
        alignment_set(1);
    else if (is_timeless)
        CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    else
        CHECK(personality(READ_IMPLIES_EXEC) != -1);
    for (int round = 0; round < 3; round++)
        words_change(words, tag + round, tag + round + 1);
    /* The kernel maps it, and changes what it may be used for, under what was set. */
    uint64_t *more = (uint64_t *)raw(SYS_mmap, 0, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(raw(SYS_mprotect, (long)words, PAGES * PAGE_BYTES / 2, PROT_READ | PROT_WRITE, 0, 0, 0) == 0);
    words_change(more, 0, tag);
    words_change(words, tag + 3, tag);
    words_change(more, tag, tag + 1);
    if (is_timeless) {
        int mode;
        CHECK(prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_SIGSEGV);
        CHECK(prctl(PR_SET_TSC, PR_TSC_ENABLE) == 0);
    }
    alignment_set(0);
    words_change(words, tag, tag + 5);
    note(tag);
    return victim_end();
}
