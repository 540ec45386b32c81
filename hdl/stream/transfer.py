"""Requests that several floors speak: accesses to registered memory, pieces of bus memory, completions, control tokens.

**Runs.** A packet's accesses form a run: one or more, the last marked ``last``. Each packet, also one without payload,
has exactly one run; the access
check turns it into exactly one run of pieces, and on the write side the DMA engine answers with exactly one ``Done``,
in order. An access of length 0 is not checked
and touches nothing; it is how a packet without payload keeps its place.
"""

from amaranth.lib import data, enum

from ..abi.cqc import CQN_BITS
from ..abi.eqe import EVENT_QUEUES_MAX

__all__ = [
    "GID_INDEX_BITS",
    "LENGTH_BITS",
    "NO_EVENT",
    "PAGE_BITS_MAX",
    "SEND_FAILED",
    "AccessRequest",
    "AttributeWrite",
    "Completion",
    "CqControl",
    "Done",
    "Event",
    "EventQueueWrite",
    "GidWrite",
    "Passage",
    "Piece",
    "QpControl",
    "QpError",
    "RawFilter",
    "ReadRequest",
    "Source",
]

LENGTH_BITS = 13
"""Bits of a length that is at most 4096."""

PAGE_BITS_MAX = 30
"""Logarithm of the largest page."""

AccessRequest = data.StructLayout(
    {
        "key": 32,
        "address": 64,  # virtual
        "length": LENGTH_BITS,  # bytes; 0: unchecked
        "span": 32,  # bytes from `address` on that must lie in the region: `length`, or all that is left of a message
        "pd": 24,
        "access": 5,  # rights wanted (abi.tables.Access); 0 is local read, which needs none
        "qp": 12,  # QP index, for poisoning
        "quiet": 1,  # a refusal poisons nobody, and is told as POISONED
        "discard": 1,  # the payload of this length is thrown away and nothing is checked
        "clear": 1,  # a control token passes (length 0): the QP's poison is cleared
        "fresh": 1,  # checked as if nothing had been refused before: the QP's poison is forgotten
        "tag": 1,  # whose run it is: goes with its pieces, and comes back with `Done`
        "last": 1,  # of the packet's run
    }
)
"""One access to registered memory, up to 4096 bytes.

``tag``: transmit, 1 goes to the atomic unit instead of the payload reader; receive, 1 is a response (its ``Done`` goes
to the completer), 0 a request (to the acknowledger).
"""

Piece = data.StructLayout(
    {
        "address": 64,  # bus
        "length": LENGTH_BITS,  # bytes, 0 to 4096; crosses 4 KiB only inside a larger page, and so no multiple of 1 GiB
        "discard": 1,  # consume that much payload and write nothing
        "status": 3,  # abi.tables.AccessStatus; other than OK only with `last`
        "tag": 1,  # as in the access
        "last": 1,  # of the packet's run
    }
)
"""What the access check hands to the DMA engine. A run whose status is not OK ends in a piece with ``status`` set; on
the read side that piece has
``length`` 0 and the payload stream gets a final beat with ``error``; on the write side the accesses after the refused
one have become discards of the same lengths.

On the read side the payload stream of a run has exactly one packet (one beat with ``first``, one with ``last``), except
that a run of length 0 with status OK has no beat."""

Done = data.StructLayout({"status": 3, "tag": 1})
"""One packet's run is over: all its bytes are read, or written and answered by the bus. ``status`` is the check's, or
BUS; ``tag`` is the run's.
"""


ReadRequest = data.StructLayout({"address": 64, "length": LENGTH_BITS})
"""A read of the engine's own structures: 8-byte aligned, a multiple of 8 bytes, at most 4096."""

QpControl = data.StructLayout({"qp": 12, "action": 4, "psn": 24})
"""A token that the command block sends to each block with state of a QP; the block resets or starts that state, in
order with its packets.
``action`` is :class:`verbena.hdl.abi.commands.QpAction`."""


class Passage(enum.Enum, shape=2):
    """What a token does that passes the whole of a pipeline, behind all packets of its QP."""

    RESET = 0  # the QP has no state any more
    SAVE = 1  # the same, but the state is given away
    LOAD = 2  # a state that was given away comes


CqControl = data.StructLayout({"cq": CQN_BITS, "hold": 1, "keep": 1, "stay": 1})
"""A CQ begins anew: its indices are zero, and without ``keep`` its arm state and its death, too. With ``stay`` all is
as it was. With ``hold`` no completion of any CQ goes on until the next one without."""

AttributeWrite = data.StructLayout({"index": 12, "word": 5, "data": 32})
"""One word of a context (:mod:`verbena.hdl.abi.contexts`) is written; broadcast to every table, never stalled."""

QpError = data.StructLayout({"qp": 12, "event": 8})
"""A QP must go to ERR, or to SQE; ``event`` is :class:`verbena.hdl.abi.eqe.EventType`, or one of those below."""

NO_EVENT, SEND_FAILED = 255, 254
"""No event: the completion says it all; of the second one the send queue alone has failed, if the QP is of UC or UD."""

Source = data.StructLayout({"ip": 32, "traffic_class": 8, "hop_limit": 8})
"""Where a packet comes from, as its IP header says."""

Completion = data.StructLayout(
    {
        "cq": 16,
        "qp": 12,
        "qpn": 24,
        "source_qpn": 24,
        "source": Source,
        "wqe_index": 16,
        "opcode": 8,
        "status": 8,
        "syndrome": 8,
        "flags": 8,
        "immediate": 32,  # as in the CQE
        "byte_length": 32,
        "solicited": 1,
    }
)
"""A CQE to be written (:data:`verbena.hdl.abi.cqe.CQE`)."""

Event = data.StructLayout({"type": 8, "number": 24})
"""An EQE to be written."""

EventQueueWrite = data.StructLayout({"queue": range(EVENT_QUEUES_MAX), "word": 3, "data": 32})
"""One word of :data:`verbena.hdl.abi.eqe.EVENT_QUEUE` is written."""

GID_INDEX_BITS = 4
"""Of the number of a row of the table of GIDs."""

GidWrite = data.StructLayout({"index": GID_INDEX_BITS, "word": 3, "data": 32})
"""One word of :data:`verbena.hdl.abi.gids.GID_ROW` is written."""

RawFilter = data.StructLayout({"qpn": 24, "promiscuous": 1})
"""Whose the frames are that are not RoCE, 0: nobody's; and whether those to other stations are, too."""
