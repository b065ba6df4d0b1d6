"""Debian's kernels: that of the release and, where it lacks the ublk driver, the newer one of its backports.
Their packages are fetched and unpacked, and never installed.

What it would spend seconds on in an emulated processor is done beforehand: the kernel is decompressed,
where it is compressed by xz, and so are the modules, whose signatures, which are those of the package,
are left out. A module that is not in the package is part of the kernel, or there is no such thing.
"""

import lzma
import pathlib
import re
import shutil
import subprocess

import rivals
from missing import Missing

PACKAGE = "linux-image-amd64"
XZ_MAGIC = b"\xfd7zXZ\0"
# What a signed module ends with; before it stands how long the signature is, and eight bytes more.
SIGNATURE_END = b"~Module signature appended~\n"
SIGNATURE_HEAD_BYTES = 12
MODULES = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "nbd", *rivals.MODULES)

class Kernel:
    """An unpacked kernel package."""

    def __init__(self, folder):
        compressed = next((folder / "boot").glob("vmlinuz-*"))
        self.version = compressed.name.removeprefix("vmlinuz-")
        self.image = folder / "vmlinux"
        if not self.image.exists():
            self.image.write_bytes(decompress(compressed.read_bytes()))
        self.modules = folder / "lib/modules" / self.version
        self.paths = {path.name.partition(".")[0]: path for path in self.modules.rglob("*.ko*")}

    def has(self, module):
        """Whether it can be loaded."""
        return module in self.paths

    def closure(self, names=MODULES):
        """The modules and what they depend on, each behind what it needs."""
        ordered = {}
        for name in filter(self.has, names):
            needed = re.search(rb"\0depends=([^\0]*)\0", read(self.paths[name]))
            needed = [one for one in needed[1].decode().split(",") if one]
            ordered.update(self.closure(needed))
            ordered[name] = needed
        return ordered

    def copy_modules(self, root):
        """Puts the modules below `root`, where modprobe finds them."""
        folder = root / "lib/modules" / self.version
        ordered = self.closure()
        lines = []
        for name, needed in ordered.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.ko").write_bytes(unsigned(read(self.paths[name])))
            # modprobe wants all that a module needs, the nearest first.
            below = reversed([one for one in self.closure(needed)])
            lines.append(f"{name}.ko:" + "".join(f" {one}.ko" for one in below))
        (folder / "modules.dep").write_text("\n".join(lines) + "\n")


def decompress(image):
    """The kernel proper out of what boot loaders take."""
    start = image.find(XZ_MAGIC)
    if start < 0:
        return image
    return lzma.LZMADecompressor().decompress(image[start:])


def read(module):
    """A module's bytes."""
    data = module.read_bytes()
    return lzma.decompress(data) if module.suffix == ".xz" else data


def unsigned(module):
    """A module without its signature."""
    if not module.endswith(SIGNATURE_END):
        return module
    end = len(module) - len(SIGNATURE_END)
    signature_bytes = int.from_bytes(module[end - 4:end], "big")
    return module[:end - SIGNATURE_HEAD_BYTES - signature_bytes]


def output_of(*command, folder=None):
    """What a command prints; where it fails, that something cannot be had."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Missing(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Missing(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def package_name(options):
    """The package with the current kernel in it, on which the named one depends."""
    for line in output_of("apt-cache", *options, "depends", PACKAGE).splitlines():
        if line.strip().startswith("Depends: linux-image-"):
            return line.split()[-1]
    raise Missing(f"no kernel package behind {PACKAGE}: run apt-get update")


def fetch(folder, options=()):
    """The release's kernel, from the package in `folder` if it is there already."""
    name = package_name(options)
    unpacked = pathlib.Path(folder) / name
    if not unpacked.is_dir():
        arriving = unpacked.with_suffix(".new")
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)
        output_of("apt-get", *options, "download", name, folder=arriving)
        package = next(arriving.glob("*.deb"))
        output_of("dpkg-deb", "-x", str(package), str(arriving))
        package.unlink()
        arriving.rename(unpacked)
    return Kernel(unpacked)


def fetch_newer(folder):
    """The kernel of the release's backports, in the same way; what is known of them is kept in `folder`, and
    nothing of this machine is changed."""
    folder = pathlib.Path(folder)
    for own in ("lists/partial", "cache/archives/partial"):
        (folder / own).mkdir(parents=True, exist_ok=True)
    sources = folder / "backports.list"
    sources.write_text(f"deb {archive()} {release()}-backports main\n")
    settings = {"Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "/dev/null",
                "Dir::State::Lists": folder / "lists", "Dir::Cache": folder / "cache",
                "APT::Sandbox::User": "root"}
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    output_of("apt-get", *options, "update")
    return fetch(folder, options)


def release():
    """The code name of this machine's release."""
    said = pathlib.Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)", said, re.MULTILINE)
    if found is None:
        raise Missing("/etc/os-release names no release, whose backports could be asked for a kernel")
    return found[1]


def archive():
    """Where apt has the release from."""
    listed = output_of("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
                       "Created-By: Packages")
    for uri, *which in map(str.split, listed.splitlines()):
        if which == [release(), "main"]:
            return uri
    raise Missing(f"apt does not know {release()}: run apt-get update")
