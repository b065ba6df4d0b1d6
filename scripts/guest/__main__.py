"""Boots Debian's own kernel under QEMU, without KVM, has it swap to zpager's device, and goes through
what may go wrong then.

usage: python3 scripts/guest ZPAGER FOLDER
       python3 scripts/guest ZPAGER FOLDER bench [--kernel release|newer] [--rows NAME,...]
                             [--rivals NAME,...] [--minutes N]

It goes through what may go wrong, with the release's kernel, and with a newer one where that alone has
the ublk driver. With `bench` it runs programs under each rival, all or those that are named, of which it
begins none after so many minutes, and writes docs/guest.md of all that was measured so far. FOLDER keeps
that, the kernels' packages and what the guest boots.
Where something cannot be had, or the host had no time for the guest, it prints `guest: skipped: ` and why.
"""

import argparse
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
import rivals
import ublk
from missing import Missing

GUEST_MIB = 112
# Of the comparison's sort, which takes half as much again.
LINES_MIB = 36


class Built:
    """What a guest boots."""

    def __init__(self, folder, zpager, inputs, kernel_package):
        self.folder = folder
        self.kernel = kernel_package
        self.early = image.early(folder, self.kernel)
        self.root = image.root_disk(folder, self.kernel, zpager, inputs.files)


def say(line):
    """Progress."""
    print(line, flush=True)


def test(folder, zpager):
    """The cases, in one guest."""
    inputs = programs.Inputs(folder, zpager, lines_mib=9)
    inputs.for_faults()
    named = {program.name: program for program in inputs.expect([programs.touch(40), programs.sort()])}
    built = Built(folder, zpager, inputs, kernel.fetch(folder / "kernel"))
    go_through((*faults.CASES, ublk.ublk), built, named)
    cases = faults.CASES_BESIDE
    if not built.kernel.has(rivals.UBLK_DRIVER):
        try:
            built = Built(folder, zpager, inputs, kernel.fetch_newer(folder / "kernel"))
            cases = [*cases, ublk.ublk]
        except Missing as why:
            say(f"guest: ublk: skipped: {why}")
    go_through(cases, built, named, processors=2)


def go_through(cases, built, named, processors=1):
    """Cases in a guest."""
    say(f"guest: {built.kernel.version}, {GUEST_MIB} MiB, {processors} CPU")
    with machine.Machine(built, GUEST_MIB, processors=processors) as guest:
        for case in cases:
            began = time.monotonic()
            said = case(guest, named)
            say(f"guest: {case.__name__}: ok, {time.monotonic() - began:.0f} s: {said}")


def chosen_of(option, names, known):
    """The names given, all of them where there are none."""
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"{option} {','.join(unknown)}: give some of {','.join(known)}")
    return names or known


def bench(folder, zpager, given):
    """Programs under each rival, and the document of all that was measured so far."""
    until = time.monotonic() + given.minutes * 60
    all_programs = programs.rows()
    names = chosen_of("--rows", given.rows, [program.name for program in all_programs])
    chosen = [program for program in all_programs if program.name in names]
    inputs = programs.Inputs(folder, zpager, LINES_MIB)
    inputs.for_rows(LINES_MIB)
    inputs.expect(chosen)
    fetch = kernel.fetch_newer if given.kernel == "newer" else kernel.fetch
    built = Built(folder, zpager, inputs, fetch(folder / "kernel"))
    results = comparison.Results(folder)
    comparison.compare(built, chosen, chosen_of("--rivals", given.rivals, rivals.NAMES), results, until, say)
    document.write(all_programs, results)


def main():
    """Finds out what is wanted."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("zpager", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("what", nargs="?", choices=["test", "bench"], default="test")
    parser.add_argument("--kernel", choices=["release", "newer"], default="release")
    for option in ("--rows", "--rivals"):
        parser.add_argument(option, type=lambda text: text.split(","), default=[])
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    folder, zpager = given.folder.resolve(), given.zpager.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        if given.what == "bench":
            bench(folder, zpager, given)
        else:
            test(folder, zpager)
    except Missing as why:
        say(f"guest: skipped: {why}")
        return
    except machine.Starved as why:
        say(f"guest: skipped: the host was busy with others: {str(why).partition(chr(10))[0]}")
        return
    except machine.Failed as why:
        sys.exit(f"guest: FAILED: {why}")
    say(f"guest: all in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
