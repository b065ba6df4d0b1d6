/* sendmsg, recvmsg and their many-message forms: names, control data and vectors in absent memory.
 */
#include "victim.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BATCH 16
#define PART_BYTES 3000

/* Everything one message needs, each field on a page of its own. */
struct parcel {
    union {
        struct msghdr header;
        char page0[PAGE_BYTES];
    };
    union {
        struct iovec vectors[4];
        char page1[PAGE_BYTES];
    };
    union {
        struct sockaddr_un name;
        char page2[PAGE_BYTES];
    };
    union {
        char control[CMSG_SPACE(4 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        char page3[PAGE_BYTES];
    };
    char parts[4][PAGE_BYTES];
};

static void parcel_make(struct parcel *parcel) {
    for (int i = 0; i < 4; i++)
        parcel->vectors[i] = (struct iovec){parcel->parts[i], PART_BYTES};
    parcel->header = (struct msghdr){
        .msg_name = &parcel->name,
        .msg_namelen = sizeof parcel->name,
        .msg_iov = parcel->vectors,
        .msg_iovlen = 4,
        .msg_control = parcel->control,
        .msg_controllen = sizeof parcel->control,
    };
}

/* Sends the read ends of pipes, each with a byte waiting in it. */
static void rights(int from, int to, struct parcel *out, struct parcel *in) {
    int fds[4], pipes[4][2];
    for (int i = 0; i < 4; i++) {
        CHECK(pipe(pipes[i]) == 0 && write(pipes[i][1], &"abcd"[i], 1) == 1);
        fds[i] = pipes[i][0];
    }
    parcel_make(out);
    parcel_make(in);
    out->header.msg_name = NULL;
    out->header.msg_namelen = 0;
    out->header.msg_controllen = CMSG_SPACE(sizeof fds);
    struct cmsghdr *control = CMSG_FIRSTHDR(&out->header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(control), fds, sizeof fds);
    press();
    CHECK(sendmsg(from, &out->header, 0) == 4 * PART_BYTES);
    press();
    CHECK(recvmsg(to, &in->header, MSG_CMSG_CLOEXEC) == 4 * PART_BYTES);
    for (int i = 0; i < 4; i++)
        CHECK(memcmp(in->parts[i], out->parts[i], PART_BYTES) == 0);
    control = CMSG_FIRSTHDR(&in->header);
    CHECK(control && control->cmsg_type == SCM_RIGHTS && control->cmsg_len == CMSG_LEN(sizeof fds));
    int received[4];
    memcpy(received, CMSG_DATA(control), sizeof received);
    for (int i = 0; i < 4; i++) {
        char byte;
        CHECK(read(received[i], &byte, 1) == 1 && byte == "abcd"[i]);
        note(byte);
        close(received[i]);
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
}

static int bound_socket(const char *path) {
    struct sockaddr_un *name = pages_map(16);
    name->sun_family = AF_UNIX;
    strcpy(name->sun_path, path);
    unlink(path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    press();
    CHECK(fd >= 0);
    CHECK(
        bind(fd, (struct sockaddr *)name, offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1)
        == 0);
    return fd;
}

static void batches(struct parcel *out, struct parcel *in) {
    int a = bound_socket("victim-a"), b = bound_socket("victim-b");
    struct mmsghdr *sent = pages_map(16), *received = pages_map(16);
    for (int i = 0; i < BATCH; i++) {
        parcel_make(&out[i]);
        parcel_make(&in[i]);
        out[i].name = (struct sockaddr_un){.sun_family = AF_UNIX, .sun_path = "victim-b"};
        out[i].header.msg_control = NULL;
        out[i].header.msg_controllen = 0;
        out[i].vectors[3].iov_len = i;
        sent[i].msg_hdr = out[i].header;
        received[i].msg_hdr = in[i].header;
    }
    /* The queue of a datagram socket holds about ten messages: send and take in halves. */
    for (int first = 0; first < BATCH; first += 4) {
        press();
        CHECK(sendmmsg(a, sent + first, 4, 0) == 4);
        struct timespec *limit = pages_map(16);
        limit->tv_sec = 10;
        CHECK(recvmmsg(b, received + first, 4, 0, limit) == 4);
    }
    for (int i = 0; i < BATCH; i++) {
        CHECK(received[i].msg_len == 3 * PART_BYTES + (unsigned)i);
        CHECK(strcmp(in[i].name.sun_path, "victim-a") == 0);
        for (int k = 0; k < 3; k++)
            CHECK(memcmp(in[i].parts[k], out[i].parts[k], PART_BYTES) == 0);
        note_bytes(in[i].parts[3], i);
    }
    char *buffer = pages_map(16);
    socklen_t *length = pages_map(16);
    struct sockaddr_un *peer = pages_map(16);
    *length = sizeof *peer;
    memcpy(buffer, out[1].parts[1], PART_BYTES);
    press();
    CHECK(sendto(a, buffer, PART_BYTES, 0, (struct sockaddr *)&out[0].name, sizeof out[0].name)
          == PART_BYTES);
    press();
    CHECK(recvfrom(b, buffer, 16 * PAGE_BYTES, 0, (struct sockaddr *)peer, length) == PART_BYTES);
    CHECK(memcmp(buffer, out[1].parts[1], PART_BYTES) == 0
          && strcmp(peer->sun_path, "victim-a") == 0);
    unlink("victim-a");
    unlink("victim-b");
}

static void credentials(int from, int to, struct parcel *out, struct parcel *in) {
    int yes = 1;
    CHECK(setsockopt(to, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0);
    parcel_make(out);
    parcel_make(in);
    out->header.msg_name = out->header.msg_control = NULL;
    out->header.msg_namelen = out->header.msg_controllen = 0;
    press();
    CHECK(sendmsg(from, &out->header, 0) == 4 * PART_BYTES);
    CHECK(recvmsg(to, &in->header, 0) == 4 * PART_BYTES);
    struct cmsghdr *control = CMSG_FIRSTHDR(&in->header);
    CHECK(control && control->cmsg_type == SCM_CREDENTIALS);
    struct ucred credentials;
    memcpy(&credentials, CMSG_DATA(control), sizeof credentials);
    CHECK(credentials.pid == getpid() && credentials.uid == getuid());
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(28);
    size_t pages = 2 * BATCH * sizeof(struct parcel) / PAGE_BYTES;
    struct parcel *parcels = pages_map(pages);
    for (int i = 0; i < 2 * BATCH; i++)
        pages_fill(parcels[i].parts, 4, tag + 4 * i);
    int fds[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    rights(fds[0], fds[1], &parcels[0], &parcels[BATCH]);
    credentials(fds[0], fds[1], &parcels[1], &parcels[BATCH + 1]);
    batches(parcels, parcels + BATCH);
    return victim_end();
}
