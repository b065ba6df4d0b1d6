/*
 * Stops a process and sends it a signal some seconds later. While the server of a swap device stands
 * still whoever wants memory may wait for it, so all of this program is there before.
 *
 * usage: strike PID SECONDS SIGNAL
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int count, char **arguments)
{
	if (count != 4) {
		fputs("usage: strike PID SECONDS SIGNAL\n", stderr);
		return 2;
	}
	pid_t process = atoi(arguments[1]);
	struct timespec pause = {.tv_sec = atoi(arguments[2])};
	int last = atoi(arguments[3]);
	if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
		perror("strike: mlockall");
		return 1;
	}
	if (kill(process, SIGSTOP) != 0) {
		perror("strike: kill");
		return 1;
	}
	nanosleep(&pause, NULL);
	return kill(process, last) != 0;
}
