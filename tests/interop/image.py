"""The guest's image: a Debian kernel and an initramfs of Debian packages, without root, chroot or debootstrap.

apt resolves and downloads the packages into a folder of its own, beside the system's; the archives go straight into
the initramfs, less what no guest needs. The result is cached below ``build/interop`` by this script, the guest's own
files and the versions of the packages.
"""

import hashlib
import io
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import urllib.parse
from pathlib import Path

__all__ = ["HOST_TOOLS", "Image", "ImageError", "build", "check_host"]

PACKAGES = (
    *("bash", "busybox", "iproute2", "iputils-ping", "python3", "python3-pyverbs"),
    *("libibverbs1", "ibverbs-providers", "ibverbs-utils", "librdmacm1", "rdmacm-utils", "perftest"),
)
KERNEL = "linux-image-amd64"

UNUSED = re.compile(
    r"(coreutils|debconf|debianutils|dpkg|gcc-.*-base|init-system-helpers|kmod|libdb5.*|libgdbm.*|libpam.*|libperl.*"
    r"|libsemanage.*|login|lsb-base|mawk|media-types|passwd|perl.*|rdma-core|sysvinit-utils|tar|tzdata|udev|usrmerge)"
)
"""Packages that others depend on, for what does not happen here: busybox does it, or nobody."""

PRUNED = re.compile(
    r"usr/(share/(?!python3)|include/|games/|lib/(systemd|udev|init)/|lib/python3[.\d]*/(test|idlelib|lib2to3|distutils"
    r"|ensurepip|pydoc_data|tkinter|turtledemo|unittest|config-.*)/|lib/python3/dist-packages/pyverbs/tests)"
    r"|var/|boot/(System.map|config)|.*\.(a|pyc|pxd)$|usr/lib/x86_64-linux-gnu/(gconv|perl)/"
)

MODULES = (
    *("virtio_pci", "virtio_net", "virtio_console", "8021q"),
    *("crc32_generic", "ib_uverbs", "rdma_ucm", "ib_umad", "rdma_rxe"),
)
"""rdma_rxe asks for its checksum by a name that no dependency tells."""

HOST_TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "tshark": "tshark",
    "zstd": "zstd",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
"""Programs of the host, and the Debian package of each."""

GUEST = Path(__file__).parent / "guest"


class ImageError(Exception):
    """The guest cannot be built here; the text says what is missing."""


class Image:
    """A kernel and an initramfs."""

    def __init__(self, folder):
        self.folder = folder
        self.kernel = folder / "vmlinuz"
        self.initramfs = folder / "initramfs.zst"
        self.packages = folder / "packages.txt"


def check_host():
    """:class:`ImageError` that names the missing programs of the host and how to install them."""
    missing = {program: package for program, package in HOST_TOOLS.items() if not shutil.which(program)}
    if missing:
        install = "sudo apt-get install -y --no-install-recommends"
        raise ImageError(f"{', '.join(missing)} missing: {install} {' '.join(missing.values())}")


def build(root, say=print):
    """The :class:`Image` below the folder ``root``, from the cache if it is there."""
    check_host()
    root = root.resolve()
    script = _digest(path.name.encode() + path.read_bytes() for path in [Path(__file__), *sorted(GUEST.iterdir())])
    apt = _Apt(root / "apt")
    try:
        archives = apt.resolve(PACKAGES, KERNEL)
    except ImageError:
        # Out of reach of any mirror, one that was made before is as good.
        made = sorted(root.glob(f"guest-{script}-*"), key=lambda folder: folder.stat().st_mtime)
        if not made:
            raise
        return Image(made[-1])
    image = Image(root / f"guest-{script}-{_digest(line.encode() for line in sorted(archives))}")
    if not image.initramfs.exists():
        say(f"download {len(archives)} packages for the guest")
        debs = apt.download(archives)
        say("make the guest's initramfs")
        for old in root.glob("guest-*"):
            shutil.rmtree(old)
        part = Image(image.folder.with_suffix(".part"))
        part.folder.mkdir(parents=True)
        part.packages.write_text("\n".join(sorted(archives)) + "\n")
        _fill(part, debs)
        part.folder.rename(image.folder)
    return image


def _digest(parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]


def _fill(image, debs):
    """Makes an image of packages."""
    tree = _Tree()
    for deb in debs:
        tree.unpack(deb)
    image.kernel.write_bytes(tree.take_kernel())
    for path in sorted(GUEST.iterdir()):
        tree.add(f"guest/{path.name}", path.read_bytes(), 0o755)
    tree.add("init", (GUEST / "init").read_bytes(), 0o755)
    subprocess.run(["zstd", "-q", "-10", "-T0", "-o", image.initramfs], input=tree.cpio(), check=True)


class _Apt:
    """apt on the system's lists, or on lists of its own where the system has none, with a cache of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.archives = folder / "archives"
        for path in (self.archives / "partial", folder / "none" / "partial", folder / "lists" / "partial"):
            path.mkdir(parents=True, exist_ok=True)
        self.options = ["-qq", "-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1"]
        self.options += ["-o", "APT::Sandbox::User=", "-o", f"Dir::Cache::pkgcache={folder}/pkgcache.bin"]
        self.options += ["-o", f"Dir::Cache::srcpkgcache={folder}/srcpkgcache.bin"]
        self.options += ["-o", "APT::Install-Recommends=false"]

    def _run(self, *command, folder=None):
        # By default in an empty folder, with an empty cache: it would leave out what is there.
        empty = self.folder / "none"
        whole = [command[0], *self.options, "-o", f"Dir::Cache::archives={empty}", *command[1:]]
        done = subprocess.run(whole, cwd=folder or empty, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImageError(f"{' '.join(command[:2])}: {' '.join(done.stderr.split())[-200:]}")
        return done.stdout

    def resolve(self, packages, kernel):
        """Lines ``name_version_arch.deb uri`` of all packages, and of the kernel without what it depends on."""
        try:
            return self._resolve(packages, kernel)
        except ImageError:
            self.update()
        try:
            return self._resolve(packages, kernel)
        except ImageError as error:
            raise ImageError(f"the packages of this system's apt sources do not make a guest: {error}") from None

    def update(self):
        """Takes lists of its own from now on, new ones."""
        self.options += ["-o", f"Dir::State::lists={self.folder}/lists"]
        self._run("apt-get", "update")

    def _resolve(self, packages, kernel):
        version = re.search(r"Depends: (linux-image-\S+)", self._run("apt-cache", "depends", kernel))
        if version is None:
            raise ImageError(f"{kernel} names no kernel")
        lines = self._run("apt-get", "--print-uris", "install", *packages)
        lines += self._run("apt-get", "--print-uris", "download", version[1])
        found = re.findall(r"^'(\S+)' (\S+) ", lines, re.MULTILINE)
        return [f"{name} {uri}" for uri, name in found if not UNUSED.fullmatch(name.split("_")[0])]

    def download(self, archives):
        """Paths of the packages."""
        names = [urllib.parse.unquote(line.split()[0]).split("_") for line in archives]
        wanted = [f"{name}={version}" for name, version, _ in names]
        try:
            self._run("apt-get", "download", *wanted, folder=self.archives)
        except ImageError:
            # The lists may be older than what the mirror still has.
            raise ImageError("cannot download the guest's packages: sudo apt-get update, and try again") from None
        return [self.archives / line.split()[0] for line in archives]


class _Tree:
    """The files of the initramfs."""

    def __init__(self):
        self.entries = {}  # path: (mode, content)
        for name in ("bin", "sbin", "lib", "lib64"):
            self.entries[name] = (stat.S_IFLNK | 0o777, f"usr/{name}".encode())
        for name in ("proc", "sys", "dev", "tmp", "run", "root", "usr", "etc", "guest"):
            self.entries[name] = (stat.S_IFDIR | 0o755, b"")

    def add(self, path, content, mode=0o644):
        self.entries[path] = (stat.S_IFREG | mode, content)

    def unpack(self, deb):
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                path = member.name.removeprefix("./").rstrip("/")
                # Everything lives in /usr, also where a package has not moved yet.
                if path.split("/")[0] in ("bin", "sbin", "lib", "lib64"):
                    path = f"usr/{path}"
                if not path or path in self.entries or PRUNED.match(path + "/" * member.isdir()):
                    continue
                if member.isdir():
                    self.entries[path] = (stat.S_IFDIR | 0o755, b"")
                elif member.issym():
                    self.entries[path] = (stat.S_IFLNK | 0o777, member.linkname.encode())
                elif member.islnk():
                    origin = member.linkname.removeprefix("./")
                    self.entries[path] = self.entries[origin if origin in self.entries else f"usr/{origin}"]
                elif member.isfile():
                    self.add(path, archive.extractfile(member).read(), member.mode & 0o777)

    def take_kernel(self):
        """Takes the kernel out, keeps of its modules those that are needed, and lists them in the order of loading."""
        path = next(path for path in self.entries if re.match(r"boot/vmlinuz-", path))
        kernel = self.entries.pop(path)[1]
        modules = {}
        for path in [path for path in self.entries if re.search(r"\.ko(\.xz)?$", path)]:
            content = self.entries.pop(path)[1]
            modules[Path(path).name.split(".")[0].replace("-", "_")] = path, content
        order = []
        for name in MODULES:
            self._load(name, modules, order)
        self.add("guest/modules", "\n".join(order).encode() + b"\n")
        return kernel

    def _load(self, name, modules, order):
        """Appends a module to ``order``, after those that it depends on; what is not there is built into the kernel."""
        if name not in modules or f"/guest/{name}.ko" in order:
            return
        path, content = modules[name]
        if path.endswith(".xz"):
            content = lzma.decompress(content)
        depends = re.search(rb"\0depends=([^\0]*)\0", content)
        soft = re.findall(rb"\0softdep=pre: ([^\0]*)\0", content)
        for other in [*(depends[1].decode().split(",") if depends else []), *b" ".join(soft).decode().split()]:
            self._load(other.replace("-", "_"), modules, order)
        self.add(f"guest/{name}.ko", content)
        order.append(f"/guest/{name}.ko")

    def cpio(self):
        """The archive, in the format that the kernel reads ("newc")."""
        out = io.BytesIO()
        parents = {str(parent) for path in self.entries for parent in Path(path).parents} - {"."}
        for parent in parents:
            self.entries.setdefault(parent, (stat.S_IFDIR | 0o755, b""))
        for number, (path, (mode, content)) in enumerate([*sorted(self.entries.items()), ("TRAILER!!!", (0, b""))]):
            name = os.fsencode(path) + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
            out.write(b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name)
            out.write(bytes(-out.tell() % 4))
            out.write(content)
            out.write(bytes(-out.tell() % 4))
        return out.getvalue()
