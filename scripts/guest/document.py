"""docs/guest.md: the figures of the comparison, and what they mean."""

import pathlib

import machine
import rivals
from comparison import MIB, NEWER_LESS_MIB

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guest.md"

HEAD = """# A whole machine that swaps to zpager

Written by `make guest-bench` (scripts/guest). Do not edit.

A guest of Debian's own kernels under QEMU without KVM swaps to each of the rivals in turn.
All have the same memory and the same disk: what a rival keeps in RAM comes out of the guest's memory,
so nothing has to be made equal. The programs know of none of it, and what they print is compared with
what they print on the host, where memory is plenty. Each was run once, after the kernel's caches were
dropped.

| | |
| --- | --- |
| processor | one, emulated, 10 to 20 times slower than the host's: about what the papers' machines had |
| disk to swap to | {operations} operations a second and {rate} MB/s at most, throttled by QEMU |
| programs | on a read-only disk that is not throttled |
| swap: disk | the disk alone |
| swap: zram | zram, lz4, of {zram} % of the memory, with the disk behind it |
| swap: zswap | zswap, lz4, {pool} % of the memory at most, on the disk |
| swap: zpager | zpager, --memory {pool} % of the memory, --memory-ahead {ahead}M (4M under Linux 6.1), the disk as its store |

{kernels}
The share of the memory is the same for zswap's pool and for zpager, and for all programs: hp's best.
Each takes it as it fills; zpager's server takes 5 MiB for itself besides, out of the same memory. The
kernel leaves programs half of that memory, so that what a rival takes is twice as large a share of theirs.
Nothing else is set: each reads ahead as it does by default, and has lz4 for a codec, which is also what
zpager chooses on this processor.

## Times faster than the disk alone

`paper` is what the program's paper measured on its own machine, in the place of the disk's 1.

{speedups}
## How much less the disk has to do

In per cent of what it does with the disk alone: operations, and bytes behind them. In zswap's own
table it is 76 % less bytes at the highest pressure.

{traffic}
## Programs

{programs}
The machines of cervera and hp had 64 MB, as the guest has for all but the kernel itself. Sizes are the
papers' where they are known; videos, texts and the simulator's input are not, and are made so large
that the disk alone takes a minute or two. Castro compiled the Linux kernel in 21 to 27 MB of memory,
with four compilers at once; today's are three times as large, and so is the memory. Castro's cache also
kept files' pages, which no swap device sees; here files come from a disk that is not throttled.

{reading}
## Figures

{figures}"""

READING = """## How to read it

The processor is emulated, and the disk has full speed. Whatever a rival computes for a page weighs 10
to 20 times as much beside the disk as on a machine of today: most of all for zpager, whose server runs in
user space and is reached over a socket. Counts of the disk's operations do not depend on that. Where
zpager is behind it is because a request costs: with one processor, one of the nbd driver is some five
switches of it, to the kernel's sender, to the server, to the kernel's receiver, and to who waited. Here
that is about a millisecond, whatever the request's size; one of the ublk driver takes about half of that.
Programs that go from page to page have up to 32 pages in one and pay little; five simulators at once had two.

Where programs want all of the memory, what a pool takes of it costs more than it spares. Of four compilers
(`compile 65`, Linux 6.12) the disk alone brought 13,700 pages back in 67 s, in which the processor was idle for
52. With all of zpager's pool 118,000 came back, 10,000 of them from the disk, and the processor was never idle.
So zpager leaves programs up to three quarters of the pool where that is measured to cost less; what it takes to
find that out is a part of its times here, as these programs take a minute.

It is the worst where what a program uses again and again just fits without zpager. Before `fft x10` (Linux
6.12) 31.5 MiB were free, and with zpager 24.4: its server took 5.5, which is 3.5 now, the least pool with what is
ahead of it 1.7.
The disk alone brought 5,400 pages back then. With zpager it was 51,000 in another run of 258 s, nearly each with
a read: they hardly shrink, and the pool had 2 % of them. `sort` is alike. Where the kernel was told that the device
is rotational, for which it reads what lies together in the swap area, `fft x10` took more than 240 s. On a machine
of 1 GiB these 7 MiB are less than a hundredth.

`compile 57` and `compile 65` under Linux 6.1 are not in the tables: now and then they put out something else whatever
they swap to, the disk alone too (`compile 65` in one of three runs; with zram in one of two, with zswap in one of one,
with zpager in two of three, and `compile 57` in one of one). One of the four compilers then has taken other registers
in a part of one file; all of them end with 0. With 512 MiB, where nothing is swapped, `compile 65` put out what it
should five times. Why is not known: it is not what pages are kept in. On the host that
compiler put out the same 370 times without a limit, of these 250 with its collector set as in the guest, and 24
times within `zpager run --memory 9M` and `12M`, of 40.

All rows are of one day, on which two guests were at work at a time, one of each kernel, and other work of the host's
went on beside. It had kept a third of some rows waiting: so `compile 73` and `database`, and under Linux 6.1 zpager's
`sort`, `simulator` and `dither`, are of the end of that day, without it. Of zswap's `sort` and `database` under Linux 6.1
there is no figure: there was no time for the first, and the second was stopped after two and a half minutes.

`waited` are those of the seconds in which the guest's processor was ready and waited for one of the
host's, or in which other machines had the host's. Where it waits for the disk anyway they cost little;
where it computes, all of them.
`output` is `ok` where it was that of a run with enough memory. Otherwise it says how a program ended: with
137 where the kernel killed it because it found no memory. One that had not ended when its time was up
has none, and no figures.
"""


def table(head, right, lines):
    """As Markdown; the first columns are to the left, the last `right` ones to the right."""
    rule = ["---"] * (len(head) - right) + ["---:"] * right
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [head, rule, *lines]) + "\n"


def speedup(of, name):
    """Times faster than the disk alone; none where one of them did not end as it should."""
    pair = of.get("disk"), of.get(name)
    if all(row and row.output == "ok" for row in pair):
        return pair[0].seconds / pair[1].seconds
    return None


def measured(programs, results, kernel):
    """Under a kernel the programs of which there is something to compare, each with its rows by rival."""
    found = [(program, results.of_program(kernel, program.name)) for program in programs]
    return [(program, of) for program, of in found if any(speedup(of, name) for name in of if name != "disk")]


def speedups(rows):
    """Of each rival."""
    lines = []
    for program, of in rows:
        values = [speedup(of, name) for name in rivals.NAMES[1:]]
        lines.append([program.name, program.paper, *("-" if one is None else f"{one:.2f}" for one in values)])
    return table(["program", "paper", *rivals.NAMES[1:]], 4, lines) + "\n" + below(rows)


def below(rows):
    """Where zpager is not what it should be."""
    under_paper, under_zswap = [], []
    for program, of in rows:
        own, zswap = speedup(of, "zpager"), speedup(of, "zswap")
        if own is not None and own < float(program.paper.split()[0]):
            under_paper.append(program.name)
        if own is not None and zswap is not None and own < zswap:
            under_zswap.append(program.name)
    return (f"zpager is below the paper's figure for {', '.join(under_paper) or 'none'}. It is below zswap "
            f"for {', '.join(under_zswap) or 'none'}.\n")


def left_out(programs, rows):
    """The programs of which nothing is known yet."""
    names = [program.name for program in programs if program not in [one for one, _ in rows]]
    return f"\nNot run: {', '.join(names)}.\n" if names else ""


def traffic(rows):
    """How much less the disk does."""
    head = ["program", "disk: operations", "MiB", *rivals.NAMES[1:]]
    lines = []
    for program, of in rows:
        disk = of["disk"]
        disk_bytes = disk.read_bytes + disk.written_bytes
        cells = []
        for name in rivals.NAMES[1:]:
            row = of.get(name)
            if row and row.output == "ok" and disk_bytes:
                held = row.read_bytes + row.written_bytes
                cells.append(f"{less(row.operations, disk.operations)}, {less(held, disk_bytes)}")
            else:
                cells.append("-")
        lines.append([program.name, disk.operations, f"{disk_bytes / MIB:.0f}", *cells])
    return table(head, 5, lines)


def less(value, than):
    """In per cent."""
    return f"{100 - 100 * value / than:.0f}"


def figures(rows):
    """All of them."""
    head = ["program", "swap", "memory, MiB", "output", "seconds", "waited", "reads", "MiB", "writes", "MiB"]
    lines = []
    for program, of in rows:
        for row in of.values():
            lines.append([program.name, row.rival, row.memory_kib >> 10, row.output, f"{row.seconds:.1f}",
                          f"{row.waited_seconds:.1f}", row.reads, f"{row.read_bytes / MIB:.1f}", row.writes,
                          f"{row.written_bytes / MIB:.1f}"])
    return table(head, 6, lines)


KERNELS = {
    "6.1": "Debian 12's. zpager is a device of its nbd driver; zswap's pool is z3fold.",
    "6.12": "Debian 13's, from the backports of 12. zpager is a device of its ublk driver; zswap's pool is "
            "zsmalloc. It chooses what leaves by generations (MGLRU), which the older one has switched off, and "
            f"takes {NEWER_LESS_MIB} MiB less for itself, which the guest has not here.",
}


def described(kernel):
    """What there is to know of a kernel."""
    return KERNELS.get(".".join(kernel.split(".")[:2]), "")


def chapter(rows_by_kernel, part):
    """A part of the document for each kernel."""
    return "\n".join(f"### Linux {kernel}\n\n{part(rows)}" for kernel, rows in rows_by_kernel.items())


def write(programs, results):
    """The whole document."""
    rows_by_kernel = {kernel: measured(programs, results, kernel) for kernel in results.kernels()}
    of_programs = table(["program", "guest, MiB", "what"], 0,
                        [[program.name, program.guest_mib, program.what] for program in programs])
    kernels = [[kernel, described(kernel)] for kernel in rows_by_kernel]
    DOCUMENT.write_text(HEAD.format(
        operations=machine.OPERATIONS, rate=machine.DISK_BYTES // 10**6, zram=rivals.ZRAM_PERCENT,
        pool=rivals.POOL_PERCENT, ahead=rivals.AHEAD_MIB, kernels=table(["kernel", ""], 0, kernels),
        speedups=chapter(rows_by_kernel, lambda rows: speedups(rows) + left_out(programs, rows)),
        traffic=chapter(rows_by_kernel, traffic), programs=of_programs, reading=READING,
        figures=chapter(rows_by_kernel, figures)))
