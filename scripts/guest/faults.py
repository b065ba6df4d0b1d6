"""What happens to a machine that swaps to zpager's device when something goes wrong, and what the
set-up command does when it cannot do what it should. Each case is a function of a guest."""

import json
import signal
import time

from machine import Failed
from programs import SORT

START = "zpager-swap start --size 256M --memory 8M --store /dev/vdb"
# As little as may be: the server is behind now and then.
AHEAD = "--memory-ahead 1M"
# A way to the server for each of two processors.
BESIDE = "--connections 2"
PAUSE_SECONDS = 15
# How long it stands still before it is killed, so that requests are unanswered.
KILL_SECONDS = 3
# How long a program of these cases may take on a machine that is busy with others.
LONG = 900
TRIM_SECONDS = 60
# What a program wants that is to be given some of the pool's memory, and how often it visits a page.
WANTED_MIB = 4
VISITS = 60000
# Within this the way back from a killed server ends; it takes a second.
STOP_SECONDS = 120
KILLED_BY = {128 + 7: "SIGBUS", 128 + 9: "SIGKILL", 128 + 11: "SIGSEGV"}
# Each fails where there is nothing of what it looks for.
LEFT = ("pidof zpager", "ls /sys/block/nbd*/pid 2>/dev/null", "grep /dev/nbd /proc/swaps",
        "ls /run/zpager | grep .", "grep -vx 15000 /proc/sys/vm/watermark_boost_factor",
        "grep -vx 3 /proc/sys/vm/page-cluster")


def expect(is_so, what, *said):
    """Fails unless it is so."""
    if not is_so:
        raise Failed(f"{what}: {' '.join(map(str, said))}")


def start(guest, options=""):
    """The device, swapped to; gives the server's process."""
    guest.must(f"{START} {options}", 120)
    expect("/dev/nbd" in guest.must("cat /proc/swaps"), "the kernel does not swap to it")
    return int(guest.must("pidof zpager"))


def stop(guest):
    """And the way back: nothing of it is left."""
    guest.must("zpager-swap stop", LONG)
    nothing_left(guest)


def nothing_left(guest):
    """No server, no connection, no swap area, no file, and the kernel's settings as they were."""
    said, status = guest.do(" || ".join(LEFT))
    expect(status != 0, "left behind", said)


def status(guest):
    """The server's figures."""
    return json.loads(guest.must("zpager device status --json"))


def swapped_out(guest):
    """Pages in the swap area."""
    return int(guest.must("awk '/nbd/ {print $4 / 4}' /proc/swaps"))


def hold(guest):
    """Starts a sort that has read all its lines and waits for /tmp/go with them in memory."""
    guest.must("rm -f /tmp/go /tmp/held /tmp/read; "
               "((cat /share/lines; echo >/tmp/read; while [ ! -e /tmp/go ]; do sleep 1; done) | "
               f"{SORT} | md5sum >/tmp/held.new; mv /tmp/held.new /tmp/held) "
               ">/dev/null 2>&1 &")
    guest.must("while [ ! -e /tmp/read ]; do sleep 1; done", LONG)


def let_go(guest, programs):
    """Has it sort and looks at what it gives."""
    guest.must("echo >/tmp/go; while [ ! -e /tmp/held ]; do sleep 1; done", LONG)
    digest = guest.must("cat /tmp/held").split()[0]
    expect(digest == programs["sort"].digest, "the sort's output differs", digest)


def run(guest, program):
    """Runs a program, whose output has to be right."""
    said = guest.must(f"cd /; {{ {program.line}; }} | md5sum", LONG)
    expect(said.split()[0] == program.digest, f"{program.name}: the output differs", said)


def bad_input(guest, _):
    """A set-up that fails says why in one line, with status 125, and leaves nothing behind."""
    lines = [("start --size 1000 --memory 8M --store none", "4096"),
             ("start --size 64M --memory 1M --store none", "8.0 MiB"),
             ("start --size 64M --memory 8M --store /nowhere", "/nowhere"),
             # The device is connected by then, and too small for mkswap.
             ("start --size 8K --memory 8M --store none", "mkswap"),
             ("start --size 64M --memory 8M --store none --device /dev/nbd99", "/dev/nbd99"),
             ("start --size 64M --memory 8M --store none --priority x", "--priority x"),
             ("start --size 64M --memory 8M --store none --connections 0", "--connections 0"),
             ("attach --frequently", "--frequently"), ("attache", "attach"), ("", "start"),
             ("detach", "nothing is attached"), ("stop", "nothing is attached")]
    for line, why in lines:
        said, code = guest.do(f"zpager-swap {line}")
        expect(code == 125 and said.count("\n") == 1 and why in said and
               said.startswith("zpager-swap: "), f"zpager-swap {line}: status {code}", said)
        nothing_left(guest)
    return f"{len(lines)} lines of wrong input: one line each, status 125, nothing left behind"


def trimmed(guest, programs):
    """What a program's end frees leaves the device at once; a used device is not stopped."""
    start(guest)
    said, code = guest.do("zpager device stop")
    expect(code == 125 and said.count("\n") == 1, "stopped in use", said)
    said, code = guest.do(START)
    expect(code == 125 and "a server is at" in said, "a second one", said)
    hold(guest)
    run(guest, programs["touch"])
    held = status(guest)["blocks"]
    let_go(guest, programs)
    expect(held > 1000, "too few pages were swapped out", held)
    after = wait_until_trimmed(guest, held / 2)
    stop(guest)
    return (f"stop refused in use; {held} blocks held under pressure, {after['blocks']} after the "
            f"programs' end, {after['counters']['freed_blocks']} freed by discards")


def wait_until_trimmed(guest, blocks):
    """The server's figures once it holds fewer blocks; the kernel discards them in its own time, and
    only where a whole cluster of its slots is free."""
    for _ in range(TRIM_SECONDS):
        figures = status(guest)
        if figures["blocks"] < blocks:
            return figures
        time.sleep(1)
    raise Failed(f"blocks are not freed: {figures}")


def swapoff_with_pages(guest, programs):
    """The way back with pages out there: they come in, and are what they were."""
    start(guest, AHEAD)
    hold(guest)
    run(guest, programs["touch"])
    pages = swapped_out(guest)
    expect(pages > 500, "too few pages were swapped out", pages)
    stop(guest)
    let_go(guest, programs)
    return f"{pages} pages came back in, output right"


def stopped(guest, programs):
    """A server that is stopped: whoever needs a page waits, and then goes on."""
    server = start(guest, AHEAD)
    program = programs["touch"]
    guest.must(f"rm -f /tmp/touched; ({program.line} | md5sum >/tmp/touched.new; "
               "mv /tmp/touched.new /tmp/touched) >/dev/null 2>&1 &")
    wait_for_swapping(guest)
    guest.must(f"@strike {server} {PAUSE_SECONDS} {signal.SIGCONT:d}", LONG)
    guest.must("while [ ! -e /tmp/touched ]; do sleep 1; done", LONG)
    digest = guest.must("cat /tmp/touched").split()[0]
    expect(digest == program.digest, "the output differs", digest)
    stop(guest)
    return f"stopped for {PAUSE_SECONDS} s amid swapping: the program waited, output right"


def beside(guest, programs):
    """Processors that each have a way to the server: programs at the same time, and the way back."""
    start(guest, BESIDE)
    hold(guest)
    run(guest, programs["touch"])
    figures, pages = status(guest), swapped_out(guest)
    expect(figures["connections"] == 2, "not a connection each", figures)
    expect(pages > 500, "too few pages were swapped out", pages)
    stop(guest)
    let_go(guest, programs)
    counters = figures["counters"]
    return (f"two connections, {counters['reads']} reads, {counters['spilled_reads']} blocks from the store; "
            f"{pages} pages came back in, output right")


def killed_beside(guest, programs):
    """The same of a server with several connections as of one with one."""
    return killed(guest, programs, BESIDE)


def killed(guest, programs, options=""):
    """A server that is killed, with requests unanswered: programs with pages out there end, the
    machine goes on, and the way back ends."""
    server = start(guest, options)
    program = programs["touch"]
    alone = program.line.split(" | ")[0]
    guest.must(f"@rm -f /tmp/ended; (swappable {alone} >/dev/null 2>&1; echo $? >/tmp/ended.new; "
               "mv /tmp/ended.new /tmp/ended) >/dev/null 2>&1 &")
    wait_for_swapping(guest)
    guest.must(f"@strike {server} {KILL_SECONDS} {signal.SIGKILL:d}", LONG)
    said = guest.must("@zpager-swap stop", STOP_SECONDS)
    expect(said.count("\n") == 1 and "are lost" in said, "not told in one line", said)
    guest.must("@while [ ! -e /tmp/ended ]; do sleep 1; done", LONG)
    code = int(guest.must("@cat /tmp/ended"))
    expect(code in KILLED_BY, "the program that lost its pages ended with", code)
    nothing_left(guest)
    start(guest, options)
    run(guest, program)
    stop(guest)
    return (f"killed amid swapping: the program ended by {KILLED_BY[code]}, "
            f"{said.strip().removeprefix('zpager-swap: ')}; then a new server")


def given_way(guest, _):
    """Programs that want a little more memory than there is beside the pool are given some of the pool's."""
    guest.must("zpager-swap start --size 256M --memory 16M --store /dev/vdb", 120)
    mib = int(guest.must("awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo")) + WANTED_MIB
    said = guest.must(f"stir {mib} {VISITS}", LONG)
    expect(int(said) == 0, "pages are not what they should be", said)
    figures = status(guest)
    given, kept = figures["given_bytes"], figures["kept_bytes"]
    expect(given > 1 << 20, "nothing is given", figures)
    expect(given + kept <= 16 << 20, "the pool has it still", figures)
    stop(guest)
    return f"{mib} MiB at random: {given >> 10} KiB of the pool's 16 MiB given to programs, all pages right"


def wait_for_swapping(guest, pages=1500):
    """Until so many pages are out."""
    for _ in range(LONG):
        if swapped_out(guest) > pages:
            return
        time.sleep(1)
    raise Failed("nothing is swapped out")


CASES = [bad_input, trimmed, given_way, swapoff_with_pages, stopped, killed]
# For a machine of two processors.
CASES_BESIDE = [beside, killed_beside]
