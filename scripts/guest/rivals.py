"""What the guest swaps to in the comparison. Each has the same machine and the same disk.

Whatever a rival keeps in RAM comes out of the guest's memory, so nothing has to be made equal.
"""

DISK = "/dev/vdb"
UBLK_DRIVER = "ublk_drv"
# A pool of zswap's; where there is none, one that is a part of the kernel.
ZPOOL, ZPOOL_BUILT_IN = "z3fold", "zsmalloc"
MODULES = ("zram", "lz4", ZPOOL, UBLK_DRIVER)
# Of the guest's memory, for zswap's pool and for zpager: hp's best share.
POOL_PERCENT = 25
# The size of zram, as Debian's zram-tools has it: it takes less, as far as the data shrink.
ZRAM_PERCENT = 50
SIZE_MIB = 512
# Of zpager's share so much is taken before it is needed.
AHEAD_MIB = 1

CLEAN = "sync; echo 3 >/proc/sys/vm/drop_caches"
SET_UP_SECONDS = 600


NAMES = ("disk", "zram", "zswap", "zpager")


class Rival:
    """How one is set up and taken down, as lines of shell."""

    def __init__(self, name, begin, end):
        self.name = name
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


def all_rivals(kernel, memory_kib):
    """They, for a guest of so much memory with this kernel."""
    zpool = ZPOOL if kernel.has(ZPOOL) else ZPOOL_BUILT_IN
    ublk = "--ublk " if kernel.has(UBLK_DRIVER) else ""
    zram_kib = memory_kib * ZRAM_PERCENT // 100
    zpager_kib = memory_kib * POOL_PERCENT // 100
    zram = "/sys/block/zram0"
    return [
        Rival("disk", disk_swap(0), DISK_END),
        Rival("zram",
              f"modprobe lz4; modprobe zram && echo lz4 >{zram}/comp_algorithm && "
              f"echo {zram_kib}K >{zram}/disksize && mkswap /dev/zram0 >/dev/null && "
              f"swapon --discard --priority 100 /dev/zram0 && {disk_swap(0)}",
              f"swapoff /dev/zram0 && rmmod zram && {DISK_END}"),
        Rival("zswap",
              f"modprobe {zpool}; modprobe lz4; {parameter('zpool', zpool)} && "
              f"{parameter('compressor', 'lz4')} && "
              f"{parameter('max_pool_percent', POOL_PERCENT)} && {parameter('enabled', 1)} && "
              f"{disk_swap(0)}",
              f"{DISK_END} && {parameter('enabled', 0)}"),
        Rival("zpager",
              f"zpager-swap start {ublk}--size {SIZE_MIB}M --memory {zpager_kib}K "
              f"--memory-ahead {AHEAD_MIB}M --store {DISK}",
              f"zpager-swap stop && dd if=/dev/zero of={DISK} bs=4096 count=1 conv=fsync 2>/dev/null"),
    ]
