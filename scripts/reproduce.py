#!/usr/bin/env python3
"""Writes docs/reproduction.md: what the papers measured, on today's programs in the simulator.

usage: scripts/reproduce.py [ZPAGER [TRACES]]

Each workload is recorded once by `zpager trace` into a temporary directory, or into TRACES, where
those that are there already are taken; then it is replayed by `zpager sim` under the designs. All
times are the simulator's, so the document is a function of the traces, but for what `zpager codecs`
measures. The plots go to docs/reproduction/. What is not installed is named and left out.
"""

import concurrent.futures
import pathlib
import sys
import tempfile
import time

from reproduction import castro, cervera, designs, hp, inputs, laboratory, workloads, zswap
from reproduction.document import table, wrap

SECTIONS = (cervera, castro, hp, zswap, designs)
DOCUMENT = workloads.ROOT / "docs" / "reproduction.md"

HEADER = f"""# What the papers measured, again

Written by `make reproduce` (scripts/reproduce.py). Do not edit.

The four papers' designs are run over traces of today's programs. Each program is recorded once:
`zpager trace --window PAGES --codec {laboratory.CODECS} -- PROGRAM`; then `zpager sim --disk
{laboratory.DISK} --memory M --design D` replays it (docs/simulator.md has the model: a disk of 7200
turns, 12.7 ms before a read, 13.7 before a write, 180 MB/s; LZO 6.1 us to compress a page and 5.4
to restore it, WK4x4 3.0 and 1.5). Simulated results are the same for a given trace. A trace differs
a little from one recording to the next, and more if several processes were mixed; ratios and times
of `zpager codecs` are measured on pages drawn from the running program.

Three things differ from all four papers. **Times are of paging alone**: what the program computes
is in no trace, so every gain and every loss is larger than in a run time. **The base `none` is
better than the kernels of the time**: true least-recently-used replacement, 32 pages a write, with
reading ahead. **Inputs are smaller** where nothing else is said, so that all is made in minutes:
the memory is a share of each program's own peak where no other is given. Only private anonymous
memory is in a trace: no file cache.
"""

FOOTER = """## Not reproduced

| what | why |
| --- | --- |
| xanim | needs X; a program of our own dithers a film and holds its frames |
| the simulator of cervera's group | never published; ours is written after its description |
| kernel compilation | minutes a point; compilers on C files of zstd stand for it |
| OSDB on PostgreSQL | its buffers are shared memory, which is in no trace; SQLite stands for it |
| Matlab | not free; nor is there anything in its place |
| httperf, PostMark | they live in the file cache, which is in no trace |
| SPEC 2000 (gap, vortex, apsi, ...) | not free |
| castro's `onlyswap` and `lzowkdm` | they differ from other columns for file pages only |
| castro's table 4 (contest) | scheduling is in no trace |
| zswap's processor utilisation | computing is in no trace |
"""


def programs(lab):
    """What was recorded, and what was not."""
    rows = [[name, program.what, f"{program.window * 4096 / laboratory.MIB:.2g}",
             f"{lab.peak(name):.0f}"] for name, program in lab.programs.items()]
    head = ["name", "program", "window of a process, MiB", "peak, MiB"]
    left_out = [f"Left out: {name}: {why}.\n" for name, why in lab.missing.items()]
    return "\n".join(["## Programs\n", table(head, rows, words=2), *left_out])


def reproduce(zpager, directory):
    """Records, replays and writes."""
    lab = laboratory.Laboratory(zpager, directory, *workloads.prepare(zpager, directory))
    lab.record_all()
    with concurrent.futures.ThreadPoolExecutor(laboratory.WORKERS) as pool:
        sections = list(pool.map(lambda section: section.text(lab), SECTIONS))
    DOCUMENT.write_text(wrap("\n".join([HEADER, programs(lab), *sections, FOOTER])))


def main():
    """Finds the command and the directory."""
    began = time.monotonic()
    zpager, traces, *_ = [*sys.argv[1:], None, None]
    zpager = str(pathlib.Path(zpager or workloads.ROOT / "target/release/zpager").resolve())
    if traces:
        traces = pathlib.Path(traces).resolve()
        traces.mkdir(parents=True, exist_ok=True)
        reproduce(zpager, traces)
    else:
        with tempfile.TemporaryDirectory(prefix="zpager-reproduce-") as name:
            reproduce(zpager, pathlib.Path(name))
    inputs.say(f"wrote {DOCUMENT.relative_to(workloads.ROOT)} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
