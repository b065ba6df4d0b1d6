/* Robust mutexes in memory that has left RAM when the thread that holds them ends, or becomes
   another program, which leaves those behind that lie in shared memory. */
#include "victim.h"

#define MUTEXES 300
#define ROUNDS 4

static pthread_mutex_t *mutexes[MUTEXES];
static int ready[2], go[2];

static void *hold_all(void *argument) {
    (void)argument;
    for (int i = 0; i < MUTEXES; i++)
        CHECK(pthread_mutex_lock(mutexes[i]) == 0);
    char byte = 0;
    CHECK(write(ready[1], &byte, 1) == 1);
    CHECK(read(go[0], &byte, 1) == 1);
    return NULL;
}

/* Locks a shared mutex, and others after it, so that it is the last in the list. */
static void lock_and_execute(pthread_mutex_t *shared) {
    CHECK(pthread_mutex_lock(shared) == 0);
    for (int i = 0; i < MUTEXES; i++)
        CHECK(pthread_mutex_lock(mutexes[i]) == 0);
    press();
    execl("/bin/true", "true", NULL);
    _exit(1);
}

static void execute(pthread_mutexattr_t *robust) {
    pthread_mutex_t *shared = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    CHECK(pthread_mutexattr_setpshared(robust, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(shared, robust) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        lock_and_execute(shared);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 2;
    CHECK(pthread_mutex_timedlock(shared, &limit) == EOWNERDEAD);
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    ballast_make(28);
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pthread_mutexattr_t robust;
    CHECK(pthread_mutexattr_init(&robust) == 0);
    CHECK(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
    char *pages = pages_map(MUTEXES * 5);
    pages_fill(pages, MUTEXES * 5, tag);
    for (int i = 0; i < MUTEXES; i++) {
        mutexes[i] = (pthread_mutex_t *)(pages + i * 5 * PAGE_BYTES + i % 100 * 40 / 8 * 8);
        CHECK(pthread_mutex_init(mutexes[i], &robust) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, hold_all, NULL) == 0);
        char byte = 0;
        CHECK(read(ready[0], &byte, 1) == 1);
        press();
        CHECK(write(go[1], &byte, 1) == 1);
        CHECK(pthread_join(thread, NULL) == 0);
        for (int i = 0; i < MUTEXES; i++) {
            struct timespec limit;
            clock_gettime(CLOCK_REALTIME, &limit);
            limit.tv_sec += 2;
            CHECK(pthread_mutex_timedlock(mutexes[i], &limit) == EOWNERDEAD);
            CHECK(pthread_mutex_consistent(mutexes[i]) == 0);
            CHECK(pthread_mutex_unlock(mutexes[i]) == 0);
            note(i);
        }
    }
    execute(&robust);
    return victim_end();
}
