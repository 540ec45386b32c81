"""What comes out of the lookup: requests and responses, with their contexts."""

from amaranth.lib import data, enum

from ...abi.contexts import QP_CONTEXT
from ...abi.wqe import SGE_MAX
from ...stream.record import fields_layout
from ...stream.transfer import QpControl, Source
from ...wire.packet_header import TransportHeader
from ..common.psn import PSN_BITS
from ..completer.scatter_walk import Place
from ..responder.sequence_error_tracker import SequenceError

__all__ = [
    "OPENING",
    "REQUEST_ATTRIBUTES",
    "RESPONSE_ATTRIBUTES",
    "Message",
    "ReadProgress",
    "ReceivedRequest",
    "ReceivedResponse",
    "RecvPlace",
    "RequestState",
    "SharedWqe",
    "Work",
]


class Work(enum.Enum, shape=2):
    """What comes out."""

    PACKET = 0
    FLUSH = 1  # a receive WQE of the QP, which is in ERR, is to be flushed
    CONTROL = 2  # a token of the command block: `action`, and its PSN as that of `transport`


class Message(enum.Enum, shape=2):
    """The message of which a part has come."""

    NONE = 0
    SEND = 1
    WRITE = 2


REQUEST_ATTRIBUTES = (
    "state",
    "type",
    "pkey",
    "dest_ip",
    "path_mtu",
    "access",
    "min_rnr_timer",
    "pd",
    "log_rq_stride",
    "srq",
    "srqn",
    "max_dest_rd_atomic",
    "rq_cqn",
    "dest_qpn",
    "qpn",
    "qkey",
)
"""Fields of the QP context that count for requests."""

RESPONSE_ATTRIBUTES = ("state", "type", "qpn", "pkey", "dest_ip", "path_mtu", "pd", "sq_base", "log_sq_size")
"""And for responses."""


OPENING = (0, 4, 5, 9, 11, 0x17)
"""Low 5 bits of the opcodes that need a receive WQE which their message has not had: SEND FIRST and ONLY, also with
immediate or invalidate, RDMA WRITE LAST and ONLY with immediate."""


class SharedWqe(enum.Enum, shape=2):
    """What a QP has of its shared receive queue."""

    NONE = 0
    HELD = 1  # the message under way has the WQE `index` of the table; of UC the next one gets it, if that was dropped
    FOUND = 2  # likewise, and the QP's own ring stands at it
    TOLD = 3  # the QP is in ERR, has nothing, and has said that it takes no more


RequestState = data.StructLayout(
    {
        "epsn": PSN_BITS,  # PSN expected
        "msn": 24,  # messages completed
        "index": 16,  # next receive WQE; of a shared receive queue the one that the QP has
        "wqe": SharedWqe,
        "message": Message,
        "nak_sent": 1,  # a NAK for `epsn` is out, and what is ahead of it is not answered again
        "dead": 1,  # a fatal NAK is out
        "taken": 5,  # entries put into the response ring, modulo 32
        "mixed": 1,  # duplicates may be among those that are not answered yet
        "asked": 1,  # the newest packet executed was a READ or an atomic
        "sequence_error": SequenceError,
    }
)
"""How far the peer's requests are."""

RecvPlace = data.StructLayout({"address": 64, "key": 32, "left": 32, "received": 32, "sge": range(SGE_MAX + 1)})
"""Where the next byte of the peer's message goes. ``left`` bytes fit behind ``address``: of the whole message, or of
the scatter/gather entry; ``sge`` is the next entry."""

ReadProgress = data.StructLayout(
    {
        "active": 1,  # of the oldest that is not finished some has come; if not, the fields below are undefined
        "expected": PSN_BITS,
        "left": 32,  # bytes still to come
        "place": Place,
    }
)
"""How far a QP's own READs and atomics are."""

ReceivedRequest = data.StructLayout(
    {
        "work": Work,
        "action": QpControl.members["action"],
        "qp": 12,
        "accept": 1,
        "unreliable": 1,  # a packet of UC or UD
        "datagram": 1,  # of UD
        "opens": 1,  # a packet that needs a receive WQE which its message has not had before
        "transport": TransportHeader,
        "swap": 64,
        "compare": 64,
        "source": Source,  # of UD
        "attributes": fields_layout(QP_CONTEXT, REQUEST_ATTRIBUTES),
        "state": RequestState,
        "place": RecvPlace,
    }
)
"""Lookup to responder. ``accept``: the QP exists, is in a state to take the packet, and the packet's P_Key and source
are its peer's. If not, the packet is discarded. It holds from the second cycle on in which the packet is there."""

ReceivedResponse = data.StructLayout(
    {
        "work": Work,
        "action": QpControl.members["action"],
        "qp": 12,
        "accept": 1,
        "transport": TransportHeader,
        "attributes": fields_layout(QP_CONTEXT, RESPONSE_ATTRIBUTES),
        "progress": ReadProgress,
    }
)
"""Lookup to response receiver. A token is RESET, SAVE or LOAD."""
