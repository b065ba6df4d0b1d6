/* A program that is entered while its threads sleep in system calls, compute or
 * wait for signals. It has an entry of its own in place of the agent's, with the
 * same protocol: registers as given, SIGTRAPs at the end, an answer in r12.
 *
 * usage: entered MODE ANSWER
 * It prints "ready ENTRY-ADDRESS", waits for a line, wakes its threads and prints
 * one line for each, "NAME ok" or "NAME WHAT-IS-WRONG", and what the entry saw.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif

/* ---- the entry ---- */

static long answer;
static int process_entries, thread_entries, wrong_arguments;
static int continues;
static char entry_stack[1 << 16] __attribute__((aligned(64), used));

extern void entry(void);
__asm__(".text\n"
        ".globl entry\n"
        "entry:\n"
        "  lea entry_stack+65536(%rip), %rsp\n"
        "  call entered\n"
        "  mov %rax, %r12\n"
        /* Leave nothing of the thread's state alone. */
        "  mov $0x5a5a5a5a, %ebx\n  mov %rbx, %rcx\n  mov %rbx, %rdx\n"
        "  mov %rbx, %rsi\n  mov %rbx, %rdi\n  mov %rbx, %rbp\n"
        "  mov %rbx, %r8\n  mov %rbx, %r9\n  mov %rbx, %r10\n  mov %rbx, %r11\n"
        "  mov %rbx, %r13\n  mov %rbx, %r14\n"
        "  movq %rbx, %xmm0\n  movq %rbx, %xmm1\n  movq %rbx, %xmm2\n  movq %rbx, %xmm3\n"
        "  movq %rbx, %xmm4\n  movq %rbx, %xmm5\n  movq %rbx, %xmm6\n  movq %rbx, %xmm7\n"
        "  std\n"
        "  mov $39, %eax\n  syscall\n  mov %eax, %edi\n"
        "  mov $186, %eax\n  syscall\n  mov %eax, %esi\n"
        "  mov $5, %edx\n  mov $0x7a70656e, %r15d\n"
        "1:\n  mov $234, %eax\n  syscall\n  jmp 1b\n");

long entered(long kind, long known, long stack, long fs, uint64_t mask) __attribute__((used));
long entered(long kind, long known, long stack, long fs, uint64_t mask)
{
    uint64_t now = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8);
    int usr1_blocked = now >> (SIGUSR1 - 1) & 1;
    long own_fs;
    __asm__("mov %%fs:0, %0" : "=r"(own_fs));
    /* As one in a namespace of its own, which it is not. */
    if (known != (1L << 32 | getpid()) || fs != own_fs || !usr1_blocked || stack == 0 ||
        (mask >> (SIGKILL - 1) & 1))
        wrong_arguments++;
    if (kind == 1)
        process_entries++;
    else if (kind == 2)
        thread_entries++;
    else
        wrong_arguments++;
    if (continues)
        kill(getpid(), SIGCONT);
    return answer;
}

/* ---- the threads ---- */

static int pipes[4][2]; /* read, poll, epoll, receive */
static int semaphores, queue;
static atomic_int word, stop_computing, handled;

static const char *bad(const char *what)
{
    static _Thread_local char text[128];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    return text;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static const char *in_read(void)
{
    char byte;
    return read(pipes[0][0], &byte, 1) == 1 && byte == 'r' ? "ok" : bad("read");
}

static const char *in_poll(void)
{
    struct pollfd wanted = {pipes[1][0], POLLIN, 0};
    return poll(&wanted, 1, 60000) == 1 ? "ok" : bad("poll");
}

static const char *in_epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    epoll_ctl(set, EPOLL_CTL_ADD, pipes[2][0], &event);
    return epoll_wait(set, &event, 1, 60000) == 1 ? "ok" : bad("epoll_wait");
}

static const char *in_receive(void)
{
    struct timeval limit = {60, 0};
    setsockopt(pipes[3][0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte;
    return recv(pipes[3][0], &byte, 1, 0) == 1 ? "ok" : bad("recv");
}

static const char *in_sleep(void)
{
    double began = seconds();
    struct timespec pause = {0, 400000000};
    if (nanosleep(&pause, NULL) != 0)
        return bad("nanosleep");
    return seconds() - began >= 0.4 ? "ok" : "too short";
}

static const char *in_futex(void)
{
    struct timespec limit = {60, 0};
    while (word == 0)
        if (syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit) != 0 && errno != EAGAIN)
            return bad("futex");
    return "ok";
}

static const char *in_semaphore(void)
{
    struct sembuf take = {0, -1, 0};
    return semop(semaphores, &take, 1) == 0 ? "ok" : bad("semop");
}

static const char *in_message(void)
{
    struct { long type; char text[8]; } message;
    return msgrcv(queue, &message, sizeof message.text, 0, 0) >= 0 ? "ok" : bad("msgrcv");
}

static const char *in_sigwait(void)
{
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR2);
    struct timespec limit = {60, 0};
    return sigtimedwait(&wanted, NULL, &limit) == SIGUSR2 ? "ok" : bad("sigtimedwait");
}

static const char *in_computing(void)
{
    /* Sums whose every step lives in registers of both kinds. */
    uint64_t first_integer = 0;
    double first_real = 0;
    while (!stop_computing) {
        uint64_t integer = 1;
        double real = 0;
        for (int i = 1; i <= 1000; i++) {
            integer = integer * 6364136223846793005u + i;
            real += 1.0 / i;
        }
        if (first_integer == 0) {
            first_integer = integer;
            first_real = real;
        }
        if (integer != first_integer || real != first_real)
            return "wrong sum";
    }
    return "ok";
}

static const struct work {
    const char *name;
    const char *(*run)(void);
} works[] = {
    {"read", in_read},         {"poll", in_poll},       {"epoll", in_epoll},
    {"receive", in_receive},   {"sleep", in_sleep},     {"futex", in_futex},
    {"semaphore", in_semaphore}, {"message", in_message}, {"sigwait", in_sigwait},
    {"computing", in_computing},
};
enum { WORKS = sizeof works / sizeof *works };

static void *run_work(void *argument)
{
    const struct work *work = argument;
    static char results[WORKS][160];
    char *result = results[work - works];
    snprintf(result, sizeof *results, "%s %s", work->name, work->run());
    return result;
}

static void ready(void)
{
    printf("ready %lx\n", (unsigned long)entry);
    fflush(stdout);
}

static int wait_for_line(void)
{
    char line[16];
    return read(0, line, sizeof line) > 0;
}

static void print_entries(void)
{
    printf("entries %d %d wrong %d\n", process_entries, thread_entries, wrong_arguments);
}

static int threads_mode(void)
{
    for (int i = 0; i < 3; i++)
        if (pipe(pipes[i]) != 0)
            return 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pipes[3]) != 0)
        return 1;
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    sigset_t usr2;
    sigemptyset(&usr2);
    sigaddset(&usr2, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &usr2, NULL);
    pthread_t threads[WORKS];
    for (int i = 0; i < WORKS; i++)
        pthread_create(&threads[i], NULL, run_work, (void *)&works[i]);
    usleep(50000);
    ready();
    int told = wait_for_line();
    for (int i = 0; i < 4; i++)
        if (write(pipes[i][1], "r", 1) != 1)
            return 1;
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1);
    struct sembuf give = {0, 1, 0};
    semop(semaphores, &give, 1);
    struct { long type; char text[8]; } message = {1, "hello"};
    msgsnd(queue, &message, sizeof message.text, 0);
    kill(getpid(), SIGUSR2);
    stop_computing = 1;
    for (int i = 0; i < WORKS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        puts(result);
    }
    semctl(semaphores, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    print_entries();
    return !told;
}

/* ---- other modes ---- */

static void handler(int signal)
{
    (void)signal;
    handled++;
}

/* A handler without SA_RESTART ends the read, as it does without any tracer. */
static int signal_mode(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    ready();
    char byte;
    ssize_t length = read(0, &byte, 1);
    printf("read %s\n", length < 0 && errno == EINTR ? "interrupted" : "undisturbed");
    printf("handled %d\n", handled);
    print_entries();
    return 0;
}

static atomic_int interrupted;

static void *wait_in_epoll(void *unused)
{
    interrupted += strcmp(in_epoll(), "ok") != 0;
    return unused;
}

static void *end_waits(void *unused)
{
    if (wait_for_line() && write(pipes[2][1], "r", 1) != 1)
        abort();
    return unused;
}

/* Two threads wait where every signal that is handled ends the wait: each is to one of them. */
static int two_mode(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_t ending, other;
    if (sigaction(SIGUSR1, &action, NULL) != 0 || pipe(pipes[2]) != 0)
        return 1;
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    pthread_create(&ending, NULL, end_waits, NULL);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    pthread_create(&other, NULL, wait_in_epoll, NULL);
    ready();
    wait_in_epoll(NULL);
    pthread_join(other, NULL);
    pthread_join(ending, NULL);
    printf("interrupted %d handled %d\n", interrupted, handled);
    return 0;
}

/* The parent cannot stop until its child is gone. */
static int vfork_mode(void)
{
    ready();
    if (!wait_for_line())
        return 1;
    pid_t child = vfork();
    if (child == 0) {
        wait_for_line();
        _exit(7);
    }
    int status;
    int waited = waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7;
    printf("child %s\n", waited ? "ok" : "lost");
    fflush(stdout);
    wait_for_line();
    print_entries();
    return 0;
}

static void *compute(void *result)
{
    *(const char **)result = in_computing();
    return NULL;
}

/* More threads that want to run than processors: stopping them takes its time. */
static int crowd_mode(void)
{
    enum { THREADS = 100 };
    static pthread_t threads[THREADS];
    static const char *results[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, compute, &results[i]);
    ready();
    int told = wait_for_line();
    stop_computing = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (strcmp(results[i], "ok") != 0)
            puts(results[i]);
    }
    print_entries();
    return !told;
}

static void *outlive(void *leader)
{
    pthread_join(*(pthread_t *)leader, NULL);
    ready();
    int told = wait_for_line();
    print_entries();
    fflush(stdout);
    _exit(!told);
}

/* The process goes on after its first thread has ended. */
static int leaderless_mode(void)
{
    static pthread_t leader;
    leader = pthread_self();
    pthread_t other;
    pthread_create(&other, NULL, outlive, &leader);
    pthread_exit(NULL);
}

static void *wait_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* Another program, which ends the thread that there is besides. */
static int execute_mode(void)
{
    pthread_t other;
    pthread_create(&other, NULL, wait_for_ever, NULL);
    ready();
    if (wait_for_line())
        execlp("echo", "echo", "executed", NULL);
    return 1;
}

/* Code below everything else, whose calls are dispatched: `mov $SYS_getppid, %eax; syscall; ret`. */
static unsigned char *const dispatched = (unsigned char *)0x100000;
enum { DISPATCHED_BYTES = 0x1000 };
static char selector = 1;

static void make_call(int signal, siginfo_t *information, void *context)
{
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_RAX] = syscall(information->si_syscall);
}

/* As a thread of a managed process: what it calls comes to it as SIGSYS. */
static void *run_dispatched(void *result)
{
    const unsigned char code[] = {0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3};
    unsigned char *page = mmap(dispatched, DISPATCHED_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    struct sigaction action = {.sa_sigaction = make_call, .sa_flags = SA_SIGINFO};
    *(const char **)result = bad("dispatch");
    if (page != dispatched || sigaction(SIGSYS, &action, NULL) != 0)
        return NULL;
    memcpy(page, code, sizeof code);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, page + DISPATCHED_BYTES, 1ul << 47,
              &selector) != 0)
        return NULL;
    long (*call)(void) = (long (*)(void))(uintptr_t)page, parent = getppid();
    *(const char **)result = "ok";
    while (!stop_computing)
        if (call() != parent)
            *(const char **)result = "a call was lost";
    return NULL;
}

static int dispatched_mode(void)
{
    pthread_t thread;
    const char *result;
    pthread_create(&thread, NULL, run_dispatched, &result);
    usleep(50000);
    ready();
    int told = wait_for_line();
    stop_computing = 1;
    pthread_join(thread, NULL);
    puts(result);
    print_entries();
    return !told;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 2;
    answer = atol(arguments[2]);
    continues = !strcmp(arguments[1], "continued");
    if (!strcmp(arguments[1], "threads"))
        return threads_mode();
    if (!strcmp(arguments[1], "signal") || continues)
        return signal_mode();
    if (!strcmp(arguments[1], "two"))
        return two_mode();
    if (!strcmp(arguments[1], "vfork"))
        return vfork_mode();
    if (!strcmp(arguments[1], "crowd"))
        return crowd_mode();
    if (!strcmp(arguments[1], "dispatched"))
        return dispatched_mode();
    if (!strcmp(arguments[1], "execute"))
        return execute_mode();
    if (!strcmp(arguments[1], "leaderless"))
        return leaderless_mode();
    return 2;
}
