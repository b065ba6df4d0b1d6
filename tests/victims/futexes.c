/* Futexes in managed memory: raw, and under mutexes, conditions, barriers, semaphores and rwlocks.
 */
#include "victim.h"
#include <linux/futex.h>
#include <semaphore.h>

#define THREADS 6
#define ROUNDS 60
#define BIG_PAGES (24 * MIB_PAGES)

/* Each object on a page of its own, in memory that is pressed out between rounds. */
struct table {
    _Alignas(4096) pthread_mutex_t mutex;
    _Alignas(4096) pthread_cond_t condition;
    _Alignas(4096) pthread_barrier_t barrier;
    _Alignas(4096) sem_t semaphore;
    _Alignas(4096) pthread_rwlock_t rwlock;
    _Alignas(4096) pthread_mutex_t inheriting;
    _Alignas(4096) pthread_mutex_t robust;
    _Alignas(4096) uint32_t word;
    _Alignas(4096) uint64_t turn;
    _Alignas(4096) uint64_t sum;
    _Alignas(4096) uint64_t inherited;
};

static struct table *table;
static char *big;

/* Touches another part of the large area in every round, so that every thread faults. */
static void wander(uint64_t round, uint64_t thread) {
    for (size_t i = 0; i < BIG_PAGES; i += 97) {
        size_t page = (i + round * 13 + thread * 31) % BIG_PAGES;
        CHECK(*(volatile uint64_t *)(big + page * PAGE_BYTES) == page_word(page, 0));
    }
}

static void *worker(void *argument) {
    uint64_t self = (uint64_t)argument;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&table->barrier);
        wander(round, self);
        pthread_mutex_lock(&table->mutex);
        while (table->turn % THREADS != self)
            pthread_cond_wait(&table->condition, &table->mutex);
        table->sum = mix(table->sum + self);
        table->turn++;
        pthread_cond_broadcast(&table->condition);
        pthread_mutex_unlock(&table->mutex);
        pthread_rwlock_rdlock(&table->rwlock);
        wander(round + 1, self);
        pthread_rwlock_unlock(&table->rwlock);
        pthread_mutex_lock(&table->inheriting);
        table->inherited += self;
        pthread_mutex_unlock(&table->inheriting);
        sem_post(&table->semaphore);
    }
    return NULL;
}

static void *raw_waiter(void *argument) {
    (void)argument;
    struct timespec *limit = pages_map(16);
    for (uint32_t expected = 0; expected < ROUNDS; expected++) {
        *limit = (struct timespec){30, 0};
        while (__atomic_load_n(&table->word, __ATOMIC_ACQUIRE) <= expected) {
            long r = raw(SYS_futex, (long)&table->word, FUTEX_WAIT, expected, (long)limit, 0, 0);
            CHECK(r == 0 || r == -EAGAIN || r == -EINTR);
        }
    }
    return NULL;
}

static void *dies_holding(void *argument) {
    (void)argument;
    CHECK(pthread_mutex_lock(&table->robust) == 0);
    wander(1, 1);
    return NULL;
}

static void raw_futex(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, raw_waiter, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        wander(i, 3);
        __atomic_fetch_add(&table->word, 1, __ATOMIC_RELEASE);
        CHECK(raw(SYS_futex, (long)&table->word, FUTEX_WAKE, 1, 0, 0, 0) >= 0);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(raw(SYS_futex, 8, FUTEX_WAIT, 0, 0, 0, 0) == -EFAULT);
}

/* Several words with one call, which names them in a list. */
static void several(void) {
    enum { WAIT_LIST = 449, REQUEUE = 456, SIZE_U32 = 2, PRIVATE = 128 };
    struct waiter {
        uint64_t value, at;
        uint32_t flags, reserved;
    };
    uint32_t *words = pages_map(64);
    struct waiter *waiters = pages_map(16);
    for (int i = 0; i < 8; i++) {
        words[i * 8 * PAGE_WORDS * 2] = i;
        waiters[i] = (struct waiter){i, (uint64_t)&words[i * 8 * PAGE_WORDS * 2],
                                     SIZE_U32 | PRIVATE, 0};
    }
    waiters[7].value = 0;
    press();
    press(); /* what has just been written outlasts one */
    long r = raw(WAIT_LIST, (long)waiters, 8, 0, 0, 0, 0);
    CHECK(r == -EAGAIN || r == -ENOSYS); /* before Linux 5.16 */
    press();
    r = raw(REQUEUE, (long)waiters, 0, 1, 1, 0, 0);
    CHECK(r == 0 || r == -ENOSYS); /* before Linux 6.7 */
}

static void robust(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    CHECK(pthread_mutex_init(&table->robust, &attributes) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, dies_holding, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    press();
    CHECK(pthread_mutex_lock(&table->robust) == EOWNERDEAD);
    CHECK(pthread_mutex_consistent(&table->robust) == 0);
    CHECK(pthread_mutex_unlock(&table->robust) == 0);
}

static void inheriting(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    CHECK(pthread_mutex_init(&table->inheriting, &attributes) == 0);
}

int main(int argc, char **argv) {
    uint64_t seed = victim_start(argc, argv);
    ballast_make(40);
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    table = pages_map(sizeof *table / PAGE_BYTES + 16);
    table->sum = seed;
    pthread_mutex_init(&table->mutex, NULL);
    pthread_cond_init(&table->condition, NULL);
    pthread_barrier_init(&table->barrier, NULL, THREADS);
    pthread_rwlock_init(&table->rwlock, NULL);
    sem_init(&table->semaphore, 0, 0);
    inheriting();
    press();
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < THREADS * ROUNDS; i++)
        while (sem_wait(&table->semaphore) != 0)
            CHECK(errno == EINTR);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(table->turn == THREADS * ROUNDS);
    press();
    raw_futex();
    several();
    robust();
    note(table->sum);
    note(table->inherited);
    return victim_end();
}
