"""The guest: a QEMU machine with Soft-RoCE, whose cable, control channel and clock are in our hands.

TCG, never KVM: ``/dev/kvm`` may exist where it cannot run a stock kernel, and a run shall be the same everywhere.
"""

import contextlib
import json
import select
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

__all__ = ["MAC", "Guest", "GuestError"]

MAC = 0x02_56_42_00_00_F0
"""Of the guest, on the cable."""

TOOL_PORT = 18515
"""Where tools in the guest listen."""

MEMORY = 320
"""MiB; 256 are not enough."""


class GuestError(Exception):
    """QEMU or the agent failed."""


def free_port():
    """A TCP port of this host that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class _Lines:
    """JSON objects, one a line, over a socket."""

    def __init__(self, connection):
        self.socket = connection
        self.pending = b""

    def send(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self):
        """The next object, or None if none has come yet."""
        if b"\n" not in self.pending:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                return None
            except ConnectionError:
                data = b""
            if not data:
                raise GuestError("QEMU has gone")
            self.pending += data
        if b"\n" not in self.pending:
            return None
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)


class Guest:
    """A running guest; its Ethernet frames pass through ``cable``, a socket.

    Parameters
    ----------
    image : Image
    folder : Path
        Where its logs go.
    address : str
        IPv4 address on the cable; that of a snapshot is the one it booted with.
    snapshot : Path, optional
        Begin from what :meth:`save` wrote, instead of booting.
    """

    pump = None
    """Called again and again while the guest is waited for, if it is set; else the wait is idle."""

    def __init__(self, image, folder, address, snapshot=None):
        self.folder = folder
        self.address = address
        folder.mkdir(parents=True, exist_ok=True)
        # Paths of sockets are short, those of checkouts may not be.
        self._sockets = Path(tempfile.mkdtemp(prefix="verbena-"))
        self.tool_port = free_port()
        self._files = [(folder / "qemu.log").open("ab")]
        self._process = None
        self.jobs = set()
        try:
            self._start(image, snapshot)
        except BaseException:
            self.close()
            raise

    def _start(self, image, snapshot):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._sockets / "cable"))
        listener.listen()
        self._process = subprocess.Popen(
            self._command(image, snapshot), stdin=subprocess.DEVNULL, stdout=self._files[0], stderr=subprocess.STDOUT
        )
        listener.settimeout(20)
        try:
            self.cable = listener.accept()[0]
        except TimeoutError:
            raise GuestError(f"QEMU does not start: {self.folder / 'qemu.log'}") from None
        finally:
            listener.close()
        self._agent = _Lines(self._connect("agent"))
        self._monitor = _Lines(self._connect("monitor"))
        self._await(self._monitor, 20)
        self.monitor("qmp_capabilities")
        if snapshot is not None:
            self._until(lambda: self.monitor("query-status")["status"] != "inmigrate", 30, "the snapshot does not load")
            self.cont()
        self._agent.socket.setblocking(False)
        self.run("true", patience=600)

    def _command(self, image, snapshot):
        command = f"""qemu-system-x86_64 -accel tcg -machine pc -cpu max -smp 1 -m {MEMORY} -nodefaults -no-user-config
            -display none -no-reboot -serial file:{self._log("console")}
            -kernel {image.kernel} -initrd {image.initramfs} -device virtio-serial-pci
            -chardev socket,id=agent,path={self._sockets}/agent,server=on,wait=off
            -device virtserialport,chardev=agent,name=agent
            -chardev socket,id=shell,path={self._sockets}/shell,server=on,wait=off
            -device virtconsole,chardev=shell
            -qmp unix:{self._sockets}/monitor,server=on,wait=off
            -netdev stream,id=cable,server=off,addr.type=unix,addr.path={self._sockets}/cable
            -device virtio-net-pci,netdev=cable,mac={mac_text(MAC)},romfile=
            -netdev user,id=host,ipv6=off,hostfwd=tcp:127.0.0.1:{self.tool_port}-:{TOOL_PORT}
            -device virtio-net-pci,netdev=host,romfile=""".split()
        # On a busy host the kernel would not believe that its timer works.
        command += ["-append", f"console=ttyS0 quiet panic=-1 no_timer_check address={self.address}/24"]
        return command + (["-incoming", f"exec:cat {snapshot}"] if snapshot is not None else [])

    def _log(self, name):
        return self.folder / f"{name}.log"

    def _connect(self, name):
        connection = socket.socket(socket.AF_UNIX)

        def connected():
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                connection.connect(str(self._sockets / name))
                return True
            return False

        self._until(connected, 20, f"QEMU offers no {name}")
        connection.settimeout(20)
        return connection

    def _until(self, true, seconds, complaint):
        end = time.monotonic() + seconds
        while not true():
            if self._process.poll() is not None:
                raise GuestError(f"QEMU has ended with status {self._process.returncode}: {self._log('qemu')}")
            if time.monotonic() > end:
                raise GuestError(complaint)
            time.sleep(0.005)

    def _await(self, lines, seconds):
        """The next object from ``lines``; lets the pump work meanwhile."""
        end = time.monotonic() + seconds
        while True:
            message = lines.receive()
            if message is not None:
                return message
            if time.monotonic() > end:
                raise GuestError(f"the guest is silent for {seconds} s")
            if self.pump is not None:
                self.pump()
            else:
                select.select([lines.socket], [], [], 0.1)

    @property
    def shell(self):
        """Path of the socket of a shell in the guest."""
        return self._sockets / "shell"

    def call(self, method, arguments, patience=60):
        """Asks the agent; :class:`GuestError` with its words if it fails, or is silent for ``patience`` seconds."""
        self._agent.send({"method": method, "arguments": arguments})
        answer = self._await(self._agent, patience)
        if "error" in answer:
            with self._log("agent").open("a") as log:
                log.write(f"{method} {arguments}\n{answer['trace']}\n")
            raise GuestError(answer["error"])
        return answer["result"]

    def run(self, command, patience=60):
        """Output of a shell command, which must succeed."""
        status, output = self.call("run", {"command": command}, patience)
        if status:
            raise GuestError(f"{command}: status {status}: {output}")
        return output

    def monitor(self, command, **arguments):
        """A QMP command and its answer."""
        self._monitor.send({"execute": command, "arguments": arguments})
        while True:
            answer = self._monitor.receive()
            if answer is None:
                select.select([self._monitor.socket], [], [], 1)
            elif "error" in answer:
                raise GuestError(f"{command}: {answer['error']['desc']}")
            elif "return" in answer:
                return answer["return"]

    def stop(self):
        """Stops the guest's clock, and the guest."""
        self.monitor("stop")

    def cont(self):
        self.monitor("cont")

    def save(self, path):
        """Writes the state of the guest to a file; it stays stopped after that."""
        self.stop()
        self.monitor("migrate", uri=f"exec:cat > {path}")

        def written():
            status = self.monitor("query-migrate").get("status")
            if status == "failed":
                raise GuestError("the snapshot failed")
            return status == "completed"

        self._until(written, 60, "the snapshot does not end")

    def close(self):
        """Ends QEMU."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for file in self._files:
            file.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def mac_text(mac):
    return ":".join(f"{mac:012x}"[i : i + 2] for i in range(0, 12, 2))
