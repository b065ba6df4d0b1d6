"""A program with a few hundred MB of real objects: a table of people, built and queried.

usage: records.py COUNT

Everything is made from a fixed seed; the output is the same in every run.
"""

import hashlib
import random
import sys

FIRST = "Ada Alan Anita Barbara Donald Edsger Frances Grace Jean John Ken Leslie Niklaus Robin".split()
LAST = "Allen Bartik Borg Dijkstra Hopper Knuth Lamport Lovelace McCarthy Milner Turing Wirth".split()
TOWNS = [f"{stem}{end}" for stem in "Ash Birch Elm Fern Hazel Oak Pine Thorn".split()
         for end in "bury dale field ford ham ton wick worth".split()]


def person(number, source):
    """One record, as a program would have it after reading it from a file."""
    return {
        "id": number,
        "name": f"{source.choice(FIRST)} {source.choice(LAST)}",
        "town": source.choice(TOWNS),
        "income": round(source.lognormvariate(10, 0.5), 2),
        "visits": [source.randrange(10**6) for _ in range(8)],
    }


def main():
    count = int(sys.argv[1])
    source = random.Random(1999)
    table = [person(number, source) for number in range(count)]

    incomes = {}
    for row in table:
        incomes.setdefault(row["town"], []).append(row["income"])
    digest = hashlib.sha256()
    for town in sorted(incomes):
        line = f"{town}: {len(incomes[town])} people, mean income {sum(incomes[town]) / len(incomes[town]):.2f}"
        digest.update(line.encode())

    rich = sorted(table, key=lambda row: row["income"], reverse=True)[:10]
    for row in rich:
        print(f"{row['income']:>12} {row['name']} of {row['town']}")
        digest.update(repr(row).encode())

    for row in table:
        row["visits"].append(sum(row["visits"]) % 1000)
    for number in source.sample(range(count), count // 100):
        digest.update(repr(table[number]).encode())
    print(f"{count} people, digest {digest.hexdigest()}")


if __name__ == "__main__":
    main()
