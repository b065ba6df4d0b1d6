/* Touches the pages of a buffer in the order that a file tells, and nothing else of any size.

   order FILE PAGES: prints the buffer's address. FILE holds steps of 8 bytes: what to do, a
   value, a page. What is told is read at once, to where the pager does not look. */
#include "victim.h"

struct step {
    uint8_t what;
    uint8_t unused;
    uint16_t value;
    uint32_t page;
};

#define STEPS_MAX 100000

static uint64_t (*buffer)[PAGE_BYTES / 8];
static size_t pages;

static void tell_address(void) {
    char line[32];
    int length = snprintf(line, sizeof line, "%p\n", (void *)buffer);
    CHECK(write(1, line, length) == length);
}

/* Contents that a value stands for: an even one shrinks, an odd one does not. */
static void fill(uint64_t *page, uint16_t value) {
    uint64_t state = (value + 1) * 0x9E3779B97F4A7C15u;
    for (size_t at = 0; at < PAGE_BYTES / 8; at++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        page[at] = value & 1 ? state : value * 0x10001u + (at & 15) * 257;
    }
}

static const struct step *run(const struct step *step, const struct step *end);

struct part {
    const struct step *step, *end;
};

static void *run_part(void *part) {
    run(((struct part *)part)->step, ((struct part *)part)->end);
    return NULL;
}

/* Does steps up to the end or to a 'j'; gives the step behind it. */
static const struct step *run(const struct step *step, const struct step *end) {
    volatile uint64_t sink;
    while (step < end) {
        uint64_t *page = buffer[step->page];
        const struct step *now = step++;
        switch (now->what) {
        case 'r': /* read */
            sink = *page;
            (void)sink;
            break;
        case 'w': /* write everywhere */
            fill(page, now->value);
            break;
        case 's': /* write one value everywhere */
            for (size_t at = 0; at < PAGE_BYTES / 8; at++)
                page[at] = now->value;
            break;
        case 'o': /* write what is there */
            *(volatile uint64_t *)page = *(volatile uint64_t *)page;
            break;
        case 'd': /* give back so many pages */
            CHECK(madvise(page, now->value * PAGE_BYTES, MADV_DONTNEED) == 0);
            break;
        case 'm': /* move the buffer elsewhere */
            page = mmap(NULL, pages * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(page != MAP_FAILED);
            buffer = mremap(buffer, pages * PAGE_BYTES, pages * PAGE_BYTES,
                            MREMAP_MAYMOVE | MREMAP_FIXED, page);
            CHECK(buffer == (void *)page);
            tell_address();
            break;
        case 'i': { /* have the kernel fill so many pages */
            int zero = open("/dev/zero", O_RDONLY);
            size_t bytes = now->value * PAGE_BYTES;
            CHECK(zero >= 0 && read(zero, page, bytes) == (ssize_t)bytes && close(zero) == 0);
            break;
        }
        case 'f': { /* a child does what follows */
            int status;
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                run(step, end);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            while (step < end && (step++)->what != 'j')
                ;
            break;
        }
        case 't': { /* a thread does what follows, at the same time */
            pthread_t thread;
            struct part part = {step, end};
            CHECK(pthread_create(&thread, NULL, run_part, &part) == 0);
            while (step < end && (step++)->what != 'j')
                ;
            step = run(step, end);
            CHECK(pthread_join(thread, NULL) == 0);
            break;
        }
        case 'k': /* be killed */
            kill(getpid(), SIGKILL);
            break;
        case 'j':
            return step;
        default:
            CHECK(!"a known step");
        }
    }
    return step;
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    struct step steps[STEPS_MAX];
    int file = open(argv[1], O_RDONLY);
    ssize_t bytes = read(file, steps, sizeof steps);
    CHECK(bytes >= 0 && bytes % sizeof steps[0] == 0 && close(file) == 0);
    pages = strtoul(argv[2], NULL, 10);
    buffer = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(buffer != MAP_FAILED);
    tell_address();
    run(steps, steps + bytes / sizeof steps[0]);
    return 7;
}
