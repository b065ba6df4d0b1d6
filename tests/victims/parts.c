/*
 * Writes to a pipe and to a stream socket that wait for a slow reader, while a relative has others make room all the
 * time: each writes all that it was asked to, as nothing of the program's own ends it, and what is read is that.
 */
#include "victim.h"
#include <sys/socket.h>
#include <sys/uio.h>

#define OWN_PAGES (30 * MIB_PAGES)
#define WRITES 18
#define BYTES 400000
#define READ_BYTES 65536
#define PAUSE_MICROSECONDS 3000

static unsigned char byte_at(uint64_t seed, size_t at) {
    return mix(seed + at / 64) >> (at % 8 * 8);
}

/* Takes all that comes, little by little. */
static void read_all(int from, uint64_t seed) {
    unsigned char *got = malloc(READ_BYTES);
    size_t at = 0;
    ssize_t count;
    while ((count = read(from, got, READ_BYTES)) > 0) {
        for (ssize_t i = 0; i < count; i++, at++)
            CHECK(got[i] == byte_at(seed, at));
        usleep(PAUSE_MICROSECONDS);
    }
    CHECK(count == 0 && at == (size_t)WRITES * BYTES);
}

/* All of it with one call, another one each turn. */
static ssize_t write_once(int to, int is_socket, int turn, unsigned char *given) {
    struct iovec parts[2] = {{given, BYTES / 3}, {given + BYTES / 3, BYTES - BYTES / 3}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (turn % (is_socket ? 4 : 2)) {
    case 0:
        return write(to, given, BYTES);
    case 1:
        return writev(to, parts, 2);
    case 2:
        return send(to, given, BYTES, 0);
    default:
        return sendmsg(to, &message, 0);
    }
}

static void write_all(int to, int is_socket, uint64_t seed) {
    for (int turn = 0; turn < WRITES; turn++) {
        unsigned char *given = malloc(BYTES);
        for (size_t at = 0; at < BYTES; at++)
            given[at] = byte_at(seed, (size_t)turn * BYTES + at);
        CHECK(write_once(to, is_socket, turn, given) == BYTES);
        free(given);
    }
}

/* Goes through memory of its own for as long as the child goes on. */
static void press_until_end(pid_t child, struct random *random, char *own, uint64_t tag) {
    int status;
    while (waitpid(child, &status, WNOHANG) == 0)
        for (int i = 0; i < 1000; i++) {
            size_t page = below(random, OWN_PAGES);
            page_check(own + page * PAGE_BYTES, tag + page);
        }
    CHECK(status == 0);
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    struct random random = {seed};
    char *own = pages_map(OWN_PAGES);
    for (int is_socket = 0; is_socket < 2; is_socket++) {
        int ends[2];
        CHECK(is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 : pipe(ends) == 0);
        pid_t reader = fork();
        CHECK(reader >= 0);
        if (reader == 0) {
            close(ends[1]);
            read_all(ends[0], seed);
            _exit(0);
        }
        close(ends[0]);
        pid_t writer = fork();
        CHECK(writer >= 0);
        if (writer == 0) {
            write_all(ends[1], is_socket, seed);
            _exit(0);
        }
        close(ends[1]);
        pages_fill(own, OWN_PAGES, seed);
        press_until_end(writer, &random, own, seed);
        CHECK_CHILD(reader);
    }
    note(seed);
    return victim_end();
}
