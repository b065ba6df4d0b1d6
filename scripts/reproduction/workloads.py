"""The programs that are recorded, each with what it stands for and the window of its recording."""

import pathlib
from typing import NamedTuple

from . import inputs

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = ROOT / "scripts" / "workloads"
SHARED = ROOT / "crates" / "bench" / "src" / "workloads"

# Pages: 2 MiB. What is used again within a window is not seen, so it has to be small beside every
# memory in which the trace is replayed; each process has one. Programs that would take hours in it
# have a larger one.
WINDOW = 512
# Shares of the peak in which a trace is replayed.
SHARES = (0.4, 0.6, 0.8)
# The window of the aligner is half of its peak.
ALIGNER_SHARES = (0.85, 0.95)
COMPILE = ("cc", "-O1", "-w", "-S", "-o", "/dev/null")


class Workload(NamedTuple):
    """A program and its input."""

    what: str
    command: list
    window: int = WINDOW
    shares: tuple = SHARES


def script(folder, name, *arguments):
    """A Python program and its arguments."""
    return [inputs.python_with_numpy(), str(folder / name), *map(str, arguments)]


def together(command, count):
    """A command, so many times at once."""
    loop = 'n=$1; shift; while [ $n -gt 0 ]; do "$@" & n=$((n - 1)); done; wait'
    return ["sh", "-c", loop, "sh", str(count), *command]


def fft(side, window):
    """There and back of random complex values."""
    def make(_):
        what = f"NumPy's fft2 of {side} x {side} random complex values, there and back"
        return Workload(what, script(SHARED, "fft.py", side, 1, 1), window)
    return make


def fft_together(count, side, window):
    """Several small ones at once."""
    def make(_):
        command = together(script(SHARED, "fft.py", side, 1, 1), count)
        return Workload(f"{count} at once of {side} x {side}", command, window)
    return make


def sort(lines, count=1):
    """GNU sort of words, in memory."""
    def make(directory):
        path = directory / f"words-{lines}.txt"
        inputs.word_lines(path, lines, seed=1)
        command = ["env", "LC_ALL=C", "sort", "-S", "1G", "--parallel=1"]
        command += ["-o", "/dev/null", str(path)]
        if count == 1:
            return Workload(f"GNU sort in memory of {lines:,} words with numbers", command)
        what = f"{count} at once of {lines:,} words"
        return Workload(what, together(command, count), WINDOW // count)
    return make


def simulator(disks, events, count=1):
    """Events in a network of disks."""
    def make(_):
        command = script(OWN, "network.py", disks, 8192, events, 1)
        if count == 1:
            return Workload(f"events in a network of {disks} disks with queues of 8192", command)
        what = f"{count} at once with {disks} disks"
        return Workload(what, together(command, count), WINDOW // count)
    return make


def dither(frames, height, width, plays, count=1):
    """Floyd-Steinberg dithering of a film, of moving patterns where there is no film."""
    def make(directory):
        path, source = directory / f"film-{frames}.rgb", "a film"
        try:
            inputs.video_frames(path, frames, height, width)
        except inputs.Missing as why:
            path, source = "-", f"made pictures ({why})"
        command = script(OWN, "dither.py", frames, height, width, plays, 1, path)
        if count > 1:
            return Workload(f"{count} at once of {frames} frames", together(command, count))
        what = f"Floyd-Steinberg dithering of {frames} frames of {source}, {width} x {height}"
        return Workload(f"{what}, played {plays} times (for xanim)", command)
    return make


def compiler(unit):
    """One real C file."""
    def make(_):
        inputs.need("cc", "gcc")
        path = inputs.c_sources(ROOT) / unit
        return Workload(f"cc -O1 of zstd's {path.name}", [*COMPILE, str(path)])
    return make


def build(units, jobs):
    """A build: these C files, so many at a time."""
    def make(_):
        inputs.need("cc", "gcc")
        folder = inputs.c_sources(ROOT)
        command = f'printf "%s\\n" "$@" | xargs -n 1 -P {jobs} {" ".join(COMPILE)}'
        what = f"{len(units)} C files of zstd, {jobs} at a time"
        return Workload(what, ["sh", "-c", command, "sh", *(str(folder / unit) for unit in units)])
    return make


def aligner(bases, window):
    """MUMmer on two strains of one species."""
    def make(directory):
        inputs.need("mummer", "mummer")
        names = ("DH1", "MG1655-K12")
        paths = [directory / f"{name}.fasta" for name in names]
        for name, path in zip(names, paths):
            inputs.genome(path, name, bases)
        what = f"MUMmer on the first {bases:,} bases of E. coli {' and '.join(names)}"
        command = ["mummer", "-mum", "-b", "-c", *map(str, paths)]
        return Workload(what, command, window, ALIGNER_SHARES)
    return make


def database(records):
    """SQLite in memory."""
    def make(directory):
        path = directory / "packages.txt"
        inputs.package_records(path, records)
        command = script(OWN, "database.py", path, records, 1, 1)
        return Workload(f"SQLite in memory, {records:,} of Debian's packages (for OSDB)", command)
    return make


def objects(records):
    """CPython's dictionaries."""
    def make(_):
        command = script(SHARED, "objects.py", records, 2, 1)
        return Workload(f"CPython, {records:,} dictionaries built and queried", command)
    return make


def relaxation(zpager, mib):
    """Successive over-relaxation of a grid of so many MiB."""
    def make(_):
        side = round((mib * (1 << 20) / 8) ** 0.5)
        sizes = ["--side", str(side), "--sweeps", "10", "--seed", "1"]
        return Workload(f"successive over-relaxation, {mib} MiB", [zpager, "bench", "sor", *sizes])
    return make


SOR_MIB = (13, 32, 48, 64, 96)
BUILD_JOBS = (1, 2, 3, 4)
BUILD_UNITS = tuple(f"compress/{name}.c" for name in
                    ("zstd_compress", "zstdmt_compress", "huf_compress", "zstd_opt"))


def makers(zpager):
    """Name to what prepares the program, or raises `inputs.Missing`."""
    return {
        "fft": fft(2048, window=4096),
        "fft x 10": fft_together(10, 512, window=1024),

        "sort": sort(500_000),
        "sort x 6": sort(100_000, count=6),
        "simulator": simulator(64, 12_000),
        "simulator x 5": simulator(16, 3_000, count=5),
        "dither": dither(100, 240, 320, plays=6),
        "dither x 4": dither(30, 240, 320, plays=6, count=4),
        "compiler": compiler(BUILD_UNITS[0]),
        "aligner": aligner(700_000, window=1280),
        "database": database(12_000),
        "objects": objects(20_000),
        **{f"build -j{jobs}": build(BUILD_UNITS, jobs) for jobs in BUILD_JOBS},
        **{f"sor {mib}": relaxation(zpager, mib) for mib in SOR_MIB},
    }


def prepare(zpager, directory):
    """The workloads that can be had, and why the others cannot."""
    programs, missing = {}, {}
    for name, make in makers(zpager).items():
        try:
            programs[name] = make(directory)
        except inputs.Missing as why:
            inputs.say(f"left out {name}: {why}")
            missing[name] = str(why)
    return programs, missing
