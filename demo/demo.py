#!/usr/bin/env python3
"""Runs two programs free, then in a quarter of their memory, and compares.

The programs are GNU sort, on a shuffled text that is made here, and CPython with a
few hundred MB of objects. Nothing is downloaded and nothing is left behind.
"""

import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ZPAGER = HERE.parent / "target/release/zpager"
LINES = 160_000
SENTENCES_PER_LINE = 20
RECORDS = 260_000
SEED = 2003
MIB = 1 << 20
PAGE_BYTES = 4096


def words(source):
    """Words of one to four syllables, the short ones first, as the frequent ones are in a language."""
    syllables = [a + b + c for a in "bcdfghklmnprstvw" for b in "aeiou" for c in ["", *"nrsl"]]
    made = {"".join(source.choices(syllables, k=source.randint(1, 4))) for _ in range(20_000)}
    return sorted(made, key=lambda word: (len(word), word))


def make_text(file):
    """A text of shuffled lines: a number and a paragraph of some 1,500 letters each."""
    source = random.Random(SEED)
    vocabulary = words(source)
    # Zipf's law: the n-th word is used 1/n as often as the first.
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(vocabulary))))
    sentences = [" ".join(source.choices(vocabulary, cum_weights=weights, k=15)) + "."
                 for _ in range(50_000)]
    with open(file, "w", encoding="ascii") as text:
        for _ in range(LINES):
            paragraph = " ".join(source.choices(sentences, k=SENTENCES_PER_LINE))
            text.write(f"{source.randrange(10**9):09} {paragraph}\n")


def digest(file):
    """The sha256 of a file."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() if hasattr(
            hashlib, "file_digest") else hashlib.sha256(content.read()).hexdigest()


def run(command, output):
    """Runs a command; gives its seconds and its peak resident bytes."""
    environment = dict(os.environ, LC_ALL="C", PYTHONHASHSEED="0")
    began = time.monotonic()
    with open(output, "wb") as file:
        process = subprocess.Popen(command, stdout=file, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        sys.exit(f"demo: {command[0]} ended with status {code}")
    return seconds, usage.ru_maxrss * 1024


def compare(title, command, folder):
    """Runs a program free and in a quarter of its memory; gives what there is to tell."""
    print(f"{title}: free ...", end="", flush=True)
    free_seconds, free_bytes = run(command, folder / "free")
    budget_bytes = free_bytes // 4
    print(f" {free_seconds:.1f} s; in {budget_bytes / MIB:.0f} MiB ...", end="", flush=True)
    statistics = folder / "statistics.json"
    managed = [str(ZPAGER), "run", "--quiet", "--memory", str(budget_bytes),
               "--store", str(folder), "--stats", str(statistics), "--", *command]
    seconds, _ = run(managed, folder / "managed")
    print(f" {seconds:.1f} s")
    return {
        "title": title,
        "free_seconds": free_seconds,
        "free_bytes": free_bytes,
        "seconds": seconds,
        "equal": digest(folder / "free") == digest(folder / "managed"),
        **json.loads(statistics.read_text()),
    }


def rows(result):
    """The lines of the table for one program: what, free, in a quarter."""
    ratio = result["original_bytes"] / max(result["compressed_bytes"], 1)
    compressed = result["swapped_out_pages"] - result["same_filled_pages"] \
        - result["incompressible_pages"]
    yield "time", f"{result['free_seconds']:.1f} s", f"{result['seconds']:.1f} s"
    yield ("peak physical memory", f"{result['free_bytes'] / MIB:.0f} MiB",
           f"{result['peak_bytes'] / MIB:.0f} MiB of {result['budget_bytes'] / MIB:.0f}")
    yield ("pages resident at the peak", f"{result['free_bytes'] // PAGE_BYTES:,}",
           f"{result['peak_resident_bytes'] // PAGE_BYTES:,}")
    yield "pages swapped out in all", "", f"{result['swapped_out_pages']:,}"
    yield "  compressed", "", f"{compressed:,}"
    yield "  same-filled", "", f"{result['same_filled_pages']:,}"
    yield "  spilled to the swap file", "", f"{result['spilled_pages']:,}"
    yield "compression ratio", "", f"{ratio:.1f}"
    yield "output", "", "equal" if result["equal"] else "DIFFERENT"


def show(results):
    """Prints the table."""
    print(f"\n{'':30}{'free':>14}{'in a quarter':>20}")
    for result in results:
        print(result["title"])
        for what, free, managed in rows(result):
            print(f"  {what:28}{free:>14}{managed:>20}")
    print("\nIn a quarter, peak physical memory is resident pages, pool and zpager's own data together.")


def main():
    if not ZPAGER.is_file():
        sys.exit("demo: target/release/zpager is not there: `make build` makes it")
    sort = shutil.which("sort")
    # The interpreter itself: a version manager's script in PATH would be what is measured.
    python = os.path.realpath(sys.executable)
    with tempfile.TemporaryDirectory(prefix="demo-", dir=ZPAGER.parent) as name:
        folder = Path(name)
        print(f"making a text of {LINES:,} lines ...")
        text = folder / "text"
        make_text(text)
        results = [
            compare("GNU sort", [sort, "--buffer-size=1G", "--parallel=1", str(text)], folder),
            compare("CPython", [python, str(HERE / "records.py"), str(RECORDS)], folder),
        ]
    show(results)
    if not all(result["equal"] for result in results):
        sys.exit("demo: the outputs differ")


if __name__ == "__main__":
    main()
