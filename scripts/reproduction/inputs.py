"""The programs' inputs: Debian's data where it is installed, made by a seed where that will do."""

import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys

WORDS = pathlib.Path("/usr/share/dict/american-english-insane")
VIDEO = pathlib.Path("/usr/share/doc/opencv-doc/examples/data/vtest.avi")
GENOMES = pathlib.Path("/usr/share/doc/ragout/examples/E.Coli/references")


class Missing(Exception):
    """Something that is not installed, in one line."""


def python_with_numpy():
    """A Python that has NumPy."""
    for name in ("python3", "/usr/bin/python3"):
        asked = subprocess.run([name, "-c", "import sys, numpy; print(sys.executable)"],
                               capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            return asked.stdout.strip()
    raise Missing("no Python 3 with NumPy (package python3-numpy)")


def need(command, package):
    """Sees to it that a command is installed."""
    if shutil.which(command) is None:
        raise Missing(f"no {command} (package {package})")


def need_file(path, package):
    """Sees to it that a package's file is there."""
    if not path.exists():
        raise Missing(f"no {path} (package {package})")


def word_lines(path, count, seed):
    """Shuffled lines of a word of Debian's largest list and a number."""
    need_file(WORDS, "wamerican-insane")
    source = random.Random(seed)
    words = WORDS.read_text().split()
    with open(path, "w") as file:
        for _ in range(count):
            file.write(f"{source.choice(words)}{source.randrange(1000)}\n")


def genome(path, name, bases):
    """The first bases of a genome, as FASTA."""
    source = GENOMES / f"{name}.fasta.gz"
    need_file(source, "ragout-examples")
    with gzip.open(source, "rt") as packed, open(path, "w") as file:
        file.write(packed.readline())
        left = bases
        for line in packed:
            if left <= 0:
                break
            file.write(line[:left].rstrip("\n") + "\n")
            left -= len(line.strip())


def package_records(path, count):
    """The first records that apt knows."""
    need("apt-cache", "apt")
    dump = subprocess.Popen(["apt-cache", "dumpavail"], stdout=subprocess.PIPE)
    with dump, open(path, "wb") as file:
        for line in dump.stdout:
            file.write(line)
            count -= line == b"\n"
            if count == 0:
                break
        dump.kill()
    if count:
        raise Missing(f"{count} records too few in apt's lists (apt-get update)")


def video_frames(path, frames, height, width):
    """Frames of a film of people who walk by, as red, green and blue bytes."""
    need("ffmpeg", "ffmpeg")
    need_file(VIDEO, "opencv-doc")
    subprocess.run(["ffmpeg", "-v", "error", "-nostdin", "-y", "-i", str(VIDEO),
                    "-vf", f"scale={width}:{height}", "-frames:v", str(frames),
                    "-pix_fmt", "rgb24", "-f", "rawvideo", str(path)], check=True)


def c_sources(root):
    """The folder of zstd's C files, which the project's own build compiles."""
    need("cargo", "cargo")
    asked = subprocess.run(["cargo", "metadata", "--format-version", "1", "--locked"], cwd=root,
                           capture_output=True, text=True, check=False)
    for package in json.loads(asked.stdout)["packages"] if asked.returncode == 0 else ():
        if package["name"] == "zstd-sys":
            return pathlib.Path(package["manifest_path"]).parent / "zstd" / "lib"
    raise Missing("no sources of zstd-sys among cargo's crates")


def say(text):
    """One line for whoever waits."""
    print(f"reproduce: {text}", file=sys.stderr, flush=True)
