"""Drives the redis-server that listens on the socket `s`: fills it, saves in the background
while it writes on, and reads every value back. Prints digests; shuts the server down."""

import hashlib
import os
import socket
import time

KEYS = 60000


def connect():
    for _ in range(3000):
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect("s")
            return connection
        except OSError:
            time.sleep(0.01)
    raise SystemExit("no server")


connection = connect()
stream = connection.makefile("rb")


def command(*words):
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def reply():
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [reply() for _ in range(int(rest))]
    if kind == b"-":
        raise SystemExit(rest.decode())
    return rest


def call(*words):
    connection.sendall(command(*words))
    return reply()


def many(commands):
    """Sends in batches that the socket's buffers hold, so that neither side waits for the other."""
    batch = []
    for words in commands:
        batch.append(command(*words))
        if len(batch) == 100:
            connection.sendall(b"".join(batch))
            yield from (reply() for _ in batch)
            batch = []
    connection.sendall(b"".join(batch))
    yield from (reply() for _ in batch)


def value(i, salt):
    return f"{salt} of {i}: " + hashlib.md5(f"{salt}{i}".encode()).hexdigest() * 5


for _ in many(("HSET", f"key:{i}", "name", value(i, "name"), "text", value(i, "text")) for i in range(KEYS)):
    pass
print(call("DEBUG", "DIGEST"))
call("BGSAVE")
for _ in many(("HSET", f"key:{i}", "name", value(i, "new")) for i in range(0, KEYS, 3)):
    pass
while b"rdb_bgsave_in_progress:1" in call("INFO", "persistence"):
    time.sleep(0.01)
print(b"rdb_last_bgsave_status:ok" in call("INFO", "persistence"), os.path.getsize("dump.rdb") > 1000000)
wrong = 0
for i, fields in enumerate(many(("HMGET", f"key:{i}", "name", "text") for i in range(KEYS))):
    salt = "name" if i % 3 else "new"
    wrong += fields != [value(i, salt).encode(), value(i, "text").encode()]
print("wrong", wrong)
print(call("DEBUG", "DIGEST"), call("DBSIZE"))
connection.sendall(command("SHUTDOWN", "NOSAVE"))
