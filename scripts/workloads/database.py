"""A database in memory: Debian's list of packages in tables with indexes, queried and changed.

A stand-in for castro's OSDB. Rows, indexes and sorted results lie in the heap of SQLite.

Arguments: a file of records as `apt-cache dumpavail` prints them, how many of them, number of
rounds of queries, seed.
"""

import hashlib
import itertools
import random
import re
import sqlite3
import sys

path, count, rounds, seed = sys.argv[1], *(int(argument) for argument in sys.argv[2:])
source = random.Random(seed)
FIELDS = "Package", "Version", "Section", "Maintainer", "Depends", "Description", "Filename", "Tag"


def records():
    """The values of FIELDS of one record after the other, with its size."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for _ in range(count):
            lines = "".join(itertools.takewhile(str.strip, file))
            fields = dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)", lines, re.MULTILINE))
            yield [fields.get(name, "") for name in FIELDS] + [int(fields.get("Size", 0))]


database = sqlite3.connect(":memory:")
database.execute(f"CREATE TABLE packages ({', '.join(FIELDS)}, Size INTEGER)")
database.execute("CREATE TABLE needs (Package, Needed)")
database.executemany(f"INSERT INTO packages VALUES ({','.join('?' * 9)})", records())
needs = [
    (package, name)
    for package, depends in database.execute("SELECT Package, Depends FROM packages")
    for name in re.findall(r"(?:^|[,|] )([\w.+-]+)", depends)
]
database.executemany("INSERT INTO needs VALUES (?, ?)", needs)
for table, column in (("packages", "Package"), ("packages", "Maintainer"), ("needs", "Needed")):
    database.execute(f"CREATE INDEX {table}_{column} ON {table} ({column})")
names = [name for (name,) in database.execute("SELECT Package FROM packages")]

digest = hashlib.sha256()
QUERIES = (
    "SELECT Section, count(*), sum(Size) FROM packages GROUP BY Section ORDER BY 3",
    "SELECT Needed, count(*) FROM needs GROUP BY Needed ORDER BY 2 DESC, 1 LIMIT 50",
    "SELECT a.Package, b.Size FROM needs a JOIN packages b ON b.Package = a.Needed ORDER BY 2, 1",
    "SELECT Package FROM packages WHERE Description LIKE '%library%' ORDER BY Maintainer, 1",
)
for _ in range(rounds):
    for query in QUERIES:
        digest.update(repr(database.execute(query).fetchmany(200)).encode())
    for name in source.choices(names, k=len(names)):
        database.execute("UPDATE packages SET Size = Size + 1 WHERE Package = ?", (name,))
        rows = database.execute("SELECT Package FROM needs WHERE Needed = ? LIMIT 5", (name,))
        digest.update(repr(rows.fetchall()).encode())
print(digest.hexdigest())
