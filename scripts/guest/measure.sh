#!/bin/busybox sh
# Runs a line of shell and prints a line of what came of it: its exit status and the digest of its
# output, and how much more there was afterwards of the disk's reads, sectors read, writes and sectors
# written. What it said besides comes after that.
#
# usage: measure LINE
figures() {
	read -r reads _ read_sectors _ writes _ written_sectors _ </sys/block/vdb/stat
	echo "$reads $read_sectors $writes $written_sectors"
}

before=$(figures)
digest=$({ /bin/sh -c "$1" 2>/tmp/errors; echo $? >/tmp/status; } | md5sum)
after=$(figures)
line="$(cat /tmp/status) ${digest%% *}"
for figure in $after; do
	line="$line $((figure - ${before%% *}))"
	before=${before#* }
done
echo "$line"
head -n 3 /tmp/errors
