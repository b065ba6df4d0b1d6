"""A guest under QEMU without KVM, and the serial line over which it is told what to do."""

import os
import pathlib
import select
import subprocess
import threading
import time

import image

# A disk of 7,200 turns: so many operations a second wherever they are, and bytes under its head.
OPERATIONS = 150
DISK_BYTES = 100_000_000
SLOW = f",throttling.iops-total={OPERATIONS},throttling.bps-total={DISK_BYTES}"
# What goes wrong is not to take long.
QUICK = ""
DISK_MIB = 1024
BOOT_SECONDS = 600
# All its processors in one thread: in threads of their own one may read an instruction of the kernel that
# another is just rewriting.
ACCELERATOR = "tcg,thread=single"
# How often it is begun where its kernel ends before it comes to the first program.
BOOTS = 3
# What the guest answers to a line of which something was lost on the way, and how often it is sent.
AGAIN = "again"
TRIALS = 5
KERNEL = "console=ttyS0 loglevel=6 panic=-1 mitigations=off random.trust_cpu=on"


class Failed(Exception):
    """The guest did not do what it should, with what it said."""


class NoAnswer(Failed):
    """It did not in the time it had."""


class Ended(Failed):
    """It was gone."""


class Starved(Failed):
    """It did not in the time it had, in most of which the host had none for it."""


class Clock:
    """How long a guest could not go on because the host was busy, or had stopped it: the time in which
    a thread that does nothing but sleep was late beyond its own waiting, that in which the thread of
    the guest's processor, which waits more than QEMU's others, was ready and had no processor, and what
    other machines took of the processors that it may have, in the mean."""

    TICK_SECONDS = 0.1

    def __init__(self, pid):
        self.pid = pid
        self.stopped_seconds = 0
        self.is_over = threading.Event()
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self):
        """Has the time in which this process was stopped be known."""
        own = f"/proc/self/task/{threading.get_native_id()}/schedstat"
        began, waited = time.monotonic(), waited_seconds(own)
        while not self.is_over.wait(self.TICK_SECONDS):
            now, now_waited = time.monotonic(), waited_seconds(own)
            late = now - began - self.TICK_SECONDS - (now_waited - waited)
            # Less than that is the interpreter's.
            self.stopped_seconds += late if late > 1 else 0
            began, waited = now, now_waited

    def waited_seconds(self):
        """All of it so far."""
        threads = pathlib.Path(f"/proc/{self.pid}/task").iterdir()
        waited = max(waited_seconds(thread / "schedstat") for thread in threads)
        return waited + self.stopped_seconds + stolen_seconds(os.sched_getaffinity(self.pid))

    def end(self):
        """No more."""
        self.is_over.set()


def stolen_seconds(processors):
    """What other machines took of these processors since the host was booted, in the mean."""
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    fields = [line.split() for line in lines if line[3:4].isdigit() and line.startswith("cpu")]
    ticks = sum(int(field[8]) for field in fields if int(field[0][3:]) in processors)
    return ticks / os.sysconf("SC_CLK_TCK") / len(processors)


def waited_seconds(path):
    """How long a thread was ready and had no processor."""
    return int(pathlib.Path(path).read_text().split()[1]) / 1e9


class Machine:
    """A guest that runs; used as a context it is gone afterwards."""

    def __init__(self, built, mib, throttle=QUICK, processors=1):
        self.folder = pathlib.Path(built.folder)
        self.kernel = built.kernel
        self.log = self.folder / "console.log"
        disk = self.folder / "swap.raw"
        disk.unlink(missing_ok=True)
        with open(disk, "wb") as file:
            file.truncate(DISK_MIB << 20)
        command = [
            image.find("qemu-system-x86_64"), "-accel", ACCELERATOR, "-machine", "pc", "-m", f"{mib}M",
            "-smp", str(processors), "-nodefaults", "-display", "none", "-no-reboot",
            "-kernel", built.kernel.image, "-initrd", built.early, "-append", KERNEL,
            "-drive", f"file={built.root},format=raw,if=virtio,readonly=on",
            "-drive", f"file={disk},format=raw,if=virtio,cache=writeback,discard=unmap{throttle}",
            "-serial", f"file:{self.log}", "-chardev", "stdio,id=line,signal=off",
            "-serial", "chardev:line"]
        self.boot([str(part) for part in command])

    def boot(self, command):
        """Has QEMU begin it. A kernel that falls over before its first program says nothing of what is tried
        here, and is begun again."""
        for left in reversed(range(BOOTS)):
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.clock, self.buffer = Clock(self.process.pid), b""
            try:
                self.answer(BOOT_SECONDS)
                return
            except Failed as why:
                self.end()
                if not isinstance(why, Ended) or left == 0:
                    raise
                print(f"guest: did not boot, and is begun again: {why}", flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Pulls the plug."""
        self.clock.end()
        self.process.kill()
        self.process.wait()

    def answer(self, seconds):
        """What the guest says until it is done, and the exit status."""
        end, waited = time.monotonic() + seconds, self.clock.waited_seconds()
        while b"\n" not in self.buffer.partition(b"\1")[2]:
            left = max(0, end - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            more = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                why = "it ended" if ready else f"no answer in {seconds} s"
                said = self.buffer.decode(errors="replace")
                is_starved = not ready and self.clock.waited_seconds() - waited > seconds / 2
                kind = Starved if is_starved else Ended if ready else NoAnswer
                raise kind(f"the guest: {why}\n{said}\n{self.console_tail()}")
            self.buffer += more
        said, _, rest = self.buffer.partition(b"\1")
        status, _, self.buffer = rest.partition(b"\n")
        return said.decode(errors="replace").replace("\r", ""), status.decode()

    def do(self, line, seconds=60):
        """Has the guest do a line of shell; gives what it said and the exit status."""
        for _ in range(TRIALS):
            self.process.stdin.write(f"{len(line.encode())} {line}\n".encode())
            self.process.stdin.flush()
            said, status = self.answer(seconds)
            if status != AGAIN:
                return said, int(status)
        raise Failed(f"{line}: did not arrive whole in {TRIALS} trials")

    def must(self, line, seconds=60):
        """What the guest said; it has to succeed."""
        said, status = self.do(line, seconds)
        if status != 0:
            raise Failed(f"{line}: status {status}: {said}\n{self.console_tail()}")
        return said

    def waited_seconds(self):
        """How long, since it began, it could not go on because of the host."""
        return self.clock.waited_seconds()

    def console(self):
        """What the kernel said."""
        return self.log.read_text(errors="replace").replace("\r", "")

    def console_tail(self, lines=15):
        """The last of it."""
        return "\n".join(self.console().splitlines()[-lines:])
