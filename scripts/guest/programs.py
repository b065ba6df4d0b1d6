"""The programs that are run under pressure, their inputs, and what they print where memory is plenty.

The expected output of each is that of the same program file with the same input on this machine.
"""

import dataclasses
import hashlib
import math
import os
import pathlib
import random
import subprocess

import image
import kernel

HERE = pathlib.Path(__file__).resolve().parent
SEED = 1999
TEXT = "share/lines"
SHORT_TEXT = "share/lines{}"
SOURCE = "share/unit{}.c"
PAGE_BYTES = 4096
# With so large a buffer it keeps no files of its own.
SORT = "sort -S 64M --parallel=1"
DIGEST = "| md5sum"
WORK = "bin/work"
STRIKE = "bin/strike"
STIR = "bin/stir"
COMPILER = "bin/cc1"
DATABASE = "bin/sqlite3"
QUERIES = "share/queries.sql"
# As make -j4 has them.
COMPILERS = 4
# Each picture is looked at so often, as it was and as it became.
PLAYS = 2
PICTURE_BYTES = 320 * 240 * 4

# The guest's memory, with that of the kernel, so that it has about 64 MiB for all, as cervera's machine
# and hp's; castro's three sizes are so much of what four compilers want as the paper's were.
GUEST_MIB = 112
COMPILE_MIB = (105, 113, 121)
# Ten small matrices would all fit.
FFTS_MIB = 104


@dataclasses.dataclass
class Program:
    """A line of shell and the digest of what it prints."""

    name: str
    line: str
    what: str = ""
    # The paper, and how many times faster it was there than with the disk alone.
    paper: str = ""
    guest_mib: int = GUEST_MIB
    digest: str = None


def at_once(name, lines, what, paper, mib=GUEST_MIB, filtered=""):
    """Several programs at the same time; what they print, `filtered`, is put in order. It fails if one
    of them does, or what filters or sorts, or the shell that waits for one of them."""
    note = "|| echo $? >>$failed"
    all_lines = " ".join(
        f"{{ {{ {line} {note}; }} {filtered} {note}; echo >>$ended; }} &" for line in lines)
    line = (f"failed=$(mktemp); ended=$(mktemp); {{ {all_lines} wait; }} | sort {note}; "
            f"[ $(wc -l <$ended) = {len(lines)} ] || echo 137 >>$failed; "
            "status=$(head -n 1 $failed); rm -f $failed $ended; exit ${status:-0}")
    return Program(name, line, what, paper, mib)


def touch(mib):
    """Pages visited at random, a quarter of each random."""
    pages = (mib << 20) // PAGE_BYTES
    # The rest of what it prints are times.
    line = f"zpager bench touch --order random --pages {pages} --seed {SEED} | cut -d, -f1"
    return Program("touch", line)


def sort():
    """GNU sort of lines held in memory."""
    return Program("sort", f"{SORT} {TEXT}")


def relaxation(mib, sweeps, paper):
    """hp's successive over-relaxation."""
    side = math.isqrt((mib << 20) // 8)
    line = f"zpager bench sor --side {side} --sweeps {sweeps} --seed {SEED}"
    what = f"successive over-relaxation of a grid of {mib} MiB, {sweeps} sweeps"
    return Program(f"sor {mib}", line, what, paper)


def cervera():
    """Cervera's eight."""
    usual = "1.2 to 2.1"
    short = "sort -S 16M --parallel=1"
    return [
        Program("fft", f"work fft 2048 {SEED}",
                "Fourier transform of a random matrix of 2048 x 2048, 64 MiB", "0.96"),
        at_once("fft x10", [f"work fft 512 {seed}" for seed in range(10)],
                "ten at once of 512 x 512, 40 MiB", usual, FFTS_MIB),
        at_once("sort", [f"{SORT} {TEXT}"], "GNU sort in memory of words in lines", usual, filtered=DIGEST),
        at_once("sort x6", [f"{short} {SHORT_TEXT.format(part)}" for part in range(6)],
                "six at once, of a sixth each", usual, filtered=DIGEST),
        Program("simulator", f"work simulate 72 20000 {SEED}",
                "event simulator of a network of disks, 72 MiB of queues", usual),
        at_once("simulator x5", [f"work simulate 16 4500 {seed}" for seed in range(5)],
                "five at once, of 16 MiB each", "6.5"),
        dither("dither", [200]),
        dither("dither x4", [56] * 4),
    ]


def dither(name, frames):
    """A stand-in for cervera's xanim."""
    lines = [f"work dither {count} {PLAYS} {seed}" for seed, count in enumerate(frames)]
    mib = sum(frames) * PICTURE_BYTES >> 20
    many = f"{len(frames)} at once of " if len(frames) > 1 else ""
    what = (f"{many}Floyd-Steinberg dithering of {frames[0]} pictures of 320 x 240 (for xanim), {mib} MiB, "
            "played twice")
    return at_once(name, lines, what, "1.2 to 2.1")


def compilers(mib, paper):
    """Castro's build, four at a time."""
    lines = [f"cc1 -quiet -fpreprocessed -O1 {SOURCE.format(part)} -o -" for part in range(COMPILERS)]
    what = "four of GCC's compilers at once"
    return at_once(f"compile {mib - 48}", lines, what, paper, mib, DIGEST)


def rows():
    """Those of the comparison."""
    return [
        relaxation(56, 2, "1.05 to 3.5"), relaxation(64, 2, "1.05 to 3.5"), relaxation(80, 2, "1.05 to 3.5"),
        *cervera(),
        *map(compilers, COMPILE_MIB, ("1.2", "1.5", "1.5")),
        Program("database", f"sqlite3 <{QUERIES}",
                "SQLite in memory: a table of 48 MiB with indexes, queried and changed", "1.4"),
    ]


def write_lines(path, mib, seed=SEED):
    """Lines of words, as a dictionary that was put together many times and mixed."""
    source = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in "aeiou"]
    words = ["".join(source.choices(syllables, k=source.randint(1, 4))) for _ in range(5000)]
    phrases = [" ".join(source.choices(words, k=18)) for _ in range(100)]
    left = mib << 20
    with open(path, "w", encoding="ascii") as file:
        while left > 0:
            left -= file.write(f"{' '.join(source.choices(words, k=2))} {source.choice(phrases)}\n")


def write_source(path, seed, functions=40):
    """A unit of C, of functions that walk a list and call each other."""
    source = random.Random(seed)
    with open(path, "w", encoding="ascii") as file:
        file.write("struct item { long key, left, right; struct item *next; unsigned char kind, flags; };\n")
        for number in range(functions):
            lines = [statement(source, number) for _ in range(14)]
            file.write(f"long f{number}(struct item *list, long x, long y)\n{{\nlong z = x * 3, w = y;\n"
                       f"{''.join(lines)}return x + y + z + w;\n}}\n")


def statement(source, functions):
    """One of them; it may call those before it."""
    one, other = source.sample("xyzw", 2)
    few, many = source.randrange(2, 60), source.randrange(10**6)
    return source.choice([
        f"for ({one} = 0; {one} < {few}; {one}++) {other} += list->key * {many} ^ {one} >> 3;\n",
        f"if ({one} > {other} + {many}) {{ list->left = {one} % {few}; {other} -= list->right; }}\n",
        f"switch ({one} & 3) {{ case 0: {other} = list->kind; break; case 1: {other} ^= {many}; break;"
        " default: list = list->next ? list->next : list; }\n",
        f"while ({one} > {few}) {{ {one} /= 2; list->flags |= {one}; {other} += {one} * {one}; }}\n",
        f"{one} += f{source.randrange(functions)}(list, {other}, {one});\n" if functions else "",
    ])


class Inputs:
    """The files of the programs, by their places in the guest."""

    def __init__(self, folder, zpager, lines_mib):
        self.folder = folder / "inputs"
        for name in ("share", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.zpager = zpager
        self.files = {}
        self.make(TEXT, write_lines, lines_mib)
        link = self.folder / "bin/zpager"
        link.unlink(missing_ok=True)
        link.symlink_to(zpager)

    def make(self, place, write, *arguments):
        """A file that is written."""
        write(self.folder / place, *arguments)
        self.files[place] = self.folder / place

    def take(self, place, path):
        """A program of this machine."""
        link = self.folder / place
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        self.files[place] = pathlib.Path(path)

    def compile(self, place, source):
        """A program of ours."""
        kernel.output_of("cc", "-O2", "-ffp-contract=off", "-o", self.folder / place, HERE / source)
        self.files[place] = self.folder / place

    def for_faults(self):
        """What the cases of what goes wrong need besides."""
        self.compile(STRIKE, "strike.c")
        self.compile(STIR, "stir.c")

    def for_rows(self, lines_mib):
        """What the comparison's programs need besides."""
        self.compile(WORK, "work.c")
        self.take(COMPILER, kernel.output_of("cc", "-print-prog-name=cc1").strip())
        self.take(DATABASE, image.find("sqlite3"))
        self.take(QUERIES, HERE / "queries.sql")
        for part in range(6):
            self.make(SHORT_TEXT.format(part), write_lines, lines_mib // 6, part)
        for part in range(COMPILERS):
            self.make(SOURCE.format(part), write_source, part)

    def expect(self, programs):
        """Runs the programs here and notes what they print."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = dict(os.environ, LC_ALL="C", PATH=path)
        for program in programs:
            done = subprocess.run(["sh", "-c", program.line], cwd=self.folder, env=environment,
                                  stdout=subprocess.PIPE, check=True)
            program.digest = hashlib.md5(done.stdout).hexdigest()
        return programs
