"""A large table of records as dictionaries, built and queried.

Arguments: number of records, number of rounds of queries, seed. With 0 rounds
the table is held until the standard input ends, for its pages to be read.
"""

import hashlib
import random
import sys

count, rounds, seed = (int(argument) for argument in sys.argv[1:])
source = random.Random(seed)
CITIES = ["city-%03d" % number for number in range(400)]
STREETS = ["%s street" % "".join(source.choices("aeioulnrst", k=9)) for _ in range(5000)]


def make_record(number):
    """One customer with an address, balances and orders."""
    return {
        "number": number,
        "name": "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=12)),
        "city": source.choice(CITIES),
        "street": source.choice(STREETS),
        "house": source.randrange(1, 200),
        "balance": source.random() * 10000,
        "orders": [source.randrange(1000000) for _ in range(source.randrange(8))],
    }


table = [make_record(number) for number in range(count)]

if rounds == 0:
    print("ready", flush=True)
    sys.stdin.read()
    sys.exit()

by_number = {record["number"]: record for record in table}
digest = hashlib.sha256()
for round_number in range(rounds):
    sums = {}
    for record in table:
        sums[record["city"]] = sums.get(record["city"], 0.0) + record["balance"]
    digest.update(repr(sorted(sums.items())).encode())
    # Most look-ups are of few customers, as in life.
    for _ in range(count):
        record = by_number[int(count * source.random() ** 4)]
        record["balance"] += sum(record["orders"]) % 7
        record["house"] = (record["house"] + record["number"]) % 200
    richest = sorted(table, key=lambda record: record["balance"])[-100:]
    digest.update(repr([(record["name"], record["orders"]) for record in richest]).encode())
for record in table:
    digest.update(repr(record).encode())
print(digest.hexdigest())
