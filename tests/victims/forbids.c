/*
 * No victim itself: runs a program under a filter of system calls that refuses some with EPERM, as that of a container
 * does (seccomp(2)).
 *
 * usage: forbids NUMBER... -- PROGRAM ARGUMENT...
 */
#include "victim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

#define CALLS_MAX 16

int main(int argc, char **argv) {
    struct sock_filter instructions[2 * CALLS_MAX + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short count = 1;
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        CHECK(at <= CALLS_MAX);
        unsigned number = (unsigned)atoi(argv[at]);
        instructions[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        instructions[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    CHECK(at + 1 < argc);
    instructions[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {count, instructions};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    execvp(argv[at + 1], argv + at + 1);
    return 127;
}
