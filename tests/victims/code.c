/*
 * Memory that is executed: functions that the program makes as it runs, each
 * with an instruction across the border of two pages, in memory that is always
 * executable, as the heap of some Lisps, and in memory that is written and
 * executed in turns, as of compilers at run time; called, made anew and read by
 * several threads while the rest is larger than the budget.
 */
#include "victim.h"

#define CODE_PAGES (32 * MIB_PAGES)
#define THREADS 3
#define ROUNDS 12000

/* mov eax, VALUE; ret: the last three bytes of a page, and the first three of the next. */
#define OPENING_BYTES 3
#define MOVE_EAX 0xB8
#define RETURN 0xC3

typedef uint32_t function(void);

struct worker {
    pthread_t thread;
    struct random random;
    uint64_t tag, sum;
    char *code;
    size_t first, pairs;
    int in_turns;
};

static uint32_t value_of(uint64_t tag, size_t page) {
    return (uint32_t)mix(tag ^ page);
}

static function *function_at(char *code, size_t page) {
    return (function *)(code + (page + 1) * PAGE_BYTES - OPENING_BYTES);
}

static void make(char *code, size_t page, uint32_t value) {
    unsigned char bytes[] = {MOVE_EAX, 0, 0, 0, 0, RETURN};
    memcpy(bytes + 1, &value, sizeof value);
    memcpy((void *)function_at(code, page), bytes, sizeof bytes);
}

/* What lies between the functions is data. */
static void data_check(const char *code, size_t page, uint64_t tag) {
    const uint64_t *words = (const uint64_t *)(code + page * PAGE_BYTES);
    for (unsigned index = 1; index < PAGE_WORDS - 1; index++)
        CHECK(words[index] == page_word(tag + page, index));
}

static void protect(const struct worker *worker, size_t page, int protection) {
    if (worker->in_turns)
        CHECK(mprotect(worker->code + page * PAGE_BYTES, 2 * PAGE_BYTES, PROT_READ | protection) ==
              0);
}

/* Every other function is this thread's to make anew: neighbours share a page. */
static void *work(void *argument) {
    struct worker *worker = argument;
    for (int round = 0; round < ROUNDS; round++) {
        size_t page = worker->first + below(&worker->random, worker->pairs) * 2;
        uint32_t was = function_at(worker->code, page)();
        CHECK(was == value_of(worker->tag, page) || was == ~value_of(worker->tag, page));
        protect(worker, page, PROT_WRITE);
        make(worker->code, page, ~was);
        protect(worker, page, PROT_EXEC);
        CHECK(function_at(worker->code, page)() == ~was);
        page = worker->first + below(&worker->random, worker->pairs) * 2 + 1;
        CHECK(function_at(worker->code, page)() == value_of(worker->tag, page));
        data_check(worker->code, page, worker->tag);
        worker->sum += was;
    }
    return NULL;
}

static void run(struct random *random, int in_turns) {
    uint64_t tag = draw(random);
    char *code = pages_map(CODE_PAGES + 1);
    pages_fill(code, CODE_PAGES, tag);
    for (size_t page = 0; page < CODE_PAGES; page++)
        make(code, page, value_of(tag, page));
    int protection = in_turns ? 0 : PROT_WRITE;
    CHECK(mprotect(code, (CODE_PAGES + 1) * PAGE_BYTES, PROT_READ | PROT_EXEC | protection) == 0);
    struct worker workers[THREADS];
    const size_t pairs = CODE_PAGES / THREADS / 2;
    for (size_t at = 0; at < THREADS; at++) {
        workers[at] = (struct worker){.random = {draw(random)}, .tag = tag, .code = code,
                                      .first = 2 * at * pairs, .in_turns = in_turns,
                                      /* The last one of each would lie in the next one's pages. */
                                      .pairs = pairs - 1};
        CHECK(pthread_create(&workers[at].thread, NULL, work, &workers[at]) == 0);
    }
    for (size_t at = 0; at < THREADS; at++) {
        CHECK(pthread_join(workers[at].thread, NULL) == 0);
        note(workers[at].sum);
    }
    for (size_t page = 0; page < CODE_PAGES; page++) {
        note(function_at(code, page)());
        data_check(code, page, tag);
    }
    CHECK(munmap(code, (CODE_PAGES + 1) * PAGE_BYTES) == 0);
}

int main(int argc, char **argv) {
    struct random random = {mix(victim_start(argc, argv))};
    run(&random, 0);
    run(&random, 1);
    return victim_end();
}
