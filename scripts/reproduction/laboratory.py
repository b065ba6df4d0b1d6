"""Records the programs once, and asks the simulator and `zpager codecs` about them."""

import concurrent.futures
import json
import os
import subprocess
import threading

from . import inputs

MIB = 1 << 20
# The designs take these.
CODECS = "word,lz4,lzo,wkdm,wk4x4,zstd"
DISK = "hdd"
# Nobody waits longer for one program.
SECONDS_MAX = 900
# Pages that `zpager codecs` draws.
SAMPLE = 1500
# As many at once; each has a file of its own for answers.
WORKERS = min(4, os.cpu_count() or 1)
# The simulator takes no less memory.
LEAST_MIB = 8
# Below this many seconds a replay does not page.
PAGING = 0.05


class Laboratory:
    """The traces, and what is known of them. MiB throughout."""

    def __init__(self, zpager, directory, programs, missing):
        self.zpager, self.directory = zpager, directory
        self.programs, self.missing = programs, missing
        self.answers = {}

    def trace(self, name):
        """Where the trace of a program lies."""
        return self.directory / (name.replace(" ", "-") + ".trace")

    def has(self, *names):
        """Those of the programs that were recorded."""
        return [name for name in names if name in self.programs]

    def run(self, command):
        """Runs a command to its end: nothing, or the last thing that it said."""
        try:
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, timeout=SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            return f"took longer than {SECONDS_MAX} s"
        said = ended.stderr.strip().splitlines() or [f"status {ended.returncode}"]
        return said[-1] if ended.returncode else None

    def record(self, name):
        """Records a program, unless that was done before; gives why it could not be."""
        if self.trace(name).exists():
            return None
        program = self.programs[name]
        failed = self.run([self.zpager, "trace", "--quiet", "--window", str(program.window),
                           "--codec", CODECS, "--output", str(self.trace(name)),
                           "--", *program.command])
        inputs.say(f"{'failed' if failed else 'recorded'} {name}{': ' + failed if failed else ''}")
        return failed

    def record_all(self):
        """Records every program; those that fail are left out from here on."""
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            failures = dict(zip(self.programs, pool.map(self.record, self.programs)))
        for name, why in failures.items():
            if why:
                self.missing[name] = why
                del self.programs[name]

    def ask(self, question, command):
        """The rows that a command writes as JSON, asked once."""
        if question not in self.answers:
            output = self.directory / f"{threading.get_ident()}.json"
            failed = self.run([*command[:2], "--json", str(output), *command[2:]])
            if failed:
                raise RuntimeError(f"{' '.join(command)}: {failed}")
            self.answers[question] = json.loads(output.read_text())
        return self.answers[question]

    def sims(self, name, memory, designs, **parameters):
        """A row for each of the designs at one memory size; parameters are the first one's."""
        command = [self.zpager, "sim", "--memory", f"{round(memory * 1024)}K",
                   "--design", ",".join(designs), "--disk", DISK]
        for key, value in parameters.items():
            command += ["--set", f"{designs[0]}.{key}={value}"]
        question = (name, memory, *designs, *parameters.items())
        return self.ask(question, [*command, str(self.trace(name))])

    def sim(self, name, memory, design, **parameters):
        """The row of one design."""
        return self.sims(name, memory, (design,), **parameters)[0]

    def seconds(self, name, memory, design, **parameters):
        """The modelled time of one design."""
        return self.sim(name, memory, design, **parameters)["modelled_seconds"]

    def plain(self, name, memory):
        """Swap without compression that reads pages one by one and leaves the same way."""
        return self.sim(name, memory, "zswap", max_pool_percent=0, same_filled="off")

    def peak(self, name):
        """What the program takes without a limit."""
        return self.sim(name, 4096, "none")["peak_bytes"] / MIB

    def part(self, name, share, least=LEAST_MIB):
        """So much of the peak, and at least so many."""
        return max(least, round(self.peak(name) * share))

    def memories(self, name):
        """The program's own shares of its peak, small to large."""
        return [self.part(name, share) for share in self.programs[name].shares]

    def codecs(self, name):
        """Rows of `zpager codecs` on the program's own memory, by codec."""
        rows = self.ask((name, "codecs"), self.codecs_command(name))
        return {row["codec"]: row for row in rows}

    def codecs_command(self, name, *more):
        """What asks for them."""
        command = [self.zpager, "codecs", "--pages", str(SAMPLE), *more, "--"]
        return [*command, *self.programs[name].command]

    def left(self, name, codec):
        """What is left of the program's memory in %; same-filled pages leave nothing."""
        row = self.codecs(name)[codec]
        bytes_before = row["original_bytes"] + row["same_filled_pages"] * 4096
        return 100 * row["compressed_bytes"] / bytes_before


def speedup(base, row):
    """How many times faster; nothing where neither pages."""
    seconds = base["modelled_seconds"], row["modelled_seconds"]
    return None if max(seconds) < PAGING else seconds[0] / max(seconds[1], 1e-9)


def gain(base, row):
    """What is saved of the time, in %; nothing where neither pages."""
    faster = speedup(base, row)
    return None if faster is None or base["modelled_seconds"] == 0 else 100 * (1 - 1 / faster)
