"""What the transport's blocks say to each other."""

from amaranth.lib import data, enum

from ...abi.wqe import SGE_MAX, UD_ROUTE
from ...stream.record import record_layout
from ...stream.transfer import Passage, Source
from ...wire.packet_header import TransportHeader
from .psn import PSN_BITS

__all__ = [
    "OPERATED",
    "READ_EXTENT",
    "SGE_COUNT_BITS",
    "STRIDE_BITS",
    "Ack",
    "Answered",
    "Departed",
    "Failure",
    "Flush",
    "Job",
    "Outstanding",
    "PayloadSource",
    "Progress",
    "ReadTarget",
    "Recall",
    "Release",
    "ResponseEntry",
    "ResponseJob",
    "ResponseJobKind",
    "ResponseKind",
    "TimerFired",
    "TxDescriptor",
    "TxDescriptorKind",
    "UdPath",
    "UdRoute",
    "Watch",
]

STRIDE_BITS = 2
"""Of the size of a send WQE: log2 of how many times it has 64 bytes."""

SGE_COUNT_BITS = SGE_MAX.bit_length()


class TxDescriptorKind(enum.Enum, shape=3):
    """What a row of the transmit queue is."""

    REQUEST = 0
    RESPONSE = 1  # READ response or atomic acknowledgement
    REQUEST_TOKEN = 2  # no packet: a control token of the requester that must come out at the end
    RESPONSE_TOKEN = 3  # no packet: one of the READ/atomic responder
    VOID = 4  # no packet: keeps a run's place


class PayloadSource(enum.Enum, shape=2):
    """Where the payload of a departing packet comes from."""

    MEMORY = 0  # payload reader
    INLINE = 1  # the requester's inline stream: inline data, or the operands of an atomic
    ATOMIC = 2  # atomic unit


TxDescriptor = data.StructLayout(
    {
        "transport": TransportHeader,  # without dest_qpn and pkey, which the transmitter fills in
        "qp": 12,
        "wqe_index": 16,
        "kind": TxDescriptorKind,
        "source": PayloadSource,
        "message_last": 1,  # LAST or ONLY: of the request, or of the response
        "traffic_class": 8,  # UD
    }
)
"""Requester or READ/atomic responder to transmitter, one a packet, in the order of the access runs."""

UdPath = data.StructLayout({"mac": 48, "source_port": 16})
"""Of a request of UD, what stands in ``dma_length``, ``msn`` and ``syndrome`` of its header; the peer's address stands
in ``rkey``, and ``address`` is the WQE's :data:`verbena.hdl.abi.wqe.UD_ADDRESS`."""

UdRoute = record_layout(UD_ROUTE)
"""Requester to transmitter, with a table of GIDs, one for each request of UD and ahead of it."""

Outstanding = data.StructLayout({"qp": 12, "wqe_index": 16, "last_psn": PSN_BITS, "opcode": 4, "signaled": 1})
"""Requester to completer, once a message, with its last packet: it is under way. ``opcode`` is the SendOpcode; of what
changed a key :data:`OPERATED` and the ``KeyOperation``.
"""

OPERATED = 8

ReadTarget = data.StructLayout(
    {
        "psn": PSN_BITS,  # of the first response
        "wqe_index": 16,
        "length": 32,  # bytes of all responses
        "address": 64,  # first scatter/gather entry of the WQE
        "entry_length": 32,
        "lkey": 32,
        "stride": STRIDE_BITS,  # size of the QP's WQEs
        "atomic": 1,  # answered by an ATOMIC_ACKNOWLEDGE; else by READ responses
        "second": data.StructLayout({"address": 64, "length": 32, "lkey": 32}),  # scatter/gather entry, if there is one
        "sge_count": SGE_COUNT_BITS,
    }
)
"""Requester to response receiver, once a READ or atomic, before its request: where the response goes. Further entries
than two stand in the WQE.
"""

Failure = data.StructLayout({"qp": 12, "wqe_index": 16, "status": 8, "syndrome": 8})
"""To the completer: this WQE failed locally; earlier ones may still complete."""

Departed = data.StructLayout({"qp": 12, "psn": PSN_BITS})
"""To the completer: a message of UC, to its last packet ``psn``, is on its way, and nobody will acknowledge it."""

Flush = data.StructLayout({"qp": 12, "index": 16, "drain": 1})
"""To the completer: the QP is in ERR, and all WQEs before ``index`` are to be flushed; or, with ``drain``, it is in SQD
and nothing is begun from ``index`` on."""

Ack = data.StructLayout({"qp": 12, "psn": PSN_BITS, "msn": 24, "syndrome": 8})
"""ACK or NAK, from the acknowledger to the transmitter."""

Progress = data.StructLayout(
    {
        "oldest": 16,  # WQE that is next to complete
        "unacked": PSN_BITS,  # first PSN not acknowledged
        "first": PSN_BITS,  # first PSN of the oldest WQE
        "reads": 8,  # READs and atomics completed, free-running
        "limit": 16,  # credits: a message that needs a receive WQE may be begun if its index is before `limit`
        "limited": 1,  # there are credits; else none are needed
        "waiting": 1,  # after an RNR NAK, or because a WQE has failed: nothing may be sent
    }
)
"""Completer to requester, with each change: how far the peer is."""

Watch = data.StructLayout(
    {
        "unacked": PSN_BITS,
        "generation": 4,  # changes at each retry
        "waiting": 1,
        "rnr_timer": 5,  # with `waiting`: the RNR NAK's code
        "dead": 1,  # nothing to watch
    }
)
"""Completer to timers, with ``Progress``."""

TimerFired = data.StructLayout({"qp": 12, "generation": 4})
"""Timers to completer: the time of the QP, in this generation, is over."""

Job = data.StructLayout(
    {
        "qp": 12,
        "acknowledge": 1,  # send ACK, or a NAK if `syndrome` says so
        "release": 1,  # a READ or atomic: the next entry of the QP's response ring may be served
        "syndrome": 8,  # AETH syndrome to send
        "psn": PSN_BITS,  # AETH's packet
        "msn": 24,
        "cq": 16,  # of the receive queue
        "qpn": 24,
        "source_qpn": 24,  # the peer's QP
        "source": Source,  # of UD: and where it is
        "receive": 1,  # a receive WQE is in use or consumed by this packet: it takes the blame if the access is refused
        "complete": 1,  # write the receive completion
        "status": 8,  # WcStatus of that completion, if the run is OK
        "cause": 8,  # Syndrome of that completion
        "opcode": 8,  # WcOpcode
        "flags": 8,
        "solicited": 1,
        "wqe_index": 16,
        "immediate": 32,
        "byte_length": 32,
        "remote": 1,  # the run's key came from the wire (RETH): refusal is NAK 0x62; else 0x63
        "fatal": 1,  # the QP goes to ERR with `event`
        "event": 8,
        "last": 1,  # the QP, in ERR, takes no more of its shared receive queue: `event` says so
        "token": 1,  # control token: no packet, `passage` tells
        "passage": Passage,
        "silent": 1,  # discarded packet: no effect, its Done is just consumed
        "invalidate": 1,  # before anything is said the key in `immediate` is made invalid; else the run is refused
        "pd": 24,  # with `invalidate`: the QP's
        "unreliable": 1,  # of UC: nothing is answered, and what may not be written costs its message alone
    }
)
"""Responder to acknowledger, one for each run with tag 0, in the same order. ``silent`` and ``token``: of a token that
has passed by."""

PassingToken = data.StructLayout({"qp": 12, "passage": Passage})
"""Responder to acknowledger: a token of a QP that has no job there passes by the jobs of others."""


class ResponseKind(enum.Enum, shape=3):
    """What a peer asked for that is answered with data."""

    READ = 0
    COMPARE_SWAP = 1
    FETCH_ADD = 2
    REPLAY = 3  # an atomic that was executed before
    REPEAT = 4  # a READ, or the rest of one, that was asked for before


ResponseEntry = data.StructLayout(
    {
        "kind": ResponseKind,
        "path_mtu": 3,  # of the QP, as is
        "pd": 24,
        "psn": PSN_BITS,  # of the first response
        "msn": 24,
        "credits": 5,  # AETH syndrome's low bits
        "address": 64,
        "rkey": 32,
        "swap": 64,  # swap or addend; READ, REPEAT: `READ_EXTENT`
        "compare": 64,
    }
)
"""Responder to READ/atomic responder: an accepted READ or atomic, with what its responses need of the QP's context."""

READ_EXTENT = data.StructLayout({"length": 32, "after": PSN_BITS, "unused": 8})
"""How far a READ reaches: bytes; the first PSN behind its responses."""

Release = data.StructLayout({"qp": 12, "token": 1, "passage": Passage})
"""Acknowledger to READ/atomic responder: what came before the QP's next entry is in memory, and the entry may be
served. ``token``: a control token, which is sent down the transmit path; RESET makes the QP forget its entries."""

Recall = data.StructLayout({"qp": 12, "psn": PSN_BITS})
"""Responder to READ/atomic responder: the peer asks again from ``psn`` on."""

Answered = data.StructLayout({"qp": 12, "status": 3, "psn": PSN_BITS, "msn": 24, "last": 1})
"""Transmitter to READ/atomic responder, and from there to the acknowledger: a response has left (``status`` OK; only
said with ``last``, the entry's last packet), or vanished because its access was refused, its payload could not be read
(BUS), or an earlier one was (POISONED). OK without ``last``, which only the READ/atomic responder hears: its token has
arrived.
"""


class ResponseJobKind(enum.Enum, shape=4):
    """What has come for a send queue."""

    ACK = 0  # ACK, NAK or RNR NAK: `syndrome` tells
    DATA = 1  # the next response of the oldest READ or atomic; it is in memory when the run is done
    SKIPPED = 2  # a response behind the one that is expected: an implied NAK
    NOTHING = 3  # duplicate, ghost, or not this QP's
    TOKEN = 4  # control token
    FAILED = 5  # a response that contradicts its request: `status` and `syndrome` of the WQE
    DEPARTED = 6  # no response, but a message that has none: all up to `psn` is done
    LOCAL = 7  # likewise, of what has no packet: the oldest WQE is done; `psn` is that of the packet before
    PASSED = 8  # a token, but of a QP that had no job there: it has been told of before


ResponseJob = data.StructLayout(
    {
        "qp": 12,
        "kind": ResponseJobKind,
        "psn": PSN_BITS,
        "msn": 24,
        "syndrome": 8,  # AETH's; with FAILED the WQE's
        "status": 8,  # FAILED: WcStatus
        "wqe_index": 16,  # DATA, FAILED: the WQE
    }
)
"""Response receiver to completer, one for each run with tag 1, in the same order."""
