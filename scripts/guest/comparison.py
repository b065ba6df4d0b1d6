"""Programs under the rivals in turn, in one guest, and the table of what came out."""

import os

import machine
import rivals

SECTOR_BYTES = 512
MIB = 1 << 20
# How long one program may take; a rival that needs longer has hung.
PROGRAM_SECONDS = 900
HEAD = ["workload", "swap", "seconds", "disk reads", "disk writes", "MiB read", "MiB written",
        "output"]


class Row:
    """What one program took under one rival."""

    def __init__(self, program, rival, line):
        self.program = program.name
        self.rival = rival.name
        status, digest, *numbers = line.split()
        self.seconds, self.reads, read, self.writes, written = map(int, numbers)
        self.seconds /= 100
        self.read_bytes, self.written_bytes = read * SECTOR_BYTES, written * SECTOR_BYTES
        if status != "0":
            self.output = f"ended with {status}"
        else:
            self.output = "ok" if digest == program.digest else "WRONG"

    def cells(self):
        """The columns."""
        return [self.program, self.rival, f"{self.seconds:.1f}", str(self.reads), str(self.writes),
                f"{self.read_bytes / MIB:.1f}", f"{self.written_bytes / MIB:.1f}", self.output]


def memory_kib(guest):
    """What the kernel has of the guest's memory for everything."""
    return int(guest.must("sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))


def measure(guest, program, rival):
    """One program, with no caches before."""
    guest.must(rivals.CLEAN, 60)
    line, *errors = guest.must(f"cd /; measure sh -c '{program.line}'", PROGRAM_SECONDS).splitlines()
    row = Row(program, rival, line)
    if row.output == "WRONG":
        raise machine.Failed(f"{program.name} under {rival.name}: the output differs\n"
                             f"{guest.console_tail()}")
    if errors:
        row.output += f" ({errors[0].strip()})"
    return row


def compare(built, mib, programs, say):
    """All programs under all rivals, in a guest of so many MiB; gives its memory, the rows, and the
    host's load after each."""
    rows, loads = [], []
    with machine.Machine(built, mib, machine.OPERATIONS) as guest:
        kib = memory_kib(guest)
        for rival in rivals.all_rivals(kib):
            guest.must(rival.begin, 120)
            for program in programs:
                rows.append(measure(guest, program, rival))
                loads.append(os.getloadavg()[0])
                say(" | ".join(rows[-1].cells()))
            guest.must(rival.end, 300)
    return kib, rows, loads


def table(rows):
    """As Markdown."""
    rule = ["---"] * 2 + ["---:"] * 5 + ["---"]
    lines = [HEAD, rule, *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
