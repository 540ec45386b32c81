"""What the cable wants to know of a frame, and the file that keeps frames."""

import struct
import time

__all__ = ["ADAPTER", "CORRUPTED", "GUEST", "ROCE_PORT", "Capture", "request_of", "roce_offset"]

ADAPTER, GUEST = "adapter", "guest"
"""Who sends, and so the name of a direction, and of an interface of the capture."""

CORRUPTED = "corrupted"
"""Interface of frames whose bits were flipped, as they were delivered."""

UDP = 17
ROCE_PORT = 4791
READ_REQUEST = 0x0C
RESPONSES = range(0x0D, 0x13)
"""READ responses, ACK, ATOMIC_ACK."""


def roce_offset(frame):
    """Where the BTH of a RoCEv2 frame begins, or None if it is none."""
    tag = 4 if frame[12:14] == b"\x81\x00" else 0
    kind, ip = frame[12 + tag : 14 + tag], 14 + tag
    if kind == b"\x08\x00" and frame[ip + 9] == UDP:
        udp = ip + 20
    elif kind == b"\x86\xdd" and frame[ip + 6] == UDP:
        udp = ip + 40
    else:
        return None
    if len(frame) < udp + 24 or int.from_bytes(frame[udp + 2 : udp + 4], "big") != ROCE_PORT:
        return None
    return udp + 8


def request_of(frame, at):
    """``(queue pair, PSN, bytes to read)`` of an RC request, None of any other packet."""
    opcode = frame[at]
    if opcode >= 0x20 or opcode in RESPONSES:
        return None
    qpn, psn = (int.from_bytes(frame[at + i : at + i + 3], "big") for i in (5, 9))
    return qpn, psn, int.from_bytes(frame[at + 24 : at + 28], "big") if opcode == READ_REQUEST else 0


class Capture:
    """A pcapng file; each frame may have a comment."""

    def __init__(self, path):
        self._file = path.open("wb")
        self._names = names = (ADAPTER, GUEST, CORRUPTED)
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
        for name in names:
            self._block(1, struct.pack("<HHI", 1, 0, 0) + self._option(2, name.encode()) + bytes(4))

    def _block(self, kind, body):
        length = struct.pack("<I", len(body) + 12)
        self._file.write(struct.pack("<I", kind) + length + body + length)

    @staticmethod
    def _option(code, value):
        return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)

    def frame(self, name, frame, comment=""):
        """Appends a frame that the interface ``name`` sent."""
        now = time.time_ns() // 1000
        head = struct.pack("<IIIII", self._names.index(name), now >> 32, now & 0xFFFFFFFF, len(frame), len(frame))
        options = self._option(1, comment.encode()) + bytes(4) if comment else b""
        self._block(6, head + frame + bytes(-len(frame) % 4) + options)

    def close(self):
        self._file.close()
