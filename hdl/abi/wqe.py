"""Work queue entries.

A send WQE has 64 to 512 bytes, as the QP's ``log_sq_stride`` says, and no more than the engine takes (``transports``):
64 bytes hold two scatter/gather entries or 32 bytes of inline data, 128 bytes six or 96, 256 bytes 14 or 224, 512 bytes
16 or 480. A receive WQE is ``1 << log_rq_stride`` bytes of scatter/gather entries and nothing
else; entries of length 0 are
skipped, so unused ones are zero. In front of those of a WQE of a shared receive queue stand 16 bytes, SRQ_WQE.
``wr_id`` stays with the driver: a CQE names the WQE by its index.
"""

from enum import IntEnum

from .record import Field, Record

__all__ = [
    "GRH_BYTES",
    "INLINE_OFFSET",
    "KEY_WQE",
    "PUSH_MAX",
    "RECEIVE_MAX",
    "SEND_WQE",
    "SGE",
    "SGE_MAX",
    "SGE_OFFSET",
    "SRQ_WQE",
    "UD_ADDRESS",
    "UD_ROUTE",
    "WQE_DEFAULT",
    "WQE_SIZES",
    "SendFlag",
    "SendOpcode",
    "receive_bytes",
    "send_sges",
]

WQE_SIZES = (128, 256, 512)
"""Bytes that the largest send WQE of an engine may have. Of a receive WQE it is the same, but not more than 256."""

WQE_DEFAULT = 128
"""Those of the standard configuration."""

PUSH_MAX = 128
"""Bytes of a send WQE that are pushed, at most: of a larger one all behind must be zero."""

SGE = Record(
    "sge",
    16,
    [
        Field("address", 64, "virtual address of the first byte"),
        Field("length", 32, "bytes; 0 moves nothing, and then the key is not looked at"),
        Field("lkey", 32, "local key: MPT index (24 bits) and variant (low 8 bits)"),
    ],
    "Scatter/gather entry.",
)

SEND_WQE = Record(
    "send_wqe",
    64,
    [
        Field("opcode", 8, "enum ibv_wr_opcode"),
        Field("flags", 8, "enum ibv_send_flags: fence 1, signaled 2, solicited 4, inline 8"),
        Field("sge_count", 8, "scatter/gather entries that follow at byte 32; 0 with inline data"),
        Field("traffic_class", 8, "UD: IPv4 TOS"),
        Field("immediate", 32, "ImmDt, or of SEND_WITH_INV the key to be invalidated (IETH), in wire byte order"),
        Field("remote_address", 64, "RETH virtual address; of UD see UD_ADDRESS"),
        Field("rkey", 32, "RETH remote key; UD: the peer's IPv4 address"),
        Field("length", 32, "bytes of the message, 0 to 2^31: what the entries, or the inline data, hold in sum"),
        Field("dest_mac", 48, "UD: the peer's MAC address, first byte on the wire most significant"),
        Field("source_port", 16, "UD: UDP source port"),
        Field("sge0_address", 64),
        Field("sge0_length", 32),
        Field("sge0_lkey", 32),
        Field("compare_add", 64, "atomics; otherwise sge1_address"),
        Field("swap", 64, "atomics; otherwise sge1_length and sge1_lkey"),
    ],
    "Send WQE. From byte 32 on stand the scatter/gather entries, or the inline data; atomics have one entry and their "
    "operands.",
)

KEY_WQE = Record(
    "key_wqe",
    64,
    [
        Field("opcode", 8, "LOCAL_INV, BIND_MW or REG_MR"),
        Field("flags", 8, "signaled 2"),
        Field("sge_count", 8, "0"),
        Field("access", 8, "enum ibv_access_flags of the region or window"),
        Field("old_key", 32, "BIND_MW: the key that the window of type 1 has had"),
        Field("address", 64, "virtual address of the first byte"),
        Field("key", 32, "LOCAL_INV: the key to be invalidated; else the key that the region or window gets"),
        Field("message_length", 32, "0"),
        Field("_", 64),
        Field(
            "length",
            64,
            "bytes of the region or window, 0 to 2^48 - 1; of BIND_MW 0: the window, of type 1, is bound to nothing",
        ),
        Field("message_entry", 32, "0"),
        Field("region", 32, "BIND_MW: key of the region"),
    ],
    "Send WQE that changes an entry of the MPT. It begins when all before it are complete, and those behind it begin "
    "when it is done.",
)

UD_ADDRESS = Record(
    "ud_address",
    8,
    [
        Field("dest_qpn", 24, "the peer's QP"),
        Field("hop_limit", 8, "IPv4 TTL"),
        Field("qkey", 32, "the peer's Q_Key"),
    ],
    "What stands in the place of ``remote_address`` in a WQE of a UD QP.",
)

UD_ROUTE = Record(
    "ud_route",
    16,
    [
        Field("dest_gid_high", 64, "upper half of the peer's GID, of IPv4 0"),
        Field("dest_gid_middle", 32, "next 32 bits of it, of IPv4 0xffff; rkey is the lowest"),
        Field("flow_label", 20, "IPv6 flow label"),
        Field("_", 4),
        Field("sgid_index", 4, "row of the own GID"),
        Field("_", 4),
    ],
    "With a table of GIDs: the last 16 bytes of a WQE of a UD QP, which so holds one scatter/gather entry, or 16 bytes "
    "of inline data, less than that of another.",
)

SRQ_WQE = Record(
    "srq_wqe",
    16,
    [
        Field("id", 16, "which WQE it is: its place in the table of WQEs"),
        *(Field("_", width) for width in (16, 32, 64)),
    ],
    "The beginning of a WQE of a shared receive queue; scatter/gather entries follow. The WQE stands in two places. In "
    "the ring it is free for another one as soon as it is taken. As number ``id`` it stands in a table that all QPs "
    "with the SRQ have as their ``rq_base``, until it is complete: the engine reads it there once more if a message "
    "goes on in it. A CQE names it by its ``id``.",
)

SGE_OFFSET = 32
"""Byte of a send WQE at which its scatter/gather entries begin."""

INLINE_OFFSET = SGE_OFFSET
"""Byte of a send WQE at which inline data begins."""

GRH_BYTES = 40
"""In front of each datagram in a receive buffer: a GRH, or the IPv6 header; of IPv4 the last 20 bytes are the IPv4
header. An engine with a table of GIDs writes them; another leaves them free, and the driver writes them."""

SGE_MAX = 16
"""Most scatter/gather entries of a WQE."""

RECEIVE_MAX = 256
"""Bytes of the largest receive WQE of any engine."""


def send_sges(size):
    """Scatter/gather entries that a send WQE of ``size`` bytes may have."""
    return min(SGE_MAX, (size - SGE_OFFSET) // SGE.size)


def receive_bytes(wqe_bytes):
    """Bytes of the largest receive WQE of an engine whose send WQEs have up to ``wqe_bytes``."""
    return min(RECEIVE_MAX, wqe_bytes)


class SendOpcode(IntEnum):
    """``enum ibv_wr_opcode`` of ``<infiniband/verbs.h>``."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    BIND_MW = 8
    SEND_WITH_INV = 9
    REG_MR = 32  # of kernels


class SendFlag(IntEnum):
    """``enum ibv_send_flags``."""

    FENCE = 1
    SIGNALED = 2
    SOLICITED = 4
    INLINE = 8
