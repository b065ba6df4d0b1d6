"""The programs that are run under pressure, their inputs, and what they print where memory is plenty.

The expected output of each is that of the same program file with the same input on this machine.
"""

import hashlib
import os
import random
import subprocess

SEED = 1999
TEXT = "share/lines"
PAGE_BYTES = 4096
# With so large a buffer it keeps no files of its own.
SORT = "sort -S 64M --parallel=1"


class Program:
    """A line of shell and the digest of what it prints."""

    def __init__(self, name, line):
        self.name = name
        self.line = line
        self.digest = None


def touch(mib):
    """Pages visited at random, a quarter of each random."""
    pages = (mib << 20) // PAGE_BYTES
    # The rest of what it prints are times.
    line = f"zpager bench touch --order random --pages {pages} --seed {SEED} | cut -d, -f1"
    return Program("touch", line)


def sort():
    """GNU sort of lines held in memory."""
    return Program("sort", f"{SORT} {TEXT}")


def write_lines(path, mib):
    """Lines of words with a number before each."""
    source = random.Random(SEED)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
    words = ["".join(source.choices(syllables, k=source.randint(1, 4))) for _ in range(5000)]
    left = mib << 20
    with open(path, "w", encoding="ascii") as file:
        while left > 0:
            line = f"{source.randrange(10**9)} {' '.join(source.choices(words, k=20))}\n"
            left -= file.write(line)


class Inputs:
    """The files of the programs, by their places in the guest."""

    def __init__(self, folder, zpager, lines_mib):
        self.folder = folder / "inputs"
        (self.folder / "share").mkdir(parents=True, exist_ok=True)
        self.zpager = zpager
        write_lines(self.folder / TEXT, lines_mib)
        self.files = {TEXT: self.folder / TEXT}

    def expect(self, programs):
        """Runs the programs here and notes what they print."""
        links = self.folder / "bin"
        links.mkdir(exist_ok=True)
        (links / "zpager").unlink(missing_ok=True)
        (links / "zpager").symlink_to(self.zpager)
        environment = dict(os.environ, LC_ALL="C", PATH=f"{links}:{os.environ['PATH']}")
        for program in programs:
            done = subprocess.run(["sh", "-c", program.line], cwd=self.folder, env=environment,
                                  stdout=subprocess.PIPE, check=True)
            program.digest = hashlib.md5(done.stdout).hexdigest()
        return programs
