"""docs/guest.md: the figures of the long comparison, and what they mean."""

import pathlib

import comparison
import machine
import rivals

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guest.md"

HEAD = """# A whole machine that swaps to zpager

Written by `make guest-bench` (scripts/guest). Do not edit.

A guest of Debian's own kernel, {version}, under QEMU without KVM swaps to each of the rivals in turn.
All have the same memory and the same disk: what a rival keeps in RAM comes out of the guest's memory,
so nothing has to be made equal. {program_count} programs are run under each, none of which knows of
it, and what they print is compared with what they print where memory is plenty.

| | |
| --- | --- |
| processor | one, emulated, some twenty times slower than the host's |
| disk | a disk of 7,200 turns: {operations} operations a second, {rate} MiB/s at most, throttled by QEMU |
| programs | on a read-only disk that is not throttled |
{rivals}

A processor that is so slow is beside a disk of full speed. That flatters the disk, and more so with
rivals that compute more for a page: the server of zpager, which the kernel reaches over a socket,
most of all.

"""

READING = """## How to read it

`seconds` depend on what else the host does; the disk's figures differ by some percent from run to run. `output` has to be `ok`: the output was that of a run with enough memory. A
program that the kernel killed because memory was short is shown with its status.

"""


def speedups(rows):
    """The seconds of disk swap by those of the others, and the disk's operations in % of its own."""
    by_program = {}
    for row in rows:
        by_program.setdefault(row.program, {})[row.rival] = row
    names = [name for name in dict.fromkeys(row.rival for row in rows) if name != "disk"]
    head = ["workload", *(f"{name}, times faster" for name in names),
            *(f"{name}, disk operations" for name in names)]
    lines = [head, ["---"] + ["---:"] * (2 * len(names))]
    for program, of in by_program.items():
        disk = of["disk"]
        is_whole = {name: row.output == "ok" for name, row in of.items()}
        times = [f"{disk.seconds / of[name].seconds:.2f}"
                 if is_whole["disk"] and is_whole[name] else "-" for name in names]
        used = [f"{100 * operations(of[name]) / operations(disk):.0f} %"
                if is_whole["disk"] and is_whole[name] and operations(disk) else "-"
                for name in names]
        lines.append([program, *times, *used])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def operations(row):
    """The disk's, of both kinds."""
    return row.reads + row.writes


def write(built, run, tables):
    """The whole document; `tables` are rows by MiB of the guest."""
    described = "\n".join(f"| {one.name} | {one.what} |" for one in rivals.all_rivals(0))
    text = HEAD.format(version=built.kernel.version, program_count=len(run),
                       operations=machine.OPERATIONS, rate=machine.DISK_BYTES >> 20,
                       rivals=described)
    text += READING
    text += "## The programs\n\n| workload | what |\n| --- | --- |\n"
    text += "".join(f"| {program.name} | {program.what} |\n" for program in run)
    for mib, (memory_kib, rows) in tables.items():
        text += (f"\n## A guest of {mib} MiB\n\nThe kernel leaves {memory_kib >> 10} MiB of them to all."
                 f"\n\n{speedups(rows)}\n{comparison.table(rows)}")
    DOCUMENT.write_text(text)
