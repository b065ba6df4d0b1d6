"""Boots Debian's own kernel under QEMU, without KVM, and has it swap to zpager's device.

usage: python3 scripts/guest test  ZPAGER FOLDER
       python3 scripts/guest bench ZPAGER FOLDER [MIB...]

`test` goes through what may go wrong, and runs two programs with each rival. `bench` runs all
programs with each, in guests of the given sizes, and writes docs/guest.md. FOLDER keeps the kernel's
package and what the guest boots. Where something cannot be had it prints `skipped: ` and why.
"""

import pathlib
import sys
import time

import comparison
import document
import faults
import image
import kernel
import machine
import programs
from missing import Missing

TEST_MIB = 144
BENCH_MIB = (112, 144)
RIVALS = ("disk", "zram", "zswap", "zpager")
# How long one program may take; a rival that needs longer has hung.
PROGRAM_SECONDS = 900


class Built:
    """What a guest boots."""

    def __init__(self, folder, zpager, inputs):
        self.folder = folder
        self.kernel = kernel.fetch(folder / "kernel")
        self.early = image.early(folder, self.kernel)
        self.root = image.root_disk(folder, self.kernel, zpager, inputs.files)


def say(line):
    """Progress."""
    print(line, flush=True)


def test(folder, zpager):
    """The cases, then a small comparison."""
    inputs = programs.Inputs(folder, zpager, lines_mib=24, functions=0, rows=0)
    run = inputs.expect([programs.touch(72), programs.relaxation(3072, 2), programs.sort(24)])
    named = {program.name: program for program in run}
    built = Built(folder, zpager, inputs)
    say(f"guest: {built.kernel.version}, {TEST_MIB} MiB")
    with machine.Machine(built, TEST_MIB) as guest:
        for case in faults.CASES:
            began = time.monotonic()
            said = case(guest, named)
            say(f"guest: {case.__name__}: ok, {time.monotonic() - began:.0f} s: {said}")
    _, rows = comparison.compare(built, TEST_MIB, run[:2], RIVALS, PROGRAM_SECONDS, lambda _: None)
    print(comparison.table(rows))


def bench(folder, zpager, sizes):
    """All programs, all rivals, all sizes."""
    inputs = programs.Inputs(folder, zpager, lines_mib=36, functions=1200, rows=150_000)
    run = inputs.expect([programs.relaxation(3072, 4), programs.sort(36), programs.transform(11),
                         programs.compilation(1200), programs.database(150_000),
                         programs.touch(96)])
    built = Built(folder, zpager, inputs)
    tables = {}
    for mib in sizes:
        tables[mib] = comparison.compare(built, mib, run, RIVALS, PROGRAM_SECONDS, say)
    document.write(built, run, tables)


def main():
    """Finds out what is wanted."""
    if len(sys.argv) < 4 or sys.argv[1] not in ("test", "bench"):
        sys.exit(__doc__)
    what, zpager, folder, *sizes = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        if what == "test":
            test(folder, pathlib.Path(zpager).resolve())
        else:
            bench(folder, pathlib.Path(zpager).resolve(), [int(size) for size in sizes] or BENCH_MIB)
    except Missing as why:
        print(f"skipped: {why}")
        return
    except machine.Failed as why:
        sys.exit(f"guest: FAILED: {why}")
    say(f"guest: {what} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
