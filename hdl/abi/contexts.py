"""Contexts of QPs and CQs: attributes that the command block writes, 32 bits a word.

Each block that needs attributes keeps a copy of the words it reads (:class:`verbena.hdl.stream.table.Table`); the
command block alone writes them.
"""

from enum import IntEnum

from .record import Field, Record

__all__ = ["CQ_CONTEXT", "CQ_CONTEXT_WORDS", "QP_CONTEXT", "QP_CONTEXT_WORDS", "QP_DYNAMIC", "QpState", "QpType"]

QP_CONTEXT = Record(
    "qp_context",
    128,
    [
        # word 0: what every transport block wants
        Field("state", 4, "enum ibv_qp_state"),
        Field("type", 4, "enum ibv_qp_type: RC 2, UC 3, UD 4, RAW_PACKET 8"),
        Field("path_mtu", 4, "enum ibv_mtu: 1 (256 bytes) to 5 (4096)"),
        Field("access", 4, "qp_access_flags: bits 1 REMOTE_WRITE, 2 REMOTE_READ, 3 REMOTE_ATOMIC"),
        Field("min_rnr_timer", 5, "code sent in an RNR NAK"),
        Field("timeout", 5, "local ACK timeout, 4.096 us << timeout; 0: none"),
        Field("retry_count", 3),
        Field("rnr_retry", 3),
        # word 1
        Field("pd", 24),
        Field("_", 8),
        # word 2
        Field("dest_qpn", 24, "of UD the own number, which goes into the DETH"),
        Field("traffic_class", 8, "IPv4 TOS"),
        # word 3
        Field("pkey", 16),
        Field("source_port", 16, "UDP source port"),
        # words 4, 5
        Field("dest_mac", 48, "first byte on the wire is the most significant"),
        Field("hop_limit", 8, "IPv4 TTL"),
        Field("_", 8),
        # word 6, 7
        Field("dest_ip", 32, "IPv4 address, first byte on the wire is the most significant"),
        Field("_", 32),
        # word 8, 9: send queue
        Field("sq_base", 64, "bus address of the ring, 4 KiB aligned"),
        # word 10
        Field("log_sq_size", 4, "entries, 0 to 15"),
        Field("log_sq_stride", 4, "6 or 7"),
        Field("_", 24),
        # word 11
        Field("sq_cqn", 16),
        Field("rq_cqn", 16),
        # word 12, 13: receive queue
        Field("rq_base", 64, "bus address of the ring, 4 KiB aligned"),
        # word 14
        Field("log_rq_size", 4, "entries, 0 to 15"),
        Field("log_rq_stride", 4, "4 to 7; with an SRQ that of its WQEs"),
        Field("srq", 1, "receive WQEs come from a shared receive queue; rq_base is then that of its table of WQEs"),
        Field("_", 7),
        Field("srqn", 8, "its number"),
        Field("_", 8),
        # word 15
        Field("max_rd_atomic", 8),
        Field("max_dest_rd_atomic", 8),
        Field("srq_limit", 16, "of an SRQ: an event when fewer WQEs than that are left, once; 0: none"),
        # words 16 to 19
        Field("sq_psn", 24, "first PSN sent"),
        Field("_", 8),
        Field("rq_psn", 24, "first PSN expected"),
        Field("_", 8),
        Field("qkey", 32, "UD: what a packet must bring"),
        Field("qpn", 24, "own number; that of the command counts, whatever stands here"),
        Field("_", 8),
        # words 20 to 23: with a table of GIDs
        Field("dest_gid_high", 64, "with a table of GIDs: upper half of the peer's GID, of IPv4 0"),
        Field("dest_gid_middle", 32, "next 32 bits of it, of IPv4 0xffff; dest_ip is the lowest"),
        Field("flow_label", 20, "IPv6 flow label"),
        Field("_", 4),
        Field("sgid_index", 4, "row of the own GID; what comes for another one is not for this QP"),
        Field("_", 4),
    ],
    "QP attributes. The context of an SRQ is such a record, too, of which "
    "`rq_base`, `log_rq_size`, `log_rq_stride` (5 to 7), `srq_limit`, and a `state` other than RESET count.",
)

QP_CONTEXT_WORDS = QP_CONTEXT.size // 4
"""32-bit words of a ``qp_context``."""

CQ_CONTEXT = Record(
    "cq_context",
    16,
    [
        Field("base", 64, "bus address of the ring, 4 KiB aligned"),
        Field("log_size", 4, "entries, 0 to 15"),
        Field("valid", 1),
        Field("_", 27),
        # word 3: which events, and when
        Field("cq_count", 16, "with moderation: so many CQEs bring an event; 0: `cq_period` alone does"),
        Field("cq_period", 12, "with moderation: 1.024 us until it comes at the latest; 0: it comes at the first CQE"),
        Field("comp_vector", 4, "event queue of its completion events"),
    ],
    "CQ attributes.",
)

CQ_CONTEXT_WORDS = CQ_CONTEXT.size // 4
"""32-bit words of a ``cq_context``."""

QP_DYNAMIC = Record(
    "qp_dynamic",
    16,
    [
        Field("sq_psn", 24, "next PSN to send"),
        Field("_", 8),
        Field("rq_psn", 24, "next PSN expected"),
        Field("_", 8),
        Field("sq_index", 16, "next WQE to send"),
        Field("rq_index", 16, "next receive WQE to use"),
        Field("sq_completed", 16, "oldest WQE that is not complete"),
        Field("_", 16),
    ],
    "What QUERY_QP adds to the attributes: fields that requester, responder and completer own.",
)


class QpState(IntEnum):
    """``enum ibv_qp_state``."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class QpType(IntEnum):
    """``enum ibv_qp_type``."""

    RC = 2
    UC = 3
    UD = 4
    RAW_PACKET = 8
