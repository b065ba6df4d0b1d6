"""Programs under the rivals in turn, in guests, and what came out.

Every result is kept in a file as it comes, so that a comparison that is cut off is not lost, and what
was measured need not be measured again: a row is a kernel, a program and a rival, and the last one counts.
"""

import dataclasses
import json
import time

import machine
import rivals

SECTOR_BYTES = 512
MIB = 1 << 20
# How long one program may take; a rival that needs longer has hung.
PROGRAM_SECONDS = 900
RESULTS = "comparison.json"
# The newer kernel takes so much less for itself, and all are to have the same.
NEWER_LESS_MIB = 7


@dataclasses.dataclass
class Row:
    """What one program took under one rival."""

    kernel: str
    program: str
    rival: str
    memory_kib: int
    output: str
    # By the host's clock; the guest's runs wrong where it was calibrated on a busy host.
    seconds: float = 0
    # Of these, those in which the guest's processor was ready and had none of the host's, as others or
    # other machines had it.
    waited_seconds: float = 0
    reads: int = 0
    read_bytes: int = 0
    writes: int = 0
    written_bytes: int = 0

    @property
    def what(self):
        """Which row it is."""
        return self.kernel, self.program, self.rival

    @property
    def operations(self):
        """The disk's, of both kinds."""
        return self.reads + self.writes

    def said(self):
        """In one line."""
        return (f"{self.program} | {self.rival} | {self.seconds:.1f} s, {self.waited_seconds:.1f} of them "
                f"waiting for the host | {self.reads} reads, {self.read_bytes / MIB:.1f} MiB | "
                f"{self.writes} writes, {self.written_bytes / MIB:.1f} MiB | {self.output}")


class Results:
    """The rows so far, in their file."""

    def __init__(self, folder):
        self.path = folder / RESULTS
        self.rows = [Row(**row) for row in json.loads(self.path.read_text())] if self.path.exists() else []

    def kernels(self):
        """Those that something was measured under, the oldest first."""
        found = {row.kernel for row in self.rows}
        return sorted(found, key=lambda name: [int(part) for part in name.split(".")[:2]])

    def add(self, row):
        """One more, in the place of an older one of the same."""
        self.rows = [old for old in self.rows if old.what != row.what]
        self.rows.append(row)
        arriving = self.path.with_suffix(".new")
        arriving.write_text(json.dumps([dataclasses.asdict(one) for one in self.rows], indent=1))
        arriving.rename(self.path)

    def of_program(self, kernel, name):
        """Its rows under a kernel, by rival."""
        return {row.rival: row for row in self.rows if (row.kernel, row.program) == (kernel, name)}


def memory_kib(guest):
    """What the kernel has of the guest's memory for everything."""
    return int(guest.must("sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))


def measure(guest, program, rival, kib):
    """One program, with no caches before."""
    guest.must(rivals.CLEAN, rivals.SET_UP_SECONDS)
    began, waited = time.monotonic(), guest.waited_seconds()
    said = guest.must(f"cd /; measure '{program.line}'", PROGRAM_SECONDS)
    seconds, waited = time.monotonic() - began, guest.waited_seconds() - waited
    line, *errors = said.splitlines()
    status, digest, *numbers = line.split()
    reads, read, writes, written = map(int, numbers)
    if status == "0" and not errors:
        output = "ok" if digest == program.digest else "WRONG"
    else:
        output = f"ended with {status}: {' '.join(errors)}".strip(": ")
    return Row(guest.kernel.version, program.name, rival.name, kib, output, seconds, waited, reads,
               read * SECTOR_BYTES, writes, written * SECTOR_BYTES)


def run_program(guest, program, kib, names, results, say):
    """One program under the rivals of these names."""
    for rival in (rival for rival in rivals.all_rivals(guest.kernel, kib) if rival.name in names):
        guest.must(rival.begin, rivals.SET_UP_SECONDS)
        try:
            row = measure(guest, program, rival, kib)
        except machine.NoAnswer:
            why = f"none in {PROGRAM_SECONDS} s"
            results.add(Row(guest.kernel.version, program.name, rival.name, kib, why))
            raise
        results.add(row)
        say(row.said())
        if row.output == "WRONG":
            raise machine.Failed(f"{program.name} under {rival.name}: the output differs")
        guest.must(rival.end, rivals.SET_UP_SECONDS)


class Guests:
    """One guest at a time, as large as is wanted, the same one for as long as nothing goes wrong."""

    def __init__(self, built):
        self.built = built
        self.guest = None
        self.mib = None

    def of_mib(self, mib):
        """A guest of this size."""
        if self.guest is None or self.mib != mib:
            self.end()
            given_mib = mib - (NEWER_LESS_MIB if self.built.kernel.has(rivals.UBLK_DRIVER) else 0)
            self.guest, self.mib = machine.Machine(self.built, given_mib, machine.SLOW), mib
        return self.guest

    def end(self):
        """None any more."""
        if self.guest:
            self.guest.end()
        self.guest = None


def compare(built, programs, names, results, until, say):
    """All programs under rivals of these names, one after the other; none is begun after `until`."""
    guests = Guests(built)
    try:
        for program in programs:
            if time.monotonic() > until:
                say(f"{program.name}: no time left")
                continue
            try:
                guest = guests.of_mib(program.guest_mib)
                run_program(guest, program, memory_kib(guest), names, results, say)
            except machine.Failed as why:
                say(f"{program.name}: FAILED: {why}")
                guests.end()
    finally:
        guests.end()
