"""The BTH's opcodes: which headers and payload follow each; plain Python.

Source: InfiniBand Architecture Specification volume 1, table "OpCode field"; names as in Linux ``ib_pack.h``.
"""

from dataclasses import dataclass
from enum import IntEnum

from .headers import HEADERS

__all__ = [
    "ATOMICS",
    "DATAGRAMS",
    "FLAT_HEADERS",
    "INVALIDATES",
    "OPCODES",
    "RAW_SEND",
    "REFUSED",
    "SUPPORTED",
    "UNRELIABLE",
    "Kind",
    "Opcode",
    "Transport",
    "is_raw",
    "opcode",
]


class Transport(IntEnum):
    """Bits 7:5 of the opcode, in place."""

    RC = 0x00
    UC = 0x20
    RD = 0x40
    UD = 0x60
    CNP = 0x80


class Kind(IntEnum):
    """What the packet is about."""

    SEND = 0
    WRITE = 1
    READ_REQUEST = 2
    READ_RESPONSE = 3
    ACK = 4
    ATOMIC_REQUEST = 5
    ATOMIC_RESPONSE = 6
    CONGESTION = 7
    FLUSH = 8
    ATOMIC_WRITE = 9


@dataclass(frozen=True)
class Opcode:
    """One row: ``headers`` are the extended ones behind the BTH in wire order; ``first`` and ``last`` tell whether the
    packet begins and ends a message; ``payload`` whether bytes may follow the headers."""

    code: int
    name: str
    transport: Transport
    kind: Kind
    headers: tuple
    payload: bool
    first: bool
    last: bool

    @property
    def immediate(self):
        return "immdt" in self.headers

    @property
    def invalidate(self):
        return "ieth" in self.headers

    @property
    def flat(self):
        """The transport gives and gets all its headers."""
        return all(header in FLAT_HEADERS for header in self.headers)

    @property
    def header_words(self):
        """32-bit words of the extended headers."""
        return sum(HEADERS[header].size for header in self.headers) // 4


FLAT_HEADERS = ("reth", "atomiceth", "aeth", "atomicacketh", "immdt", "ieth", "deth")
"""The extended headers that the transport gives and gets: as fields of :mod:`.packet_header`, or as payload."""

_CONNECTED = [
    # code, name, kind, extended headers, payload, begins, ends a message
    (0x00, "SEND_FIRST", Kind.SEND, (), True, True, False),
    (0x01, "SEND_MIDDLE", Kind.SEND, (), True, False, False),
    (0x02, "SEND_LAST", Kind.SEND, (), True, False, True),
    (0x03, "SEND_LAST_WITH_IMMEDIATE", Kind.SEND, ("immdt",), True, False, True),
    (0x04, "SEND_ONLY", Kind.SEND, (), True, True, True),
    (0x05, "SEND_ONLY_WITH_IMMEDIATE", Kind.SEND, ("immdt",), True, True, True),
    (0x06, "RDMA_WRITE_FIRST", Kind.WRITE, ("reth",), True, True, False),
    (0x07, "RDMA_WRITE_MIDDLE", Kind.WRITE, (), True, False, False),
    (0x08, "RDMA_WRITE_LAST", Kind.WRITE, (), True, False, True),
    (0x09, "RDMA_WRITE_LAST_WITH_IMMEDIATE", Kind.WRITE, ("immdt",), True, False, True),
    (0x0A, "RDMA_WRITE_ONLY", Kind.WRITE, ("reth",), True, True, True),
    (0x0B, "RDMA_WRITE_ONLY_WITH_IMMEDIATE", Kind.WRITE, ("reth", "immdt"), True, True, True),
]

_RELIABLE = [
    (0x0C, "RDMA_READ_REQUEST", Kind.READ_REQUEST, ("reth",), False, True, True),
    (0x0D, "RDMA_READ_RESPONSE_FIRST", Kind.READ_RESPONSE, ("aeth",), True, True, False),
    (0x0E, "RDMA_READ_RESPONSE_MIDDLE", Kind.READ_RESPONSE, (), True, False, False),
    (0x0F, "RDMA_READ_RESPONSE_LAST", Kind.READ_RESPONSE, ("aeth",), True, False, True),
    (0x10, "RDMA_READ_RESPONSE_ONLY", Kind.READ_RESPONSE, ("aeth",), True, True, True),
    (0x11, "ACKNOWLEDGE", Kind.ACK, ("aeth",), False, True, True),
    (0x12, "ATOMIC_ACKNOWLEDGE", Kind.ATOMIC_RESPONSE, ("aeth", "atomicacketh"), False, True, True),
    (0x13, "COMPARE_SWAP", Kind.ATOMIC_REQUEST, ("atomiceth",), False, True, True),
    (0x14, "FETCH_ADD", Kind.ATOMIC_REQUEST, ("atomiceth",), False, True, True),
    (0x16, "SEND_LAST_WITH_INVALIDATE", Kind.SEND, ("ieth",), True, False, True),
    (0x17, "SEND_ONLY_WITH_INVALIDATE", Kind.SEND, ("ieth",), True, True, True),
    # Of the specification's annex about memory placement; the 8 bytes of ATOMIC_WRITE are its payload.
    (0x1C, "FLUSH", Kind.FLUSH, ("feth", "reth"), False, True, True),
    (0x1D, "ATOMIC_WRITE", Kind.ATOMIC_WRITE, ("reth",), True, True, True),
]


def _rows():
    for transport, rows in [(Transport.RC, _CONNECTED + _RELIABLE), (Transport.UC, _CONNECTED)]:
        for code, name, *rest in rows:
            yield Opcode(transport | code, f"{transport.name}_{name}", transport, *rest)
    ud = Transport.UD
    yield Opcode(ud | 0x04, "UD_SEND_ONLY", ud, Kind.SEND, ("deth",), True, True, True)
    yield Opcode(ud | 0x05, "UD_SEND_ONLY_WITH_IMMEDIATE", ud, Kind.SEND, ("deth", "immdt"), True, True, True)
    # Its payload are 16 reserved bytes.
    yield Opcode(0x81, "CNP", Transport.CNP, Kind.CONGESTION, (), True, True, True)


OPCODES = {row.code: row for row in _rows()}
"""All rows by code."""

_BY_NAME = {row.name: row for row in OPCODES.values()}


def opcode(name):
    """The code of the row ``name``, such as ``"RC_SEND_ONLY"``."""
    if name not in _BY_NAME:
        raise ValueError(f"name must be an opcode's name, not {name!r}")
    return _BY_NAME[name].code


_RC = [row for row in OPCODES.values() if row.transport is Transport.RC]

UNRELIABLE = frozenset(row.code for row in OPCODES.values() if row.transport is Transport.UC)
"""Opcodes of UC."""

DATAGRAMS = frozenset(row.code for row in OPCODES.values() if row.transport is Transport.UD)
"""Opcodes of UD."""

SUPPORTED = (
    UNRELIABLE | DATAGRAMS | {row.code for row in _RC if row.flat and row.kind not in (Kind.FLUSH, Kind.ATOMIC_WRITE)}
)
"""Opcodes that the engine sends and serves."""

ATOMICS = frozenset(row.code for row in _RC if row.kind is Kind.ATOMIC_REQUEST)
"""Of these, the atomics that peers ask for."""

INVALIDATES = frozenset(row.code for row in _RC if row.invalidate)
"""And the SENDs that invalidate a key."""

REFUSED = frozenset(row.code for row in _RC) - SUPPORTED
"""Opcodes that the responder refuses, as invalid requests. All others are dropped as malformed."""

RAW_SEND = 0xA4
"""Inside the engine alone: the opcode of a raw frame, that of UC's SEND ONLY and bit 7, which no packet has that the
engine sends or lets through."""


def is_raw(code):
    """Whether ``code`` (Value) is that of a raw frame, with an immediate or without."""
    return code[7]
