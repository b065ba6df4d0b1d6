"""The device as one of the kernel's ublk driver, where the kernel has that."""

import faults

DEVICE = "/dev/ublkb0"


def start(guest, memory="8M"):
    """Swaps to it; gives the exit status and what was said."""
    line = faults.START.replace("start", "start --ublk").replace("8M", memory)
    said, code = guest.do(line, 120)
    return code, said


def warned(guest):
    """A server that warns of something when it starts is swapped to all the same."""
    code, said = start(guest, f"32M {faults.AHEAD}")
    faults.expect(code == 0 and said.startswith("zpager-swap: warning: --memory: more than half") and
                  said.count("\n") == 1, "not started with a warning", said)
    faults.expect(DEVICE in guest.must("cat /proc/swaps"), "the kernel does not swap to it")
    guest.must("grep '^zpager: warning: --memory' /run/zpager/device.sock.log")
    guest.must("zpager-swap stop", faults.LONG)
    faults.nothing_left(guest)


def left_out(guest, said):
    """Where there is no such driver that is told, in one line."""
    faults.expect(said.count("\n") == 1 and "ublk" in said, "not told in one line", said)
    faults.nothing_left(guest)
    return f"this kernel has none: {said.strip().removeprefix('zpager-swap: ')}"


def ublk(guest, programs):
    """Programs under pressure; a used device is not stopped; the way back, with pages out there."""
    code, said = start(guest)
    if guest.do("[ -e /dev/ublk-control ]")[1] != 0:
        faults.expect(code == 125, "started without the driver", said)
        return left_out(guest, said)
    faults.expect(code == 0, "not started", said)
    faults.expect(DEVICE in guest.must("cat /proc/swaps"), "the kernel does not swap to it")
    said, code = guest.do("zpager device stop")
    faults.expect(code == 125 and "in use" in said, "stopped in use", said)
    faults.hold(guest)
    faults.run(guest, programs["touch"])
    figures = faults.status(guest)
    faults.expect(figures["blocks"] > 500, "too few pages were swapped out", figures)
    guest.must("zpager-swap stop", faults.LONG)
    faults.let_go(guest, programs)
    faults.nothing_left(guest)
    said, code = guest.do(f"ls {DEVICE} /dev/ublkc* || grep ublk /proc/swaps")
    faults.expect(code != 0, "left behind", said)
    warned(guest)
    counters = figures["counters"]
    return (f"swapped to {DEVICE}, output right; {counters['writes']} writes, {counters['reads']} reads, "
            f"{counters['freed_blocks']} blocks freed by discards; {figures['blocks']} blocks came back "
            "with the way back")
