#!/bin/busybox sh
# The first process of the guest: it does what comes over the second serial line, a line of shell at
# a time, and answers with what that printed, a byte of value 1 and its exit status. Before each line
# stands its length and a space: where memory is short the kernel may lose what comes in, and such a line
# is asked for again, by the status `again`. A line that begins with @ is done by a process that is never
# swapped out, as this one.
export PATH=/bin:/sbin LC_ALL=C
if [ $# -eq 0 ]; then
	mount -t proc proc /proc
	mount -t sysfs sys /sys
	mount -t cgroup2 groups /sys/fs/cgroup
	mount -t tmpfs -o size=16M run /run
	mount -t tmpfs -o size=64M tmp /tmp
	groups=/sys/fs/cgroup
	mkdir $groups/kept $groups/work
	echo +memory >$groups/cgroup.subtree_control
	# Should the swap device be lost, this process is not lost with it.
	echo 0 >$groups/kept/memory.swap.max
	echo 1 >$groups/kept/cgroup.procs
	# Whatever memory runs out for, it is not this.
	echo -1000 >/proc/self/oom_score_adj
	# Memory belongs to the group that took it first: begin again with none.
	exec /bin/busybox sh "$0" kept
fi

stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
printf '\001%d\n' 0 >&3
while IFS= read -r told <&3; do
	line=${told#* }
	if [ "${told%% *}" != ${#line} ]; then
		printf '\001again\n' >&3
		continue
	fi
	case $line in
	@*) (eval "${line#@}") >&3 2>&1 </dev/null ;;
	*) (exec swappable /bin/sh -c "$line") >&3 2>&1 </dev/null ;;
	esac
	printf '\001%d\n' $? >&3
done
poweroff -f
