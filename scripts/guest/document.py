"""docs/guest.md: the figures of the comparison, and what they mean."""

import pathlib

import comparison
import machine
import rivals

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "guest.md"

HEAD = """# A whole machine that swaps to zpager

Written by `make guest-bench` (scripts/guest). Do not edit.

A guest of Debian's own kernel, {version}, under QEMU without KVM swaps to each of the rivals in turn.
All have the same memory and the same disk: what a rival keeps in RAM comes out of the guest's memory,
so nothing has to be made equal. The programs know of none of it, and what they print is compared with
what they print on the host, where memory is plenty. Each was run once.

| | |
| --- | --- |
| memory | {mib} MiB, of which the kernel leaves {memory_mib} MiB to all |
| processor | one, emulated |
| disk | {operations} operations a second and {rate} MiB/s at most, throttled by QEMU |
| programs | on a read-only disk that is not throttled |
{rivals}
{programs}
| load of the host | {load}: the mean number of processes that ran or waited to run, over a minute, after each program |

## How to read it

An emulated processor, which takes many times as long as the host's, is beside a disk of full speed.
That flatters the disk: more so, the more a rival computes for a page, and so most of all beside the
server of zpager, which the kernel reaches over a socket. `seconds` depend on what else the host does
besides. `output` has to be `ok`: the output was that of a run with
enough memory. A program that the kernel killed because memory was short is shown with its status.

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


def write(built, mib, memory_kib, run, rows, loads):
    """The whole document."""
    described = "\n".join(f"| swap: {one.name} | {one.what} |" for one in rivals.all_rivals(memory_kib))
    described_programs = "\n".join(f"| workload: {program.name} | {program.what} |" for program in run)
    head = HEAD.format(version=built.kernel.version, mib=mib, memory_mib=memory_kib >> 10,
                       operations=machine.OPERATIONS, rate=machine.DISK_BYTES >> 20,
                       rivals=described, programs=described_programs,
                       load=f"{min(loads):.1f} to {max(loads):.1f}")
    DOCUMENT.write_text(f"{head}{speedups(rows)}\n{comparison.table(rows)}")
