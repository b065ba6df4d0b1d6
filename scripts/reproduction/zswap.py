"""zswap's table of I/O and run time by pressure."""

from .document import listing, table
from .laboratory import speedup
from .plot import plot
from .workloads import BUILD_JOBS

# Threads of make: I/O of base and of zswap in pages, run time of both in s.
PAPER = {8: (627, 249, 107, 107), 12: (23293, 6937, 128, 110), 16: (75693, 56418, 191, 179),
         20: (225857, 130793, 371, 240), 24: (558601, 135512, 570, 267)}
# Of the peak with all jobs at once.
BUILD_SHARE = 0.4
SORT_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
HEAD = ["I/O, pages: base", "zswap", "change", "time, s: base", "zswap", "change"]


def change(before, after):
    """How much more or less, in %."""
    return f"{100 * (after / before - 1):.0f} %" if before else None


def row(lab, label, name, memory):
    """I/O and time of both, and the two rows of the simulator."""
    both = [lab.sim(name, memory, design) for design in ("none", "zswap")]
    pages = [(row["store_read_bytes"] + row["store_written_bytes"]) // 4096 for row in both]
    seconds = [row["modelled_seconds"] for row in both]
    return [label, *pages, change(*pages), *seconds, change(*seconds)], both


def build(lab):
    """By the number of compilers at once, as in the mail: the table, and who had less I/O."""
    names = lab.has(*(f"build -j{jobs}" for jobs in BUILD_JOBS))
    memory = max((lab.part(name, BUILD_SHARE) for name in names), default=0)
    rows = [row(lab, f"{name}, {memory} MiB", name, memory)[0] for name in names]
    paper = [[f"paper: make -j{jobs}", *figures[:2], change(*figures[:2]), *figures[2:],
              change(*figures[2:])] for jobs, figures in PAPER.items()]
    less = [cells[0].split(",")[0] for cells in rows if cells[2] < cells[1]]
    return table(["by compilers at once", *HEAD], [*rows, *paper]), less


def sort(lab):
    """By memory, for a program that reads its memory in order."""
    rows, points = [], []
    for name in lab.has("sort"):
        for share in SORT_SHARES:
            memory = lab.part(name, share)
            cells, both = row(lab, f"sort, {memory} MiB ({share * 100:.0f} %)", name, memory)
            rows.append(cells)
            points.append(speedup(*both))
    return table(["by memory", *HEAD], rows), rows, points


def text(lab):
    """The section."""
    builds, less = build(lab)
    sorts, sort_rows, points = sort(lab)
    losing = [f"{cells[0].split(', ')[1]}: {cells[6]}" for cells in sort_rows
              if cells[5] > cells[4]]
    picture = plot("zswap-pressure", "zswap: speed-up by memory pressure",
                   "none / zswap, modelled paging time",
                   [f"{share * 100:.0f} %" for share in SORT_SHARES], [("sort", points)])
    return f"""## zswap: I/O and time by memory pressure

Paper: the patch's mail, "Performance, Kernel Building": 512 MB, quad-core i5-2500, disk of 80 GB;
pressure by the number of threads of `make`. Ours: C files of zstd compiled so many at a time in a
fixed memory, and GNU sort in less and less memory; `--design none,zswap --disk hdd`, in pages of
4 KiB and modelled s of paging.

{builds}
{sorts}
{picture}
As in the paper, there is less I/O for: {", ".join(less) or "none"}. Our times are of paging alone
and the paper's builds compute for most of theirs, so ours change by more. A program that
reads its memory in order may lose, as `zswap` reads page by page where `none` reads ahead and a
fifth of the memory goes to the pool. Sort loses in {listing(losing)}. The paper measured no such
program.
"""
