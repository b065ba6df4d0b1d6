"""Boots Debian's own kernel under QEMU, without KVM, has it swap to zpager's device, and goes through
what may go wrong then.

usage: python3 scripts/guest ZPAGER FOLDER

FOLDER keeps the kernel's package and what the guest boots. Where something cannot be had it prints
`skipped: ` and why.
"""

import pathlib
import sys
import time

import faults
import image
import kernel
import machine
import programs
import ublk
from missing import Missing

GUEST_MIB = 112


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
    """The cases, in one guest."""
    inputs = programs.Inputs(folder, zpager, lines_mib=10)
    named = {program.name: program for program in inputs.expect([programs.touch(40), programs.sort()])}
    built = Built(folder, zpager, inputs)
    say(f"guest: {built.kernel.version}, {GUEST_MIB} MiB")
    with machine.Machine(built, GUEST_MIB) as guest:
        for case in (*faults.CASES, ublk.ublk):
            began = time.monotonic()
            said = case(guest, named)
            say(f"guest: {case.__name__}: ok, {time.monotonic() - began:.0f} s: {said}")


def main():
    """Finds out what is wanted."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    zpager, folder = sys.argv[1:]
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        test(folder, pathlib.Path(zpager).resolve())
    except Missing as why:
        print(f"skipped: {why}")
        return
    except machine.Failed as why:
        sys.exit(f"guest: FAILED: {why}")
    say(f"guest: all in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
