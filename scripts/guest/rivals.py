"""What the guest swaps to. Each has the same machine and the same disk.

Whatever a rival keeps in RAM comes out of the guest's memory, so nothing has to be made equal.
"""

DISK = "/dev/vdb"
# Of the guest's memory. zram: the size of the device, as Debian's zram-tools has it; the disk takes
# what does not fit. zswap: the kernel's default for the pool, and so for zpager.
ZRAM_PERCENT = 50
ZSWAP_PERCENT = 20
ZPAGER_PERCENT = 20
SIZE_MIB = 768

CLEAN = "sync; echo 3 >/proc/sys/vm/drop_caches"


class Rival:
    """How one is set up and taken down, as lines of shell."""

    def __init__(self, name, what, begin, end):
        self.name = name
        self.what = what
        self.begin = begin
        self.end = end


def disk_swap(priority):
    """The disk alone."""
    return f"mkswap {DISK} >/dev/null && swapon --priority {priority} {DISK}"


# The disk holds nothing afterwards that others would take for theirs.
DISK_END = f"swapoff {DISK} && dd if=/dev/zero of={DISK} bs=4096 count=1 conv=fsync 2>/dev/null"


def parameter(name, value):
    """Sets one of zswap's."""
    return f"echo {value} >/sys/module/zswap/parameters/{name}"


def all_rivals(memory_kib):
    """They, for a guest of so much memory."""
    zram_kib = memory_kib * ZRAM_PERCENT // 100
    zpager_kib = memory_kib * ZPAGER_PERCENT // 100
    zram = "/sys/block/zram0"
    return [
        Rival("disk", "the disk alone", disk_swap(0), DISK_END),
        Rival("zram", f"zram, lz4, {ZRAM_PERCENT} % of the memory, the disk behind it",
              f"modprobe lz4; modprobe zram && echo lz4 >{zram}/comp_algorithm && "
              f"echo {zram_kib}K >{zram}/disksize && mkswap /dev/zram0 >/dev/null && "
              f"swapon --discard --priority 100 /dev/zram0 && {disk_swap(0)}",
              f"swapoff /dev/zram0 && rmmod zram && {DISK_END}"),
        Rival("zswap", f"zswap, lz4, z3fold, {ZSWAP_PERCENT} % of the memory at most, on the disk",
              f"modprobe z3fold; modprobe lz4; {parameter('zpool', 'z3fold')} && "
              f"{parameter('compressor', 'lz4')} && "
              f"{parameter('max_pool_percent', ZSWAP_PERCENT)} && {parameter('enabled', 1)} && "
              f"{disk_swap(0)}",
              f"{DISK_END} && {parameter('enabled', 0)}"),
        Rival("zpager", f"zpager, --memory {ZPAGER_PERCENT} % of the memory, the disk as its store",
              f"zpager-swap start --size {SIZE_MIB}M --memory {zpager_kib}K --store {DISK}",
              "zpager-swap stop"),
    ]
