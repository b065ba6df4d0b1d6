/*
 * Programs that live by SIGSEGV, as collectors and interpreters do: a write
 * barrier by mprotect, an instruction skipped, a register changed in the saved
 * context; and what the handler is told.
 */
#include "victim.h"
#include <ucontext.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define WATCHED_PAGES (8 * MIB_PAGES)

static char *big, *watched;
static volatile size_t dirtied;
static volatile int mode, skipped, code;
static void *volatile where;
static unsigned char *dirty;

enum { BARRIER, SKIP, REPLACE };

static void handler(int signal, siginfo_t *information, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *at = information->si_addr;
    where = at;
    code = information->si_code;
    CHECK(signal == SIGSEGV);
    if (mode == BARRIER) {
        size_t page = (at - watched) / PAGE_BYTES;
        CHECK(at >= watched && page < WATCHED_PAGES && !dirty[page] && code == SEGV_ACCERR);
        dirty[page] = 1;
        dirtied++;
        CHECK(mprotect(watched + page * PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    } else if (mode == SKIP) {
        registers[REG_RIP] += 3; /* mov (%rdi), %rax */
        registers[REG_RAX] = 0x1234567;
        skipped++;
    } else {
        registers[REG_RDI] = (greg_t)big;
    }
}

/* One load of three bytes through rdi. */
static uint64_t load(const void *from) {
    uint64_t value;
    register const void *rdi __asm__("rdi") = from;
    __asm__ volatile(".byte 0x48, 0x8b, 0x07" : "=a"(value), "+r"(rdi) : : "memory");
    return value;
}

static void barrier(struct random *random, uint64_t tag) {
    for (int cycle = 0; cycle < 5; cycle++) {
        CHECK(mprotect(watched, WATCHED_PAGES * PAGE_BYTES, PROT_READ) == 0);
        memset(dirty, 0, WATCHED_PAGES);
        dirtied = 0;
        size_t written = 0;
        for (int i = 0; i < 3000; i++) {
            size_t page = below(random, WATCHED_PAGES), other = below(random, BIG_PAGES);
            written += !dirty[page];
            page_check(watched + page * PAGE_BYTES, tag + page);
            page_fill(watched + page * PAGE_BYTES, tag + page);
            page_check(big + other * PAGE_BYTES, other);
            CHECK(dirty[page]);
        }
        CHECK(written == dirtied);
        note(dirtied);
    }
    CHECK(mprotect(watched, WATCHED_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
    pages_check(watched, WATCHED_PAGES, tag);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    uint64_t tag = draw(&random);
    big = pages_map(BIG_PAGES);
    watched = pages_map(WATCHED_PAGES);
    dirty = pages_map(WATCHED_PAGES / PAGE_BYTES + 16);
    pages_fill(watched, WATCHED_PAGES, tag);
    pages_fill(big, BIG_PAGES, 0);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    barrier(&random, tag);

    mode = SKIP;
    char *shut = pages_map(64);
    pages_fill(shut, 64, 5);
    pages_check(big, BIG_PAGES, 0);
    CHECK(mprotect(shut, 64 * PAGE_BYTES, PROT_NONE) == 0);
    CHECK(load(address(64)) == 0x1234567 && where == (void *)64 && code == SEGV_MAPERR);
    CHECK(load(shut + 100) == 0x1234567 && where == shut + 100 && code == SEGV_ACCERR);
    CHECK(skipped == 2);

    mode = REPLACE;
    for (int i = 0; i < 100; i++) {
        CHECK(load(shut + i * 8) == page_word(0, 0));
        size_t page = below(&random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
    }
    CHECK(mprotect(shut, 64 * PAGE_BYTES, PROT_READ) == 0);
    pages_check(shut, 64, 5);
    pages_check(big, BIG_PAGES, 0);
    note(skipped);
    return victim_end();
}
