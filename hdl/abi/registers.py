"""The register map, behind AXI4-Lite, 32 bits a register; all offsets in bytes.

One page of 4 KiB a QP, one a CQ and one an SRQ hold the doorbells, so that a process maps only what is its own.

A write is of all 32 bits. One without strobes does nothing; one with some of its four strobes is answered with SLVERR
and changes nothing. The mailbox belongs to the command that runs: until that is done, reads and writes of the mailbox
are answered with SLVERR, and change nothing; a write of ``command`` does nothing. All else is answered with OKAY;
unknown addresses read as 0.
"""

from dataclasses import dataclass
from enum import IntEnum

from .commands import MAILBOX_WORDS

__all__ = [
    "ADDRESS_WIDTH",
    "BUS_TIMEOUT",
    "CAN_PUSH",
    "CQ_MODERATION",
    "CQ_PAGES",
    "EVENT_QUEUES",
    "FATAL",
    "GIDS",
    "GID_ROWS",
    "GROUPS",
    "INTERRUPT_MODERATION",
    "KEY_OPERATIONS",
    "LOG_CAPABILITIES",
    "LOG_EVENT_QUEUES",
    "MAGIC",
    "MAILBOX",
    "MODERATION_NS",
    "MULTICAST",
    "NEIGHBOUR",
    "NO_ATOMICS",
    "PAGE",
    "PHYSICAL",
    "QP_PAGES",
    "QP_PUSH",
    "QP_TABLE",
    "RAW",
    "RAW_PROMISCUOUS",
    "REACH",
    "REACH_MASK",
    "REGISTERS",
    "RESPONDS_ONLY",
    "ROCE_V1",
    "SRQ_MASK",
    "SRQ_PAGES",
    "VERSION",
    "CqDoorbell",
    "QpDoorbell",
    "Register",
    "SrqDoorbell",
]

MAGIC = 0x56524231
"""What ``magic`` holds."""

VERSION = 11
"""Of this interface: what ``version`` holds. A driver works with this one alone."""

KEY_OPERATIONS = 1 << 31
"""Bit of ``transports``: work requests change keys."""

ADDRESS_WIDTH = 28
"""Bits of an address of registers and doorbells."""

PAGE = 4096
"""Bytes of a page of doorbells."""

QP_PAGES = 0x400_0000
"""A page for each QP, by its index, with the doorbells of ``QpDoorbell``."""

CQ_PAGES = 0x800_0000
"""A page for each CQ, with the doorbells of ``CqDoorbell``."""

SRQ_PAGES = 0xC00_0000
"""A page for each SRQ, with the doorbells of ``SrqDoorbell``."""

QP_PUSH = 0x100
"""Where in a QP's page a WQE is pushed, if ``CAN_PUSH`` says that it may be."""

MAILBOX = 0x800
"""Operands and results of commands."""

EVENT_QUEUES = 0x100
"""With several event queues, or with moderation of interrupts, write-only: a
:data:`verbena.hdl.abi.eqe.EVENT_QUEUE` for each."""

GIDS = 0x400
"""The table of GIDs: a row of :data:`verbena.hdl.abi.gids.GID_ROW` for each; write-only."""

NEIGHBOUR = 0x600
"""With a table of GIDs, write-only: four words of the GID whose MAC address is wanted, as in a row; and the row from
whose address, and in whose VLAN, it is asked for. That word is written last: it forgets the last answer and sends an
ARP request for an IPv4-mapped GID, or a neighbour solicitation. The answer stands in ``neighbour_mac_low`` and
``neighbour_mac_high``."""

GROUPS = 0x620
"""With multicast, write-only: a row of :data:`verbena.hdl.abi.gids.GROUP_MEMBER`, which says which one it is."""

RAW = 0x700
"""With QPs of type RAW_PACKET, write-only: bits 23:0: number of the one that gets the frames which are not RoCE, 0:
none does; and ``RAW_PROMISCUOUS``. DEVICE_RESET clears it."""

RAW_PROMISCUOUS = 1 << 24
"""Frames to other stations, too; without it those to the own MAC address and to groups."""

LOG_CAPABILITIES = {"qps": 0, "cqs": 4, "data_bytes": 8, "window": 12, "responses": 20}
"""Lowest bits of the fields of ``capabilities``, 4 bits each: base-2 logarithms."""

CAN_PUSH = 1 << 16
"""Bit of ``capabilities``: send WQEs may be pushed."""

BUS_TIMEOUT = 4096
"""Value of ``bus_timeout`` after a hardware reset."""

SRQ_MASK = 0xFFFF
"""Bits of ``queues``: the number of shared receive queues."""

LOG_EVENT_QUEUES = 16
"""Lowest bit of the logarithm, 4 bits, of the number of event queues in ``queues``."""

CQ_MODERATION = 1 << 20
"""Bit of ``queues``: completion events may be moderated."""

INTERRUPT_MODERATION = 1 << 21
"""Bit of ``queues``: interrupts may be moderated."""

MODERATION_NS = 1024
"""The unit of periods and intervals of moderation: a quarter of ``tick``."""

FATAL = 1 << 2
"""Bit of ``status``: the host's memory does not answer."""

RESPONDS_ONLY = 1 << 17
"""Bit of ``capabilities``: there are no send queues."""

NO_ATOMICS = 1 << 18
"""Bit of ``capabilities``: atomics of peers are refused."""

GID_ROWS = 16
"""Lowest bit of the number of rows of the table of GIDs in ``transports``."""

MULTICAST = 1 << 29
"""Bit of ``transports``: there is a table of group members."""

ROCE_V1 = 1 << 30
"""Bit of ``transports``: rows of the table of GIDs may be of RoCEv1."""

LOG_WQE_BYTES = 24
"""Lowest bit of the logarithm of the bytes of the largest send WQE in ``transports``."""

QP_TABLE = 1 << 19
"""Bit of ``capabilities``: QPs have records in host memory (:mod:`.qpc`), and there are more of them than slots."""

PHYSICAL = 1 << 31
"""Bit of ``capabilities``: memory regions may be told by their bus address (:data:`verbena.hdl.abi.tables.MPT`)."""

REACH = 24
"""Lowest bit of a field of ``capabilities``: how many bits of bus addresses the engine keeps."""

REACH_MASK = 0x7F
"""The largest value of that field."""


class QpDoorbell(IntEnum):
    """Registers of the page ``QP_PAGES + (qpn % max_qp) * PAGE``; write-only.

    The value is a free-running 16-bit index. From ``QP_PUSH`` on the page takes the 16 or 32 words of a send WQE (of
    a larger one, too: those behind must be zero), and
    ``SQ_PUSH`` is a producer doorbell that says that the newest WQE has been written there: the engine then need not
    read it from the ring, where it stands all the same. Word 0 is written first; words that are zero may be left out.
    An adapter without room for it, or in which something else of the queue waits, reads the ring.

    With ``QP_TABLE`` the index is written to the QP's record before: ``sq_producer`` for ``SQ_PRODUCER`` and
    ``SQ_PUSH``, ``rq_producer`` for ``RQ_PRODUCER``. The engine takes what stands there for what was rung.
    """

    SQ_PRODUCER = 0
    RQ_PRODUCER = 4
    SQ_PUSH = 8


class CqDoorbell(IntEnum):
    """Registers of the page ``CQ_PAGES + cqn * PAGE``; write-only. What is rung stands in the CQ's record before."""

    CONSUMER = 0  # free-running 16-bit index
    ARM = 4  # bits 3:0: arms; bits 7:4: solicited_arms


class SrqDoorbell(IntEnum):
    """Registers of the page ``SRQ_PAGES + srqn * PAGE``; write-only."""

    PRODUCER = 0  # free-running 16-bit index


@dataclass(frozen=True)
class Register:
    name: str
    offset: int
    access: str  # "r", "w" or "rw"
    doc: str


REGISTERS = {
    r.name: r
    for r in [
        Register("magic", 0x000, "r", "0x56524231"),
        Register("version", 0x004, "r", "version of this interface"),
        Register(
            "capabilities",
            0x008,
            "r",
            "log2 of: QPs (bits 3:0), CQs that have a slot on chip (7:4), data width in bytes (11:8), most WQEs "
            "unacknowledged a QP (15:12); "
            "bit 16: send WQEs may be pushed; bit 17: there are no send queues, the engine only responds; "
            "bit 18: atomics of peers are refused; "
            "bit 19: each QP has a record in host memory: there are more QPs than slots on chip, and the driver gives "
            "the table (qpc_low), and writes each producer index to the record before it rings; "
            "log2 of the pool of responses, of which one stays free: READs and atomics of peers that may wait (23:20); "
            "bits of bus addresses that are kept, 32 to 64 (30:24); bit 31: memory regions may be physical",
        ),
        Register(
            "control",
            0x00C,
            "rw",
            "bit 0: enable; without it no frame is sent or received, and the host's memory is not touched: what was "
            "begun is brought to its end, what waits goes on when it is set again; bit 1: interrupt enable. "
            "DEVICE_RESET clears both",
        ),
        Register("command", 0x010, "w", "see COMMAND: starts a command"),
        Register("command_status", 0x014, "r", "bit 31: busy; bits 3:0: status of the last command"),
        Register(
            "status",
            0x018,
            "r",
            "bit 0: idle, nothing in flight, no timer running; bit 1: the port has a link; bit 2: host memory has not "
            "answered for bus_timeout; until DEVICE_RESET",
        ),
        Register("clock", 0x01C, "r", "cycles since reset, low 32 bits"),
        Register(
            "mac_low", 0x020, "rw", "own MAC address, low 32 bits; its first byte on the wire is the most significant"
        ),
        Register("mac_high", 0x024, "rw", "own MAC address, high 16 bits"),
        Register("ip", 0x028, "rw", "own IPv4 address, first byte on the wire is the most significant"),
        Register(
            "transports",
            0x02C,
            "r",
            "bit n of bits 15:0: there are QPs of type n, enum ibv_qp_type: RC 2, UC 3, UD 4, RAW_PACKET 8; bits "
            "23:16: rows of the table of GIDs, of IPv4 and IPv6, which the driver writes before it sets `enable`; in "
            "front of a datagram such an engine writes the 40 bytes itself. 0: `ip` is the one address; bits 27:24: "
            "log2 of the bytes of the largest send WQE, 7 to 9; a receive WQE has as many at most, but not more than "
            "256; bit 29: there is a table of group members; bit 30: rows may be of RoCEv1; bit 31: work requests "
            "change keys, and SENDs invalidate them",
        ),
        Register("mpt_low", 0x030, "rw", "bus address of the MPT, 4 KiB aligned"),
        Register("mpt_high", 0x034, "rw", ""),
        Register("mpt_log_size", 0x038, "rw", "log2 of the number of MPT entries, 0 to 24"),
        Register(
            "queues",
            0x03C,
            "r",
            "bits 15:0: shared receive queues that there may be, numbers 0 and up; 0: none; bits 19:16: log2 of the "
            "number of event queues; bit 20: completion events may be moderated; bit 21: interrupts may",
        ),
        Register("eq_low", 0x040, "rw", "bus address of the event ring, 4 KiB aligned"),
        Register("eq_high", 0x044, "rw", ""),
        Register("eq_log_size", 0x048, "rw", "log2 of its entries; a write of this register resets the ring's indices"),
        Register(
            "eq_consumer",
            0x04C,
            "rw",
            "free-running 16-bit index; the interrupt is high while it differs from the producer",
        ),
        Register("tick", 0x050, "rw", "cycles of one timer tick (4.096 us)"),
        Register("next_due", 0x054, "r", "ticks until the next timer may fire; all ones: no timer runs"),
        Register(
            "neighbour_ip",
            0x058,
            "rw",
            "IPv4 address whose MAC address is wanted; a write forgets the last answer and sends an ARP request. Only "
            "without a table of GIDs",
        ),
        Register("neighbour_mac_low", 0x05C, "r", "the answer, low 32 bits; as mac_low"),
        Register("neighbour_mac_high", 0x060, "r", "bits 15:0: the answer, high 16 bits; bit 31: it is there"),
        Register(
            "owner",
            0x064,
            "rw",
            "who drives the adapter; bit 0: somebody does. While it is set, a write that sets it, too, changes "
            "nothing: who reads back what was written has claimed the adapter. Only a hardware reset clears it",
        ),
        Register(
            "bus_timeout",
            0x068,
            "rw",
            "for how long the host's memory may leave a read or a write without an answer, in 1024 cycles, 0 to "
            "65,535; then comes the event DEVICE_FATAL, once. 0: for ever. After a hardware reset 4096",
        ),
        Register(
            "cqc_low", 0x06C, "rw", "bus address of the CQ context table, aligned to its size, and to 4 KiB at least"
        ),
        Register("cqc_high", 0x070, "rw", ""),
        Register("cqc_log_size", 0x074, "rw", "log2 of the number of CQs in it, 0 to 14"),
        Register(
            "qpc_low",
            0x078,
            "rw",
            "with bit 19 of capabilities: bus address of the QP context table, aligned to the size of a record, and to "
            "4 KiB at least",
        ),
        Register("qpc_high", 0x07C, "rw", ""),
    ]
}
"""Everything but mailbox, counters and doorbells."""

MAILBOX_END = MAILBOX + 4 * MAILBOX_WORDS
"""First byte behind the mailbox."""

COUNTERS = 0xC00
"""Counters: 64 bits each, low word first, in the order of :data:`verbena.hdl.abi.counters.COUNTERS`."""
