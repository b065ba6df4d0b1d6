/*
 * io_uring: reads and writes that the kernel makes by itself, through buffers
 * that are absent and through buffers that were registered, so pinned. Where
 * the kernel or the sandbox has no io_uring, only the memory is checked.
 * With `early` the ring is there before there is much memory, and the kernel waits to write into some; with
 * `idle` it is there and uses none; with `later` it uses some once there is too much.
 */
#include "victim.h"
#include <linux/io_uring.h>

#define ENTRIES 8
#define AREA_PAGES (8 * MIB_PAGES)
#define CHUNK_PAGES 64
#define RESERVED_BYTES ((size_t)8 << 40)
#define SUBMIT_SECONDS_MAX 6

static struct {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
} ring;

static void *ring_map(size_t bytes, off_t offset) {
    void *start =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, offset);
    CHECK(start != MAP_FAILED);
    return start;
}

static int ring_open(void) {
    struct io_uring_params parameters = {0};
    ring.fd = syscall(SYS_io_uring_setup, ENTRIES, &parameters);
    if (ring.fd < 0)
        return 0;
    struct io_sqring_offsets *sq = &parameters.sq_off;
    struct io_cqring_offsets *cq = &parameters.cq_off;
    char *submissions = ring_map(sq->array + parameters.sq_entries * 4, IORING_OFF_SQ_RING);
    char *completions =
        ring_map(cq->cqes + parameters.cq_entries * sizeof *ring.cqes, IORING_OFF_CQ_RING);
    ring.sqes = ring_map(parameters.sq_entries * sizeof *ring.sqes, IORING_OFF_SQES);
    ring.sq_tail = (unsigned *)(submissions + sq->tail);
    ring.sq_mask = (unsigned *)(submissions + sq->ring_mask);
    ring.sq_array = (unsigned *)(submissions + sq->array);
    ring.cq_head = (unsigned *)(completions + cq->head);
    ring.cq_tail = (unsigned *)(completions + cq->tail);
    ring.cq_mask = (unsigned *)(completions + cq->ring_mask);
    ring.cqes = (struct io_uring_cqe *)(completions + cq->cqes);
    return 1;
}

static void ring_submit(struct io_uring_sqe operation) {
    unsigned tail = *ring.sq_tail, index = tail & *ring.sq_mask;
    ring.sqes[index] = operation;
    ring.sq_array[index] = index;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(SYS_io_uring_enter, ring.fd, 1, 0, 0, NULL, 0) == 1);
}

/* Waits for one operation; gives its result. */
static int ring_result(void) {
    CHECK(syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 0);
    unsigned head = *ring.cq_head;
    CHECK(head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE));
    int result = ring.cqes[head & *ring.cq_mask].res;
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void transfer(int fd, int opcode, char *buffer, off_t offset) {
    struct io_uring_sqe operation = {
        .opcode = opcode,
        .fd = fd,
        .off = offset,
        .addr = (uintptr_t)buffer,
        .len = CHUNK_PAGES * PAGE_BYTES,
    };
    ring_submit(operation);
    int result = ring_result();
    if (result != (int)(CHUNK_PAGES * PAGE_BYTES))
        dprintf(2, "opcode %d gives %d\n", opcode, result);
    CHECK(result == (int)(CHUNK_PAGES * PAGE_BYTES));
}

static void through_files(int fd, char *a, char *b, uint64_t tag, int write_opcode,
                          int read_opcode) {
    pages_fill(a, AREA_PAGES, tag);
    press();
    for (size_t page = 0; page < AREA_PAGES; page += CHUNK_PAGES)
        transfer(fd, write_opcode, a + page * PAGE_BYTES, page * PAGE_BYTES);
    press();
    for (size_t page = 0; page < AREA_PAGES; page += CHUNK_PAGES)
        transfer(fd, read_opcode, b + page * PAGE_BYTES, page * PAGE_BYTES);
    pages_check(b, AREA_PAGES, tag);
}

/* A thread of the kernel's, which is one of this process's, waits for what it shall write. */
static void early(uint64_t tag) {
    int ends[2];
    char *from = pages_map(1), *to = pages_map(1);
    CHECK(pipe(ends) == 0 && ring_open());
    struct io_uring_sqe operation = {
        .opcode = IORING_OP_READ,
        .flags = IOSQE_ASYNC,
        .fd = ends[0],
        .off = -1,
        .addr = (uintptr_t)to,
        .len = PAGE_BYTES,
    };
    ring_submit(operation);
    ballast_make(40);
    press();
    page_fill(from, tag);
    CHECK(write(ends[1], from, PAGE_BYTES) == (ssize_t)PAGE_BYTES);
    CHECK(ring_result() == (int)PAGE_BYTES);
    page_check(to, tag);
}

/*
 * The kernel is given memory by a ring that was not used before that was away. Of much more, as databases
 * do, address space alone is taken.
 */
static void later(uint64_t tag) {
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && ring_open());
    char *a = pages_map(AREA_PAGES), *b = pages_map(AREA_PAGES);
    pages_fill(b, AREA_PAGES, tag + 1);
    char *reserved = mmap(NULL, RESERVED_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(reserved != MAP_FAILED);
    page_fill(reserved + RESERVED_BYTES / 2, tag + 2);
    ballast_make(40);
    struct timespec begun, done;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    transfer(fd, IORING_OP_WRITE, b, 0);
    clock_gettime(CLOCK_MONOTONIC, &done);
    CHECK(done.tv_sec - begun.tv_sec <= SUBMIT_SECONDS_MAX);
    page_check(reserved + RESERVED_BYTES / 2, tag + 2);
    through_files(fd, a, b, tag, IORING_OP_WRITE, IORING_OP_READ);
    press();
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    if (argc > 2 && strcmp(argv[2], "early") == 0) {
        early(tag);
        return victim_end();
    }
    if (argc > 2 && strcmp(argv[2], "later") == 0) {
        later(tag);
        return victim_end();
    }
    if (argc > 2) {
        CHECK(ring_open());
        ring_submit((struct io_uring_sqe){.opcode = IORING_OP_NOP});
        CHECK(ring_result() == 0);
        ballast_make(40);
        press();
        return victim_end();
    }
    ballast_make(40);
    char *a = pages_map(AREA_PAGES), *b = pages_map(AREA_PAGES), *pinned = pages_map(CHUNK_PAGES);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0);
    if (ring_open()) {
        through_files(fd, a, b, tag, IORING_OP_WRITE, IORING_OP_READ);
        pages_fill(pinned, CHUNK_PAGES, tag + 7);
        struct iovec vector = {pinned, CHUNK_PAGES * PAGE_BYTES};
        CHECK(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &vector, 1) == 0);
        for (int i = 0; i < 4; i++) {
            press();
            transfer(fd, IORING_OP_WRITE_FIXED, pinned, 0);
            memset(pinned, 1, CHUNK_PAGES * PAGE_BYTES);
            press();
            transfer(fd, IORING_OP_READ_FIXED, pinned, 0);
            pages_check(pinned, CHUNK_PAGES, tag + 7 + i);
            pages_fill(pinned, CHUNK_PAGES, tag + 8 + i);
        }
    }
    press();
    return victim_end();
}
