#!/bin/busybox sh
# Runs a program and prints a line of what it took: its exit status, the digest of its output,
# hundredths of a second, and the disk's reads, sectors read, writes and sectors written.
#
# usage: measure PROGRAM [ARGUMENT]...
figures() {
	read -r seconds _ </proc/uptime
	read -r reads _ read_sectors _ writes _ written_sectors _ </sys/block/vdb/stat
	echo "${seconds%.*}${seconds#*.} $reads $read_sectors $writes $written_sectors"
}

before=$(figures)
digest=$({ "$@" 2>/tmp/errors; echo $? >/tmp/status; } | md5sum)
after=$(figures)
status=$(cat /tmp/status)
# shellcheck disable=SC2086
set -- $before $after
echo "$status ${digest%% *} $(($6 - $1)) $(($7 - $2)) $(($8 - $3)) $(($9 - $4)) $((${10} - $5))"
[ "$status" -eq 0 ] || head -n 3 /tmp/errors
