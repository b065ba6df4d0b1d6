/* Threads and children made by the bare clone and clone3, on stacks in managed memory. */
#include "victim.h"
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/uio.h>

#define BIG_PAGES (40 * MIB_PAGES)
#define STACK_PAGES 64
#define ROUNDS 40

static char *big;

/* What a cloned thread gets; it has no libc to lean on, so it does bare calls alone. */
struct job {
    uint64_t tag;
    uint64_t sum;
    int pipe_fd;
    uint32_t finished;
};

static uint64_t wander(uint64_t tag, int steps) {
    struct random random = {tag};
    uint64_t sum = 0;
    for (int i = 0; i < steps; i++) {
        size_t page = below(&random, BIG_PAGES);
        uint64_t word = *(volatile uint64_t *)(big + page * PAGE_BYTES);
        if (word != page_word(page, 0))
            raw(SYS_exit_group, 98, 0, 0, 0, 0, 0);
        sum = mix(sum + word);
    }
    return sum;
}

static void job_run(struct job *job) {
    char frame[3 * PAGE_BYTES];
    char *aligned = (char *)(((uintptr_t)frame + PAGE_BYTES - 1) & -PAGE_BYTES);
    page_fill(aligned, job->tag);
    job->sum = wander(job->tag, 300);
    page_check(aligned, job->tag);
    /* A buffer on this stack and one in managed memory, both read by the kernel. */
    if (raw(SYS_write, job->pipe_fd, (long)aligned, 100, 0, 0, 0) != 100)
        raw(SYS_exit_group, 97, 0, 0, 0, 0, 0);
    if (raw(SYS_write, job->pipe_fd, (long)(big + (job->tag % BIG_PAGES) * PAGE_BYTES), 100, 0, 0,
            0)
        != 100)
        raw(SYS_exit_group, 96, 0, 0, 0, 0, 0);
    __atomic_store_n(&job->finished, 1, __ATOMIC_RELEASE);
    raw(SYS_futex, (long)&job->finished, FUTEX_WAKE, 1, 0, 0, 0);
}

/*
 * clone with the given flags; the child runs `run(job)` on the stack that ends
 * at `stack_end`, then leaves by the exit call. Returns the child's id.
 */
static long clone_run(unsigned long flags, char *stack_end, void (*run)(struct job *),
                      struct job *job, int *id) {
    long result;
    register long r10 __asm__("r10") = (long)id;
    register long r8 __asm__("r8") = 0;
    register void (*r12)(struct job *) __asm__("r12") = run;
    register struct job *r13 __asm__("r13") = job;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "xor %%edi, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt\n\t"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack_end), "d"(id), "r"(r10), "r"(r8),
                       "r"(r12), "r"(r13), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory");
    return result;
}

static void job_end(struct job *job, int read_fd) {
    while (!__atomic_load_n(&job->finished, __ATOMIC_ACQUIRE))
        raw(SYS_futex, (long)&job->finished, FUTEX_WAIT, 0, 0, 0, 0);
    char bytes[200], wanted[PAGE_BYTES];
    CHECK(read(read_fd, bytes, 200) == 200);
    page_fill(wanted, job->tag);
    CHECK(memcmp(bytes, wanted, 100) == 0);
    page_fill(wanted, job->tag % BIG_PAGES);
    CHECK(memcmp(bytes + 100, wanted, 100) == 0);
    note(job->sum);
}

static void as_threads(char *stacks, uint64_t tag, int fds[2]) {
    const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD
                                | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    struct job *job = pages_map(16);
    int *id = (int *)(job + 1);
    for (int round = 0; round < ROUNDS; round++) {
        *job = (struct job){.tag = tag + round, .pipe_fd = fds[1]};
        CHECK(clone_run(flags, stacks + STACK_PAGES * PAGE_BYTES, job_run, job, id) > 0);
        wander(tag, 200);
        job_end(job, fds[0]);
        /* Its stack may be used again only when the kernel has cleared the id. */
        int left;
        while ((left = __atomic_load_n(id, __ATOMIC_ACQUIRE)) != 0)
            raw(SYS_futex, (long)id, FUTEX_WAIT, left, 0, 0, 0);
        if (round % 8 == 0)
            wander(tag + round, 8000);
    }
}

/* Reads memory by the id of a process that has the same memory, and may have ended by now. */
static void by_id(long child, uint64_t tag) {
    static char found[16 * PAGE_BYTES];
    size_t page = tag % (BIG_PAGES - 16);
    struct iovec local = {found, sizeof found};
    struct iovec remote = {big + page * PAGE_BYTES, sizeof found};
    ssize_t got = process_vm_readv((pid_t)child, &local, 1, &remote, 1, 0);
    if (got < 0)
        CHECK(errno == ESRCH);
    else
        CHECK(got == sizeof found);
    for (size_t i = 0; got > 0 && i < 16; i++)
        page_check(found + i * PAGE_BYTES, page + i);
}

/* A process in the same memory, with and without the parent waiting for it. */
static void as_processes(char *stacks, uint64_t tag, int fds[2], unsigned long extra_flags) {
    struct job *job = pages_map(16);
    for (int round = 0; round < ROUNDS / 2; round++) {
        *job = (struct job){.tag = tag + round, .pipe_fd = fds[1]};
        wander(tag + round, 2000);
        long child = clone_run(CLONE_VM | SIGCHLD | extra_flags, stacks + STACK_PAGES * PAGE_BYTES,
                               job_run, job, NULL);
        CHECK(child > 0);
        if (extra_flags & CLONE_VFORK)
            CHECK(job->finished);
        else
            by_id(child, mix(tag + round));
        job_end(job, fds[0]);
        CHECK_CHILD(child);
    }
}

/* Children with memory of their own, by both calls, without libc's fork; some share descriptors. */
static void as_forks(uint64_t tag) {
    struct clone_args *arguments = pages_map(16);
    char *own = pages_map(MIB_PAGES);
    pages_fill(own, MIB_PAGES, tag);
    for (int round = 0; round < 10; round++) {
        wander(tag + round, 3000);
        long child;
        unsigned long flags = round % 4 < 2 ? 0 : CLONE_FILES;
        if (round % 2) {
            *arguments = (struct clone_args){.flags = flags, .exit_signal = SIGCHLD};
            child = raw(SYS_clone3, (long)arguments, sizeof *arguments, 0, 0, 0, 0);
        } else {
            child = raw(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0, 0);
        }
        CHECK(child >= 0);
        if (child == 0) {
            pages_check(own, MIB_PAGES, tag);
            pages_check(big, BIG_PAGES, 0);
            pages_fill(own, MIB_PAGES, tag + 1);
            pages_check(own, MIB_PAGES, tag + 1);
            raw(SYS_exit_group, 0, 0, 0, 0, 0, 0);
        }
        CHECK_CHILD(child);
        pages_check(own, MIB_PAGES, tag);
    }
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    char *stacks = pages_map(STACK_PAGES);
    int fds[2];
    CHECK(pipe(fds) == 0);
    as_threads(stacks, tag, fds);
    as_processes(stacks, tag + 1000, fds, CLONE_VFORK);
    as_processes(stacks, tag + 2000, fds, 0);
    as_forks(tag + 3000);
    pages_check(big, BIG_PAGES, 0);
    return victim_end();
}
