/*
 * What a program that is executed inherits of SIGBUS, SIGSYS and SIGURG: which are
 * blocked, which are ignored, and which are pending. And that all of it is as before
 * where none is executed, whatever comes meanwhile.
 */
#include "victim.h"
#include <sched.h>
#include <spawn.h>

#define MIB 40
#define PAGES 64
#define FAILURES 500
#define VALUE 4711

static const int ours[] = {SIGBUS, SIGSYS, SIGURG};
static char *memory, *self;
static uint64_t tag;

/* Bits of the signals above. */
enum { BUS = 1, SYS = 2, URG = 4, ALL = 7 };

static unsigned bits(const sigset_t *set) {
    unsigned found = 0;
    for (unsigned i = 0; i < COUNT(ours); i++)
        found |= (unsigned)sigismember(set, ours[i]) << i;
    return found;
}

static sigset_t set_of(unsigned which) {
    sigset_t set;
    sigemptyset(&set);
    for (unsigned i = 0; i < COUNT(ours); i++)
        if (which >> i & 1)
            sigaddset(&set, ours[i]);
    return set;
}

static unsigned blocked(void) {
    sigset_t set;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    return bits(&set);
}

static unsigned ignored(void) {
    unsigned found = 0;
    for (unsigned i = 0; i < COUNT(ours); i++) {
        struct sigaction action;
        CHECK(sigaction(ours[i], NULL, &action) == 0);
        found |= (unsigned)(action.sa_handler == SIG_IGN) << i;
    }
    return found;
}

static unsigned pending(void) {
    sigset_t set;
    CHECK(sigpending(&set) == 0);
    return bits(&set);
}

static void block(unsigned which) {
    sigset_t set = set_of(which);
    CHECK(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
}

static void ignore(unsigned which) {
    for (unsigned i = 0; i < COUNT(ours); i++)
        CHECK(signal(ours[i], which >> i & 1 ? SIG_IGN : SIG_DFL) != SIG_ERR);
}

static void take_all(unsigned which) {
    sigset_t set = set_of(which);
    for (unsigned left = which; left;) {
        siginfo_t info;
        int signal = sigtimedwait(&set, &info, &(struct timespec){0, 0});
        CHECK(signal > 0 && info.si_code == SI_QUEUE && info.si_value.sival_int == VALUE);
        for (unsigned i = 0; i < COUNT(ours); i++)
            if (ours[i] == signal)
                left &= ~(1u << i);
    }
}

/* The program that is executed: what it finds, and whether it can live with it. */
static int probe(char **argv) {
    unsigned wanted[3], found[3] = {blocked(), ignored(), pending()};
    for (int i = 0; i < 3; i++)
        wanted[i] = (unsigned)strtoul(argv[2 + i], NULL, 0);
    for (int i = 0; i < 3; i++)
        if (wanted[i] != found[i]) {
            static const char *const names[] = {"blocked", "ignored", "pending"};
            dprintf(2, "%s: %x, should be %x\n", names[i], found[i], wanted[i]);
            return 1;
        }
    if (strcmp(argv[5], "fill") == 0) {
        ballast_make(MIB);
        press();
        CHECK(blocked() == wanted[0] && ignored() == wanted[1] && pending() == wanted[2]);
    }
    take_all(wanted[2]);
    return 0;
}

static char words[3][16], *list[8];

static char **arguments(unsigned mask, unsigned ignored, unsigned pending, char *last) {
    unsigned values[] = {mask, ignored, pending};
    list[0] = self, list[1] = "probe";
    for (int i = 0; i < 3; i++)
        snprintf(list[2 + i] = words[i], sizeof words[i], "%u", values[i]);
    list[5] = last, list[6] = NULL;
    return list;
}

static void send_self(unsigned which) {
    for (unsigned i = 0; i < COUNT(ours); i++)
        if (which >> i & 1)
            CHECK(sigqueue(getpid(), ours[i], (union sigval){VALUE}) == 0);
}

static void *wait_in_vain(void *argument) {
    for (uintptr_t i = (uintptr_t)argument;; i++)
        page_check(memory + i % PAGES * PAGE_BYTES, tag + i % PAGES);
    return NULL;
}

extern char **environ;

/* Executed by a child that has a copy of this memory, one that shares it, and by libc. */
static void executes(unsigned mask, unsigned ignores, unsigned sent, char *last) {
    char **argv = arguments(mask, ignores, sent, last);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        block(mask);
        ignore(ignores);
        send_self(sent);
        execv(self, argv);
        _exit(98);
    }
    CHECK_CHILD(child);
    unsigned before = blocked();
    argv = arguments(mask, ignores, 0, last);
    child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        block(mask);
        ignore(ignores);
        if (sent)
            execv("/nowhere", argv);
        execv(self, argv);
        _exit(98);
    }
    CHECK_CHILD(child);
    CHECK(blocked() == before && ignored() == 0);
    ignore(ignores);
    posix_spawnattr_t attributes;
    sigset_t blocks = set_of(mask), defaults = set_of(URG);
    CHECK(posix_spawnattr_init(&attributes) == 0);
    CHECK(posix_spawnattr_setsigmask(&attributes, &blocks) == 0);
    CHECK(posix_spawnattr_setsigdefault(&attributes, &defaults) == 0);
    CHECK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ==
          0);
    argv = arguments(mask, ignores & ~URG, 0, last);
    CHECK(posix_spawn(&child, self, NULL, &attributes, argv, environ) == 0);
    CHECK_CHILD(child);
    CHECK(posix_spawnattr_destroy(&attributes) == 0);
    CHECK(blocked() == before && ignored() == ignores);
    ignore(0);
}

/* By one thread of several. */
static void executes_beside(void) {
    char **argv = arguments(ALL, 0, 0, "go");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pthread_t threads[3];
        for (uintptr_t i = 0; i < COUNT(threads); i++)
            CHECK(pthread_create(&threads[i], NULL, wait_in_vain, (void *)i) == 0);
        sched_yield();
        block(ALL);
        execv(self, argv);
        _exit(98);
    }
    CHECK_CHILD(child);
}

static volatile sig_atomic_t caught;

static void on_usr2(int signal) {
    caught += signal == SIGUSR2;
}

static int sets_actions(void *unused) {
    (void)unused;
    struct sigaction action = {.sa_handler = on_usr2};
    int failed = sigaction(SIGUSR2, &action, NULL) || signal(SIGBUS, SIG_IGN) == SIG_ERR;
    raw(SYS_exit_group, failed, 0, 0, 0, 0, 0);
    return 0;
}

/* A child that shares the actions, too, and changes them. */
static void shares_actions(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *stack_end = (char *)pages_map(PAGES) + PAGES * PAGE_BYTES;
        int flags = CLONE_VM | CLONE_SIGHAND | CLONE_VFORK | SIGCHLD;
        CHECK_CHILD(clone(sets_actions, stack_end, flags, NULL));
        CHECK(raise(SIGUSR2) == 0 && caught == 1 && ignored() == BUS);
        CHECK(raise(SIGBUS) == 0 && execv("/nowhere", list) == -1 && ignored() == BUS);
        _exit(0);
    }
    CHECK_CHILD(child);
}

static volatile sig_atomic_t comes;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    CHECK(info->si_code == SI_USER);
    CHECK(blocked() == ALL && ignored() == (BUS | SYS));
    page_check(memory + comes % PAGES * PAGE_BYTES, tag + comes % PAGES);
    comes++;
}

/* A program that is not there, while signals come. */
static void fails(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
        ignore(BUS | SYS);
        block(ALL);
        send_self(URG);
        pid_t sender = fork();
        CHECK(sender >= 0);
        /* With pauses: where the next one always waits already, nothing but the handler runs. */
        if (sender == 0)
            for (unsigned turn = 0;; turn++) {
                if (kill(getppid(), SIGUSR1) != 0 || getppid() == 1)
                    _exit(0);
                usleep(turn * 37 % 200);
            }
        for (int i = 0; i < FAILURES || comes < 100; i++) {
            CHECK(execv("/nowhere", list) == -1 && errno == ENOENT);
            CHECK(blocked() == ALL && ignored() == (BUS | SYS) && pending() == URG);
            page_check(memory + i % PAGES * PAGE_BYTES, tag + i % PAGES);
        }
        CHECK(kill(sender, SIGKILL) == 0 && waitpid(sender, NULL, 0) == sender);
        block(0);
        CHECK(pending() == 0);
        press();
        _exit(0);
    }
    CHECK_CHILD(child);
}

/* What is pending while memory gets short: asked for all the time. */
static void asks_on(void) {
    block(ALL);
    send_self(ALL);
    pid_t child = fork(), ended;
    CHECK(child >= 0);
    if (child == 0) {
        ballast_make(MIB);
        press();
        _exit(0);
    }
    int status;
    do {
        ended = waitpid(child, &status, WNOHANG);
        CHECK(pending() == ALL && blocked() == ALL && ignored() == 0);
    } while (ended == 0);
    CHECK(ended == child && status == 0);
    take_all(ALL);
    block(0);
}

int main(int argc, char **argv) {
    if (argc > 5 && strcmp(argv[1], "probe") == 0)
        return probe(argv);
    tag = mix(victim_start(argc, argv));
    self = argv[0];
    memory = pages_map(PAGES);
    pages_fill(memory, PAGES, tag);
    for (int turn = 0; turn < 2; turn++) {
        executes(0, 0, 0, "go");
        executes(ALL, 0, ALL, "go");
        executes(ALL, ALL & ~URG, URG, "go");
        executes(0, ALL, 0, "go");
        executes(BUS | URG, SYS, 0, turn ? "fill" : "go");
        if (turn == 0) {
            asks_on();
            ballast_make(MIB);
        }
    }
    note(tag);
    executes_beside();
    shares_actions();
    fails();
    pages_check(memory, PAGES, tag);
    return victim_end();
}
