"""The programs that are run under pressure, their inputs, and what they print where memory is plenty.

The expected output of each is that of the same program file with the same input on this machine.
"""

import hashlib
import os
import pathlib
import random
import subprocess

import image
from missing import Missing

HERE = pathlib.Path(__file__).resolve().parent
SEED = 1999
TEXT = "share/lines"
UNIT = "share/unit.c"
QUERIES = "share/queries.sql"
PAGE_BYTES = 4096


class Program:
    """A line of shell and the digest of what it prints."""

    def __init__(self, name, what, line):
        self.name = name
        self.what = what
        self.line = line
        self.digest = None


def touch(mib):
    """Pages visited at random, a quarter of each random."""
    pages = (mib << 20) // PAGE_BYTES
    # The rest of what it prints are times.
    line = f"zpager bench touch --order random --pages {pages} --seed {SEED} | cut -d, -f1"
    return Program("touch", f"{mib} MiB of pages, visited at random", line)


def relaxation(side, sweeps):
    """hp's successive over-relaxation."""
    line = f"zpager bench sor --side {side} --sweeps {sweeps} --seed {SEED}"
    mib = side * side * 8 >> 20
    return Program("sor", f"over-relaxation, {sweeps} sweeps over {mib} MiB", line)


def sort(mib):
    """GNU sort of lines held in memory."""
    return Program("sort", f"GNU sort of {mib} MiB of lines", f"sort -S 96M --parallel=1 {TEXT}")


def transform(log_side):
    """cervera's first benchmark."""
    side = 1 << log_side
    mib = side * side * 16 >> 20
    return Program("fft", f"Fourier transform, {side} x {side}, {mib} MiB", f"fft {log_side}")


def compilation(functions):
    """The compiler proper."""
    return Program("cc1", f"gcc -O1 on {functions} functions", f"cc1 -quiet -O1 -w {UNIT} -o -")


def database(rows):
    """SQLite, all in memory."""
    return Program("sqlite", f"SQLite in memory, {rows} rows and two indexes",
                   f"sqlite3 :memory: <{QUERIES}")


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


def write_unit(path, functions):
    """A C file of functions that call each other."""
    source = random.Random(SEED)
    with open(path, "w", encoding="ascii") as file:
        file.write("struct node { struct node *next; long key, weight; };\n")
        for number in range(functions):
            file.write(f"long work{number}(struct node *list, long a, long b)\n{{\n\tlong sum = a;\n")
            for _ in range(source.randint(6, 20)):
                x, y = source.randrange(1, 999), source.randrange(1, 999)
                callee = source.randrange(max(0, number - 100), number) if number else None
                file.write(source.choice([
                    f"\tfor (long i = 0; i < b % {x} + 1; i++) sum += (a ^ i) * {y};\n",
                    f"\tfor (struct node *n = list; n; n = n->next) if (n->key > {x}) "
                    f"sum += n->weight / {y};\n",
                    f"\tswitch ((a + sum) % 4) {{ case 0: sum += {x}; break; case 1: b -= {y}; break; "
                    f"case 2: sum *= {y}; break; default: a ^= {x}; }}\n",
                    f"\ta = (a << 3) ^ (b >> 2) ^ {x}; b += a * {y};\n" if callee is None else
                    f"\tif (sum & {x}) sum += work{callee}(list, sum, b - {y});\n"]))
            file.write("\treturn sum;\n}\n")


def write_queries(path, rows):
    """A table made by a recurrence, two indexes, and queries that go all over it."""
    path.write_text(f"""
create table item(id integer primary key, code integer, name text);
with recursive n(i, x) as
    (select 1, {SEED} union all select i + 1, (x * 1103515245 + 12345) % 2147483648 from n limit {rows})
    insert into item select i, x, printf('%08x item number %d of the stock', x, i) from n;
create index item_code on item(code);
create index item_name on item(name);
select count(*), sum(code % 1000) from item a where exists
    (select 1 from item b where b.code = a.code / 2 * 2 and b.id <> a.id);
select sum(length(b.name)) from item a join item b on b.id = a.code % {rows} + 1;
select name from item order by name limit 5 offset {rows // 2};
""")


def compiler():
    """Where the compiler proper is."""
    said = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True,
                          check=False).stdout.strip()
    if not os.path.isabs(said):
        raise Missing("no cc1: scripts/packages scripts/guest/packages installs gcc")
    return said


class Inputs:
    """The files of the programs, by their places in the guest."""

    def __init__(self, folder, zpager, lines_mib, functions, rows):
        self.folder = pathlib.Path(folder) / "inputs"
        (self.folder / "share").mkdir(parents=True, exist_ok=True)
        self.commands = {"zpager": zpager}
        write_lines(self.folder / TEXT, lines_mib)
        self.files = {TEXT: self.folder / TEXT}
        if functions:
            self.add_compiled(functions, rows)

    def add_compiled(self, functions, rows):
        """What the long comparison has besides."""
        write_unit(self.folder / UNIT, functions)
        write_queries(self.folder / QUERIES, rows)
        transform_file = self.folder / "fft"
        subprocess.run([image.find("gcc"), "-static", "-O2", "-ffp-contract=off", "-o",
                        transform_file, HERE / "fft.c", "-lm"], check=True)
        self.commands |= {"fft": transform_file, "cc1": compiler()}
        self.files |= {UNIT: self.folder / UNIT, QUERIES: self.folder / QUERIES,
                       "bin/fft": transform_file, "bin/cc1": self.commands["cc1"]}

    def expect(self, programs):
        """Runs the programs here and notes what they print."""
        links = self.folder / "bin"
        links.mkdir(exist_ok=True)
        for name, path in self.commands.items():
            (links / name).unlink(missing_ok=True)
            (links / name).symlink_to(pathlib.Path(path).resolve())
        environment = dict(os.environ, LC_ALL="C", PATH=f"{links}:{os.environ['PATH']}")
        for program in programs:
            done = subprocess.run(["sh", "-c", program.line], cwd=self.folder, env=environment,
                                  stdout=subprocess.PIPE, check=True)
            program.digest = hashlib.md5(done.stdout).hexdigest()
        return programs
