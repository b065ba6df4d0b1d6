/* Memory reached from outside its thread: another process's, /proc/self/mem, and by a debugger. */
#include "victim.h"
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;

static void through_proc(uint64_t tag) {
    char *page = pages_map(16);
    int fd = open("/proc/self/mem", O_RDWR);
    CHECK(fd >= 0);
    for (size_t i = 0; i < BIG_PAGES; i += 111) {
        CHECK(pread(fd, page, PAGE_BYTES, (off_t)(big + i * PAGE_BYTES)) == (ssize_t)PAGE_BYTES);
        page_check(page, tag + i);
        CHECK(pwrite(fd, page, PAGE_BYTES, (off_t)(big + i * PAGE_BYTES)) == (ssize_t)PAGE_BYTES);
    }
    close(fd);
}

static void of_a_child(uint64_t tag) {
    int fds[2];
    char *copy = pages_map(MIB_PAGES);
    CHECK(pipe(fds) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pages_fill(big, BIG_PAGES, tag + 5);
        CHECK(write(fds[1], "r", 1) == 1);
        for (;;)
            pause();
    }
    char ready;
    CHECK(read(fds[0], &ready, 1) == 1);
    for (size_t i = 0; i < BIG_PAGES; i += MIB_PAGES) {
        struct iovec local = {copy, MIB_PAGES * PAGE_BYTES},
                     remote = {big + i * PAGE_BYTES, MIB_PAGES * PAGE_BYTES};
        CHECK(process_vm_readv(child, &local, 1, &remote, 1, 0) == (ssize_t)local.iov_len);
        pages_check(copy, MIB_PAGES, tag + 5 + i);
    }
    CHECK(ptrace(PTRACE_ATTACH, child, 0, 0) == 0);
    int status = wait_for(child);
    CHECK(WIFSTOPPED(status));
    for (size_t i = 0; i < BIG_PAGES; i += 501) {
        errno = 0;
        CHECK((uint64_t)ptrace(PTRACE_PEEKDATA, child, big + i * PAGE_BYTES, 0)
              == page_word(tag + 5 + i, 0));
        CHECK(errno == 0);
    }
    CHECK(ptrace(PTRACE_DETACH, child, 0, 0) == 0 && kill(child, SIGKILL) == 0);
    CHECK(WTERMSIG(wait_for(child)) == SIGKILL);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, tag);
    through_proc(tag);
    of_a_child(tag);
    pages_check(big, BIG_PAGES, tag);
    return victim_end();
}
