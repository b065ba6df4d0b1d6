/* A thousand signals a second during heavy faulting, from interval timers and POSIX timers. */
#include "victim.h"
#include <sys/time.h>

#define BIG_PAGES (40 * MIB_PAGES)

static char *big;
static volatile int alarms, values, notified;

static void on_alarm(int signal) {
    static struct random random = {5};
    (void)signal;
    int saved = errno;
    for (int i = 0; i < 3; i++) {
        size_t page = below(&random, BIG_PAGES);
        CHECK(*(volatile uint64_t *)(big + page * PAGE_BYTES) == page_word(page, 0));
    }
    struct timespec now;
    CHECK(raw(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0) == 0);
    alarms++;
    errno = saved;
}

static void on_timer(int signal, siginfo_t *information, void *context) {
    (void)signal;
    (void)context;
    CHECK(information->si_code == SI_TIMER && information->si_value.sival_int == 99);
    values++;
}

static void on_notification(union sigval value) {
    CHECK(value.sival_int == 7);
    notified++;
}

static void *faults(void *argument) {
    struct random random = {(uint64_t)argument};
    for (int i = 0; i < 40000; i++) {
        size_t page = below(&random, BIG_PAGES);
        page_check(big + page * PAGE_BYTES, page);
        errno = 0;
        if (i % 16 == 0)
            CHECK(read(-1, &random, 1) == -1 && errno == EBADF);
    }
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t tag = mix(victim_start(argc, argv));
    big = pages_map(BIG_PAGES);
    pages_fill(big, BIG_PAGES, 0);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    struct itimerval fast = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &fast, NULL) == 0 && setitimer(ITIMER_PROF, &fast, NULL) == 0);
    struct sigevent event = {
        .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 99};
    struct itimerspec period = {{0, 3000000}, {0, 3000000}}, never = {{0, 0}, {0, 0}};
    timer_t by_signal, by_thread;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &by_signal) == 0);
    CHECK(timer_settime(by_signal, 0, &period, NULL) == 0);
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD,
                              .sigev_notify_function = on_notification,
                              .sigev_value.sival_int = 7};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &by_thread) == 0);
    CHECK(timer_settime(by_thread, 0, &period, NULL) == 0);
    pthread_t threads[2];
    for (uint64_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, faults, (void *)(tag + i)) == 0);
    faults((void *)(tag + 2));
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    while (alarms < 5 || values < 3 || notified < 3)
        faults((void *)(tag + 3));
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0 && setitimer(ITIMER_PROF, &off, NULL) == 0);
    CHECK(timer_settime(by_signal, 0, &never, NULL) == 0
          && timer_settime(by_thread, 0, &never, NULL) == 0);
    pages_check(big, BIG_PAGES, 0);
    note(tag);
    return victim_end();
}
