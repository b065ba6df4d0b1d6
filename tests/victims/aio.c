/*
 * Asynchronous I/O of the kernel: requests, their vectors and their buffers have left RAM when they
 * are submitted, and the memory is pressed while the kernel works on them. Direct where the file
 * system has that. Where the sandbox has no such calls, only the memory is checked.
 */
#include "victim.h"
#include <linux/aio_abi.h>
#include <sys/uio.h>

#define ROUNDS 6
#define REQUESTS 96
#define REQUEST_PAGES 16
#define AREA_PAGES (REQUESTS * REQUEST_PAGES)

static struct iocb *requests, **list;
static struct io_event *events;
static struct iovec *vectors;
static aio_context_t context;

/* Request `at`, of `way`: one buffer, or two halves as vectors. */
static void ask(int at, int fd, int way, int writes, char *buffer, uint64_t offset) {
    struct iocb *request = &requests[at];
    memset(request, 0, sizeof *request);
    request->aio_data = at;
    request->aio_fildes = fd;
    request->aio_offset = offset;
    request->aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
    request->aio_buf = (uintptr_t)buffer;
    request->aio_nbytes = REQUEST_PAGES * PAGE_BYTES;
    if (way == 1) {
        struct iovec *halves = &vectors[2 * at];
        size_t half = REQUEST_PAGES / 2 * PAGE_BYTES;
        halves[0] = (struct iovec){buffer, half};
        halves[1] = (struct iovec){buffer + half, half};
        request->aio_lio_opcode = writes ? IOCB_CMD_PWRITEV : IOCB_CMD_PREADV;
        request->aio_buf = (uintptr_t)halves;
        request->aio_nbytes = 2;
    }
    list[at] = request;
}

/* All requests at once, from memory that is not there; their results. */
static void submit_and_wait(int presses) {
    int submitted = 0;
    press();
    while (submitted < REQUESTS) {
        int more = syscall(SYS_io_submit, context, REQUESTS - submitted, list + submitted);
        CHECK(more > 0);
        submitted += more;
    }
    if (presses)
        press();
    char seen[REQUESTS] = {0};
    for (int done = 0; done < REQUESTS;) {
        int more = syscall(SYS_io_getevents, context, 1, REQUESTS, events, NULL);
        CHECK(more > 0);
        for (int at = 0; at < more; at++) {
            CHECK(events[at].res == (long)(REQUEST_PAGES * PAGE_BYTES));
            CHECK(events[at].data < REQUESTS && !seen[events[at].data]++);
        }
        done += more;
    }
}

/* As many small requests with one call as the kernel takes, and more than can be held at a time. */
#define MANY 6000

static void submit_many(uint64_t tag) {
    aio_context_t many = 0;
    if (syscall(SYS_io_setup, MANY, &many) != 0)
        return;
    struct iocb *all = pages_map(MANY * sizeof *all / PAGE_BYTES + 1);
    struct iocb **places = pages_map(MANY * sizeof *places / PAGE_BYTES + 1);
    struct io_event *ends = pages_map(MANY * sizeof *ends / PAGE_BYTES + 1);
    uint64_t *words = pages_map(MANY);
    char name[] = "aio-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    for (int writes = 1; writes >= 0; writes--) {
        memset(all, 0, MANY * sizeof *all);
        for (size_t at = 0; at < MANY; at++) {
            uint64_t *word = words + at * PAGE_WORDS + 5;
            *word = writes ? mix(tag + at) : 0;
            all[at].aio_data = at;
            all[at].aio_fildes = fd;
            all[at].aio_offset = at * sizeof *word;
            all[at].aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
            all[at].aio_buf = (uintptr_t)word;
            all[at].aio_nbytes = sizeof *word;
            places[at] = &all[at];
        }
        press();
        CHECK(syscall(SYS_io_submit, many, MANY, places) == MANY);
        press();
        for (int done = 0; done < MANY;) {
            int more = syscall(SYS_io_getevents, many, 1, MANY, ends, NULL);
            CHECK(more > 0);
            for (int at = 0; at < more; at++)
                CHECK(ends[at].res == sizeof *words);
            done += more;
        }
    }
    for (size_t at = 0; at < MANY; at++)
        CHECK(words[at * PAGE_WORDS + 5] == mix(tag + at));
    /* What cannot be read ends the call; what came before is done. */
    places[MANY - 1] = address(16);
    CHECK(syscall(SYS_io_submit, many, MANY, places) == MANY - 1);
    CHECK(syscall(SYS_io_destroy, many) == 0);
    CHECK(munmap(words, MANY * PAGE_BYTES) == 0);
    close(fd);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(28);
    char *from = pages_map(AREA_PAGES), *to = pages_map(AREA_PAGES);
    pages_fill(from, AREA_PAGES, tag);
    requests = pages_map(16);
    list = pages_map(16), events = pages_map(16), vectors = pages_map(16);
    char name[] = "aio-XXXXXX";
    int plain = mkstemp(name);
    CHECK(plain >= 0);
    int fd = open(name, O_RDWR | O_DIRECT);
    CHECK(unlink(name) == 0);
    if (fd < 0)
        fd = plain;
    int is_there = syscall(SYS_io_setup, REQUESTS, &context) == 0;
    for (int round = 0; round < ROUNDS && is_there; round++) {
        int way = round % 2;
        for (int at = 0; at < REQUESTS; at++) {
            size_t page = (size_t)at * REQUEST_PAGES;
            ask(at, round < 4 ? fd : plain, way, 1, from + page * PAGE_BYTES, page * PAGE_BYTES);
        }
        submit_and_wait(round > 1);
        memset(to, round, AREA_PAGES * PAGE_BYTES);
        for (int at = 0; at < REQUESTS; at++) {
            size_t page = (size_t)at * REQUEST_PAGES;
            ask(at, round < 4 ? fd : plain, way, 0, to + page * PAGE_BYTES, page * PAGE_BYTES);
        }
        submit_and_wait(round > 1);
        pages_check(to, AREA_PAGES, tag);
        tag = mix(tag + round);
        pages_fill(from, AREA_PAGES, tag);
    }
    if (!is_there)
        for (int round = 0; round < ROUNDS; round++)
            tag = mix(tag + round);
    CHECK(!is_there || syscall(SYS_io_destroy, context) == 0);
    if (is_there)
        submit_many(tag);
    note(tag);
    return victim_end();
}
