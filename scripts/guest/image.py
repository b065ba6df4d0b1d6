"""What the guest boots: a first file system in RAM, and a read-only root on a disk.

The programs lie on a disk so that they are no weight on the guest's memory: what a file system in
RAM holds cannot be swapped out.
"""

import pathlib
import re
import shutil
import subprocess

import kernel
from missing import Missing

HERE = pathlib.Path(__file__).resolve().parent
BUSYBOX = "/bin/busybox"
# As Debian has them; the shell is what runs `zpager-swap` there.
PROGRAMS = {"nbd-client": "sbin", "swapon": "sbin", "swapoff": "sbin", "mkswap": "sbin",
            "sort": "bin"}
# What the root's file system takes besides files.
ROOT_SPARE_MIB = 16


def find(name):
    """Where a command is."""
    path = shutil.which(name, path="/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise Missing(f"no {name}: scripts/packages scripts/guest/packages installs it")
    return path


def libraries(program):
    """The shared objects that a program loads."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def put(root, program, place):
    """A program at `place` below `root`, with its libraries."""
    target = root / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy(program, target)
    target.chmod(0o755)
    for library in libraries(program):
        copy = root / library.lstrip("/")
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)


def skeleton(root):
    """Directories and busybox."""
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "sbin", "dev", "proc", "sys", "run", "tmp", "root", "lib"):
        (root / name).mkdir(parents=True)
    if not pathlib.Path(BUSYBOX).exists():
        raise Missing("no busybox: scripts/packages scripts/guest/packages installs it")
    put(root, BUSYBOX, "bin/busybox")


def early(folder, modules):
    """The file system in RAM, as the kernel unpacks it."""
    root = folder / "early"
    skeleton(root)
    modules.copy_modules(root)
    put(root, HERE / "early.sh", "init")
    names = "\n".join(str(path.relative_to(root)) for path in [root, *sorted(root.rglob("*"))])
    archive = folder / "early.cpio"
    with open(archive, "wb") as file:
        subprocess.run([find("cpio"), "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode(),
                       stdout=file, check=True)
    return archive


def root_disk(folder, modules, zpager, programs):
    """The root file system's disk: `programs` are files by their places."""
    root = folder / "root"
    skeleton(root)
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout
    for name in applets.split():
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to("busybox")
    modules.copy_modules(root)
    put(root, find("dash"), "bin/sh")
    for name, place in PROGRAMS.items():
        (root / "bin" / name).unlink(missing_ok=True)
        put(root, find(name), f"{place}/{name}")
    put(root, HERE / "init.sh", "init")
    put(root, HERE / "swappable.sh", "bin/swappable")
    put(root, HERE / "measure.sh", "bin/measure")
    put(root, HERE.parent / "zpager-swap", "bin/zpager-swap")
    put(root, zpager, "bin/zpager")
    subprocess.run([find("strip"), root / "bin/zpager"], check=True)
    for place, file in programs.items():
        put(root, file, place)
    mib = sum(path.stat().st_size for path in root.rglob("*") if not path.is_symlink()) >> 20
    disk = folder / "root.ext4"
    disk.unlink(missing_ok=True)
    kernel.output_of(find("mke2fs"), "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(root),
                     str(disk), f"{mib * 9 // 8 + ROOT_SPARE_MIB}M")
    return disk
