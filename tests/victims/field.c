/*
 * An area of the given size and kind of contents, filled, then read and
 * written at random: `field SEED MIB KIND ROUNDS`. KIND is `words` (shrinks to
 * about a tenth), `noise` (does not shrink), `pixels` (only as differences from
 * pixel to pixel), `text` (lines that are alike) or `zeros` (same-filled). After
 * the first filling it prints `ready`; with ROUNDS `forever` it goes on until
 * a file `stop` appears in its directory. `field SEED MIB KIND ROUNDS SHARED`
 * fills so many MiB of shared memory besides after that, some each 10 ms.
 */
#include "victim.h"

static const char *kind;
static char *area;
static size_t area_pages;

/* Eight bytes of three colours that change slowly, each in its own way, and a little noise. */
static uint64_t pixels_at(uint64_t tag, unsigned index) {
    uint64_t word = 0, noise = mix(tag * PAGE_WORDS + index);
    for (unsigned byte = 0; byte < 8; byte++) {
        unsigned at = index * 8 + byte, colour = at % 3;
        uint64_t value = at / 3 * (colour + 1) / 5 + tag % 97 + (noise >> byte * 8 & 7);
        word |= (value & 0xff) << byte * 8;
    }
    return word;
}

/* Eight letters of lines of 301 of seven fields, each of which begins with a number of eight digits. */
static uint64_t text_at(uint64_t tag, unsigned index) {
    uint64_t word = 0;
    for (unsigned byte = 0; byte < 8; byte++) {
        unsigned at = index * 8 + byte, column = at % 301, digit = column % 43;
        uint64_t number = mix(tag * PAGE_WORDS + at / 43);
        uint64_t letter = digit < 8 ? '0' + (number >> digit * 8 & 0xff) % 10 : 'a' + column * 7 % 23;
        word |= letter << byte * 8;
    }
    return word;
}

static uint64_t word_at(uint64_t tag, unsigned index) {
    if (*kind == 'p')
        return pixels_at(tag, index);
    if (*kind == 't')
        return text_at(tag, index);
    if (*kind == 'n')
        return mix(tag * PAGE_WORDS + index);
    return *kind == 'z' ? tag % 2 : page_word(tag, index);
}

static void area_fill(size_t page, uint64_t tag) {
    uint64_t *words = (uint64_t *)(area + page * PAGE_BYTES);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        words[i] = word_at(tag, i);
}

static void area_check(size_t page, uint64_t tag) {
    const uint64_t *words = (const uint64_t *)(area + page * PAGE_BYTES);
    for (unsigned i = 0; i < PAGE_WORDS; i++)
        CHECK(words[i] == word_at(tag, i));
}

static void share(size_t mib) {
    size_t pages = mib * MIB_PAGES;
    char *shared = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (size_t page = 0; page < pages; page += MIB_PAGES) {
        pages_fill(shared + page * PAGE_BYTES, MIB_PAGES, page);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    for (size_t page = 0; page < pages; page += MIB_PAGES)
        pages_check(shared + page * PAGE_BYTES, MIB_PAGES, page);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    CHECK(argc == 5 || argc == 6);
    area_pages = strtoul(argv[2], NULL, 0) * MIB_PAGES;
    kind = argv[3];
    int forever = strcmp(argv[4], "forever") == 0;
    long rounds = forever ? 1000000 : atol(argv[4]);
    area = pages_map(area_pages);
    uint32_t *tags = calloc(area_pages, sizeof *tags);
    for (size_t page = 0; page < area_pages; page++)
        area_fill(page, tags[page] = draw(&random));
    settle();
    printf("ready\n");
    fflush(stdout);
    if (argc == 6)
        share(strtoul(argv[5], NULL, 0));
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < area_pages / 4; i++) {
            size_t page = below(&random, area_pages);
            area_check(page, tags[page]);
            if (below(&random, 2))
                area_fill(page, tags[page] = draw(&random));
        }
        if (forever && access("stop", F_OK) == 0)
            break;
    }
    for (size_t page = 0; page < area_pages; page++)
        area_check(page, tags[page]);
    if (!forever)
        note(draw(&random));
    return victim_end();
}
