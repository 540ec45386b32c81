"""An end of SimBricks' Ethernet interface, written from the interface's description: the oracle of the links.

Little-endian throughout. The listener's introduction: version, flags, then offset, slot bytes and slots of the ring
towards the connector, the same of the ring back, protocol, offset of the upper part, upper part. The connector's:
version, flags, protocol, offset of the upper part, upper part. A slot: u16 length at 0, u64 time at 48, owner and type
at 63, the frame from 64 on.

With ``bells`` an end is one of Verbena's: the last word names its process, and two bytes 64 apart behind the rings, the
listener's first, say who sleeps and wants a byte on the socket.
"""

import mmap
import os
import socket
import struct
import time
from pathlib import Path

SYNC, TERMINATE, PACKET = 0, 1, 0x40
MASK = (1 << 64) - 1
BELLS = 0x42425256

ENDS = []
"""All there are; :func:`close_all` closes them."""


def close_all():
    while ENDS:
        ENDS.pop().close()


class End:
    """``out`` and ``into`` are (offset, slot bytes, slots) in ``memory``."""

    def __init__(self, sock, memory, out, into, latency=500_000):
        self.sock, self.memory, self.out, self.into, self.latency = sock, memory, out, into, latency
        self.tail = self.head = 0
        self.intro = b""
        self.bell = self.peers_bell = None  # offsets
        ENDS.append(self)

    def put(self, kind, at, frame=b""):
        """Sends at the time ``at`` (ps); False if the ring is full."""
        offset, size, slots = self.out
        base = offset + self.tail * size
        if self.memory[base + 63] & 0x80:
            return False
        self.memory[base : base + 2] = len(frame).to_bytes(2, "little")
        self.memory[base + 48 : base + 56] = ((at + self.latency) & MASK).to_bytes(8, "little")
        self.memory[base + 64 : base + 64 + len(frame)] = frame
        self.memory[base + 63] = 0x80 | kind  # by itself, last
        self.tail = (self.tail + 1) % slots
        return True

    def sync(self, at):
        return self.put(SYNC, at)

    def send(self, at, frame):
        return self.put(PACKET, at, frame)

    def take(self):
        """The next message, (kind, time, frame), or None."""
        offset, size, slots = self.into
        base = offset + self.head * size
        if not self.memory[base + 63] & 0x80:
            return None
        kind = self.memory[base + 63] & 0x7F
        length = int.from_bytes(self.memory[base : base + 2], "little")
        at = int.from_bytes(self.memory[base + 48 : base + 56], "little")
        frame = bytes(self.memory[base + 64 : base + 64 + length])
        self.memory[base + 63] = kind
        self.head = (self.head + 1) % slots
        return kind, at, frame

    def drain(self):
        """All that is there."""
        return list(iter(self.take, None))

    def close(self):
        self.sock.close()
        self.memory.close()


def listen(
    path, *, slot_bytes=4352, slots=64, version=1, flags=3, protocol=1, back=None, gap=0, upper=True, bells=None
):
    """A session: first yields when it listens, then when both have sent, then ends with the :class:`End`.

    ``back`` is (slot bytes, slots) of the other ring, ``gap`` bytes lie before either. ``bells`` is a process.
    """
    back = back or (slot_bytes, slots)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(1)
    server.settimeout(10)
    try:
        yield
        peer, _ = server.accept()
    finally:
        server.close()
        Path(path).unlink()
    memory = os.memfd_create("oracle")
    out = (gap, slot_bytes, slots)
    into = (2 * gap + slot_bytes * slots, *back)
    size = into[0] + back[0] * back[1]
    os.ftruncate(memory, size + 128)
    intro = struct.pack("<QQ 3Q 3Q QQ", version, flags, *out, *into, protocol, 80)
    last = b"\xde\xad\xbe\xef" if bells is None else struct.pack("<I", BELLS ^ bells)
    socket.send_fds(peer, [intro + (last if upper else b"")], [memory])
    end = End(peer, mmap.mmap(memory, 0), out, into)
    end.bell, end.peers_bell = size, size + 64
    os.close(memory)
    peer.settimeout(10)
    end.intro = peer.recv(100)
    return end


def connect(path, *, version=1, flags=3, protocol=1, upper=True, bells=None):
    """The :class:`End` at a listener, which must come within 10 seconds."""
    sock = socket.socket(socket.AF_UNIX)
    limit = time.monotonic() + 10
    while sock.connect_ex(str(path)):
        assert time.monotonic() < limit
        time.sleep(0.01)
    try:
        last = b"\0" * 4 if bells is None else struct.pack("<I", BELLS ^ bells)
        sock.sendall(struct.pack("<QQQQ", version, flags, protocol, 32) + (last if upper else b""))
        sock.settimeout(10)
        intro, descriptors, _, _ = socket.recv_fds(sock, 100, 1)
    except OSError:
        sock.close()
        raise
    fields = struct.unpack_from("<QQ 3Q 3Q QQ", intro)
    memory = mmap.mmap(descriptors[0], os.fstat(descriptors[0]).st_size)
    os.close(descriptors[0])
    end = End(sock, memory, fields[5:8], fields[2:5])
    end.intro = intro
    end.peers_bell = fields[5] + fields[6] * fields[7]
    end.bell = end.peers_bell + 64
    return end
