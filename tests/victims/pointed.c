/*
 * Calls whose argument points to further memory, which lies on absent pages as
 * the argument does: requests of ptrace, filters of sockets, keys, semaphores,
 * messages, programs for the kernel, and random bytes for more memory than the
 * budget. What a container forbids is left out.
 */
#include "victim.h"
#include <elf.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <stddef.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/user.h>

#define SLOTS 1024
#define KEY_BYTES 16000
#define SEMAPHORES 4000
#define MESSAGE_BYTES 64
#define RANDOM_PAGES (96 * MIB_PAGES)
static char *slots;
static size_t next_slot;

/* Pages of their own for one argument; a neighbour is left unused so that nothing comes with them. */
static void *slot(size_t pages) {
    CHECK(next_slot + pages < SLOTS);
    char *start = slots + next_slot * PAGE_BYTES;
    next_slot += pages + 2;
    memset(start, 0x5a, pages * PAGE_BYTES);
    return start;
}

/* Whether the system lets such a call be made at all. */
static int is_allowed(long result) {
    return result >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS);
}

static void messages(void) {
    struct message {
        long type;
        char bytes[MESSAGE_BYTES];
    };
    /* The last of the bytes alone lie on another page. */
    size_t at = PAGE_BYTES - sizeof(struct message) + sizeof(long);
    struct message *sent = (void *)((char *)slot(3) + at), *received = (void *)((char *)slot(3) + at);
    int queue = msgget(IPC_PRIVATE, 0600);
    if (!is_allowed(queue))
        return;
    CHECK(queue >= 0);
    sent->type = 1;
    memset(sent->bytes, 7, MESSAGE_BYTES);
    press();
    CHECK(msgsnd(queue, sent, MESSAGE_BYTES, 0) == 0);
    press();
    CHECK(msgrcv(queue, received, MESSAGE_BYTES, 0, IPC_NOWAIT) == MESSAGE_BYTES);
    CHECK(memcmp(sent, received, sizeof *sent) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
}

static void semaphores(void) {
    unsigned short *values = slot(2);
    int set = semget(IPC_PRIVATE, SEMAPHORES, 0600);
    if (set < 0)
        return;
    for (int i = 0; i < SEMAPHORES; i++)
        values[i] = i % 100;
    press();
    CHECK(semctl(set, 0, SETALL, values) == 0);
    memset(values, 0, SEMAPHORES * sizeof *values);
    press();
    CHECK(semctl(set, 0, GETALL, values) == 0 && values[SEMAPHORES - 1] == (SEMAPHORES - 1) % 100);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
}

static void tracing(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    struct user_regs_struct *one = slot(1), *other = slot(1);
    struct iovec *vector = slot(1);
    siginfo_t *information = slot(1);
    unsigned long *message = slot(1), *word = slot(1);
    sigset_t *mask = slot(1);
    *vector = (struct iovec){other, sizeof *other};
    long seized = ptrace(PTRACE_SEIZE, child, 0, 0);
    if (is_allowed(seized)) {
        int status;
        CHECK(seized == 0 && ptrace(PTRACE_INTERRUPT, child, 0, 0) == 0);
        CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
        press();
        CHECK(ptrace(PTRACE_GETREGS, child, 0, one) == 0);
        press();
        CHECK(ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, vector) == 0 && other->rip == one->rip);
        press();
        CHECK(ptrace(PTRACE_GETSIGINFO, child, 0, information) == 0);
        press();
        CHECK(ptrace(PTRACE_GETSIGMASK, child, sizeof(uint64_t), mask) == 0);
        press();
        CHECK(ptrace(PTRACE_GETEVENTMSG, child, 0, message) == 0);
        press();
        size_t place = offsetof(struct user_regs_struct, rip);
        CHECK(syscall(SYS_ptrace, PTRACE_PEEKUSER, child, place, word) == 0 && *word == one->rip);
    }
    kill(child, SIGKILL);
    CHECK(WTERMSIG(wait_for(child)) == SIGKILL);
}

static void filters(void) {
    struct sock_filter *filter = slot(1);
    struct sock_fprog *program = slot(1);
    filter[0] = (struct sock_filter){BPF_RET | BPF_K, 0, 0, 0xffff};
    *program = (struct sock_fprog){1, filter};
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) == 0);
    press();
    CHECK(setsockopt(fds[0], SOL_SOCKET, SO_ATTACH_FILTER, program, sizeof *program) == 0);
    close(fds[0]), close(fds[1]);
}

static void keys(void) {
    char *bytes = slot(5);
    strcpy(bytes, "zpager-victim");
    press();
    long key = syscall(SYS_add_key, "user", bytes, bytes + PAGE_BYTES, KEY_BYTES,
                       KEY_SPEC_PROCESS_KEYRING);
    if (!is_allowed(key) || (key < 0 && errno == EDQUOT))
        return;
    CHECK(key > 0);
    press();
    CHECK(syscall(SYS_keyctl, KEYCTL_READ, key, bytes, KEY_BYTES) == KEY_BYTES);
    CHECK(bytes[0] == 0x5a && bytes[KEY_BYTES - 1] == 0x5a);
}

static void programs(void) {
    struct bpf_insn *instructions = slot(2);
    char *licence = slot(1);
    union bpf_attr *attributes = slot(1);
    const unsigned count = 800;
    for (unsigned i = 0; i < count; i++) /* r0 = 0 */
        instructions[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K};
    instructions[count - 1] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
    strcpy(licence, "GPL");
    memset(attributes, 0, sizeof *attributes);
    attributes->prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    attributes->insn_cnt = count;
    attributes->insns = (uintptr_t)instructions;
    attributes->license = (uintptr_t)licence;
    press();
    int fd = syscall(SYS_bpf, BPF_PROG_LOAD, attributes, sizeof *attributes);
    CHECK(!is_allowed(fd) || fd >= 0);
    close(fd);
}

static void random_bytes(void) {
    char *big = pages_map(RANDOM_PAGES);
    size_t bytes = RANDOM_PAGES * PAGE_BYTES;
    CHECK(syscall(SYS_getrandom, big, bytes, 0) == (long)bytes);
    for (size_t at = 0; at + 64 <= bytes; at += 64 * PAGE_BYTES) {
        int zeros = 0;
        for (int i = 0; i < 64; i++)
            zeros += big[at + i] == 0;
        CHECK(zeros < 32);
    }
    CHECK(munmap(big, bytes) == 0);
    CHECK(syscall(SYS_getrandom, address(16), bytes, 0) == -1 && errno == EFAULT);
}

int main(int argc, char **argv) {
    note(victim_start(argc, argv));
    ballast_make(28);
    slots = pages_map(SLOTS);
    messages();
    semaphores();
    tracing();
    filters();
    keys();
    programs();
    random_bytes();
    return victim_end();
}
