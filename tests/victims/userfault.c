/*
 * A userfaultfd of the program's own, over memory that was used before: missing pages are served by
 * a thread of the program, from memory that has left RAM, write-protected ones are told of. Where the
 * sandbox has no such thing, only the memory is checked.
 */
#include "victim.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

#define PAGES 256
#define FRESH 128

static int fd;
static char *memory, *source;
static uint64_t tag;
static volatile int served, protected_writes;

/* The page at `i` of the registered memory is served from a page of `source`. */
static void *serve(void *argument) {
    (void)argument;
    struct uffd_msg *message = pages_map(16);
    struct uffdio_copy *copy = pages_map(16);
    for (;;) {
        struct pollfd ready = {fd, POLLIN, 0};
        CHECK(poll(&ready, 1, 60000) == 1);
        ssize_t bytes = read(fd, message, sizeof *message);
        if (bytes < 0 && errno == EAGAIN)
            continue;
        CHECK(bytes == sizeof *message && message->event == UFFD_EVENT_PAGEFAULT);
        uintptr_t at = message->arg.pagefault.address & ~(PAGE_BYTES - 1);
        size_t page = (at - (uintptr_t)memory) / PAGE_BYTES;
        CHECK(page < PAGES);
        if (message->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
            protected_writes++;
            struct uffdio_writeprotect open = {{at, PAGE_BYTES}, 0};
            CHECK(ioctl(fd, UFFDIO_WRITEPROTECT, &open) == 0);
            continue;
        }
        served++;
        *copy = (struct uffdio_copy){at, (uintptr_t)source + page * PAGE_BYTES, PAGE_BYTES, 0, 0};
        if (page % 8 == 0)
            press();
        CHECK(ioctl(fd, UFFDIO_COPY, copy) == 0 || errno == EEXIST);
    }
    return NULL;
}

static int open_own(void) {
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        return 0;
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
    struct uffdio_register *range = pages_map(16);
    *range = (struct uffdio_register){{(uintptr_t)memory, PAGES * PAGE_BYTES},
                                      UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP, 0};
    press();
    CHECK(ioctl(fd, UFFDIO_REGISTER, range) == 0);
    munmap(range, 16 * PAGE_BYTES);
    return 1;
}

int main(int argc, char **argv) {
    tag = mix(victim_start(argc, argv));
    ballast_make(28);
    memory = pages_map(PAGES), source = pages_map(PAGES);
    pages_fill(source, PAGES, tag);
    /* Half of it is there before, and what is to be missing is made so: it may have come with it. */
    pages_fill(memory, PAGES - FRESH, tag);
    press();
    CHECK(madvise(memory + (PAGES - FRESH) * PAGE_BYTES, FRESH * PAGE_BYTES, MADV_DONTNEED) == 0);
    int is_there = open_own();
    if (is_there) {
        pthread_t server;
        CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
        press();
        pages_check(memory, PAGES, tag);
        CHECK(served == FRESH);
        /* Dropped, and asked for again. */
        CHECK(madvise(memory + 10 * PAGE_BYTES, 20 * PAGE_BYTES, MADV_DONTNEED) == 0);
        pages_check(memory, PAGES, tag);
        CHECK(served == FRESH + 20);
        struct uffdio_writeprotect protect = {{(uintptr_t)memory, PAGES * PAGE_BYTES},
                                              UFFDIO_WRITEPROTECT_MODE_WP};
        CHECK(ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0);
        press();
        pages_check(memory, PAGES, tag);
        CHECK(protected_writes == 0);
        pages_fill(memory + 50 * PAGE_BYTES, 40, tag + 1);
        CHECK(protected_writes == 40);
        pages_check(memory + 50 * PAGE_BYTES, 40, tag + 1);
        pages_fill(memory + 50 * PAGE_BYTES, 40, tag + 50);
        CHECK(protected_writes == 40);
        struct uffdio_range range = {(uintptr_t)memory, PAGES * PAGE_BYTES};
        CHECK(ioctl(fd, UFFDIO_UNREGISTER, &range) == 0);
        press();
        pages_check(memory, PAGES, tag);
        CHECK(madvise(memory, PAGES * PAGE_BYTES, MADV_DONTNEED) == 0);
        zeros_check(memory, PAGES * PAGE_BYTES);
        pages_fill(memory, PAGES, tag);
    }
    pages_check(source, PAGES, tag);
    note(tag);
    return victim_end();
}
