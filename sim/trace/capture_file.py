"""Reader of captures: pcapng, pcap, and the host-bus transactions that ``native/capture.h`` puts into the former."""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Capture", "CaptureError", "Frame", "Transaction", "read_capture"]

ETHERNET, USER0 = 1, 147
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_COMMENT, _NAME, _FLAGS, _RESOLUTION = 1, 2, 2, 9
_ERRORS = 0xFF000000
PICOSECONDS = 10**12
"""The clock of a capture whose time is not counted in cycles, in Hz."""
_PCAP = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}
"""Nanoseconds of the time stamps' fraction, by the file's magic number."""


class CaptureError(ValueError):
    """The file is no capture, or is damaged."""


@dataclass(frozen=True)
class Frame:
    """A frame at ``port``, ``inbound`` if it was received there; None: the file does not tell.

    ``time`` is in ns; ``comment`` tells what happened to the frame; ``error``: it was damaged.
    """

    port: str
    inbound: bool | None
    time: int
    data: bytes
    comment: str = ""
    error: bool = False


@dataclass(frozen=True)
class Transaction:
    """A transaction of an adapter's host bus, in cycles: a register access, or an AXI burst with all its data."""

    adapter: int
    register: bool
    write: bool
    identity: int
    response: int
    address: int
    start: int
    end: int
    data: bytes


@dataclass
class Capture:
    """``clock_hz`` is None in files of others, and of a switch, which has no cycles. ``frames`` and ``transactions``
    stand in the order of the file.
    """

    clock_hz: float | None = None
    frames: list = field(default_factory=list)
    transactions: list = field(default_factory=list)


def read_capture(path):
    """The :class:`Capture` in a file; :class:`CaptureError` if there is none, ``OSError`` if it cannot be read."""
    content = Path(path).read_bytes()
    if len(content) >= 4:
        if content[:4] == _SECTION.to_bytes(4, "big"):
            return _pcapng(path, content)
        for order in "<>":
            if struct.unpack(order + "I", content[:4])[0] in _PCAP:
                return _pcap(path, content, order)
    raise CaptureError(f"{path} is no pcap or pcapng file")


def _pcap(path, content, order):
    try:
        magic, link = struct.unpack_from(order + "I16xI", content)
    except struct.error:
        raise CaptureError(f"{path} ends within its header") from None
    if link & 0xFFFF != ETHERNET:
        raise CaptureError(f"{path} is not of Ethernet but of link type {link & 0xFFFF}")
    capture, at = Capture(), 24
    while at + 16 <= len(content):
        seconds, fraction, size = struct.unpack_from(order + "III", content, at)
        if at + 16 + size > len(content):
            break  # the writer was killed
        data = content[at + 16 : at + 16 + size]
        capture.frames.append(Frame("", None, seconds * 10**9 + fraction * _PCAP[magic], data))
        at += 16 + size
    return capture


def _options(order, block, at):
    while at + 4 <= len(block):
        code, size = struct.unpack_from(order + "HH", block, at)
        if code == 0:
            return
        yield code, block[at + 4 : at + 4 + size]
        at += 4 + -(-size // 4) * 4


def _ticks(resolution):
    """Time stamps a second, by the option ``if_tsresol``."""
    return 2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution


def _pcapng(path, content):
    capture, interfaces, order, at = Capture(), [], "<", 0
    while at + 12 <= len(content):
        if content[at : at + 4] == _SECTION.to_bytes(4, "big"):
            order = "<" if content[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = struct.unpack_from(order + "II", content, at)
        if size < 12 or size % 4:
            raise CaptureError(f"{path} is damaged: a block of {size} bytes at byte {at}")
        if at + size > len(content):
            break  # the writer was killed
        block = content[at + 8 : at + size - 4]
        try:
            _block(capture, interfaces, order, kind, block)
        except (struct.error, IndexError):
            raise CaptureError(f"{path} is damaged: block type {kind:#x} at byte {at}") from None
        at += size
    return capture


def _block(capture, interfaces, order, kind, block):
    if kind == _SECTION:
        for code, value in _options(order, block, 16):
            clock = re.fullmatch(rb"clock (\d+) Hz", value) if code == _COMMENT else None
            if clock and int(clock[1]) < PICOSECONDS:
                capture.clock_hz = float(clock[1])
    elif kind == _INTERFACE:
        options = dict(_options(order, block, 8))
        name = options.get(_NAME, str(len(interfaces)).encode()).decode(errors="replace")
        link = struct.unpack_from(order + "H", block)[0]
        interfaces.append((name, link, _ticks(options.get(_RESOLUTION, b"\x06")[0])))
    elif kind == _ENHANCED:
        number, high, low, size = struct.unpack_from(order + "4I", block)
        name, link, ticks = interfaces[number]
        data = block[20 : 20 + size]
        options = dict(_options(order, block, 20 + -(-size // 4) * 4))
        if link == USER0 and name.startswith("bus"):
            capture.transactions.append(_transaction(int(name[3:]), data))
        elif link == ETHERNET:
            flags = struct.unpack(order + "I", options[_FLAGS])[0] if _FLAGS in options else 0
            inbound = {1: True, 2: False}.get(flags & 3)
            comment = options.get(_COMMENT, b"").decode(errors="replace")
            time = (high << 32 | low) * 10**9 // ticks
            capture.frames.append(Frame(name, inbound, time, data, comment, bool(flags & _ERRORS)))
    elif kind == _SIMPLE and interfaces[0][1] == ETHERNET:
        size = struct.unpack_from(order + "I", block)[0]
        capture.frames.append(Frame(interfaces[0][0], None, 0, block[4 : 4 + size]))


def _transaction(adapter, data):
    kind, identity, response, size, address, start, end = struct.unpack_from("<BBHIQQQ", data)
    return Transaction(
        adapter, kind >= 2, bool(kind & 1), identity, response, address, start, end, data[32 : 32 + size]
    )
