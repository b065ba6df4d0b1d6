"""An event simulator of a network of disks, after the one that cervera ran.

Every client has requests on their way to disks; each disk has a long queue. An event is a
record of a type, a time, a disk, a block and a size, alike in most of its fields, as in a
simulator written in C: the queues are arrays of 64-byte records. Finished requests stay where
they are until their slot is used again, as in the paper's memory library.

Arguments: number of disks, slots of a queue, number of events, seed.
"""

import array
import hashlib
import heapq
import random
import sys

disks, slots, events, seed = (int(argument) for argument in sys.argv[1:])
source = random.Random(seed)
WORDS = 8
EMPTY = array.array("q", bytes(8 * WORDS))

queues = [EMPTY * slots for _ in range(disks)]
heads = [0] * disks
tails = [0] * disks
digest = hashlib.sha256()


def submit(disk, time, block):
    """Puts a request at the end of a disk's queue."""
    at = tails[disk] % slots * WORDS
    queues[disk][at : at + WORDS] = array.array("q", [1, time // 1000, disk, block, 8, 0, 0, -1])
    tails[disk] += 1


def finish(disk):
    """Takes the request at the head of a disk's queue; its slot keeps what it held."""
    at = heads[disk] % slots * WORDS
    heads[disk] += 1
    queues[disk][at] = 2
    return queues[disk][at + 3]


# Long queues to begin with, a few of the slots free.
for disk in range(disks):
    for request in range(slots - 16):
        submit(disk, request, request // 64)

ready = [(source.randrange(10_000), disk) for disk in range(disks)]
heapq.heapify(ready)
for number in range(events):
    time, disk = heapq.heappop(ready)
    # A disk serves a batch of requests in a row; what follows from each goes to a disk near by,
    # or to itself if that one's queue is full.
    for _ in range(16):
        block = finish(disk)
        other = (disk + block % 3) % disks
        full = tails[other] - heads[other] == slots
        submit(disk if full else other, time, block)
    heapq.heappush(ready, (time + source.randrange(5_000, 15_000), disk))
    digest.update(b"%d %d;" % (time, disk))
print(digest.hexdigest())
