"""What the parts of a :class:`.wqe_fetcher.RingPrefetcher` say to each other and to those who use it."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from ..abi.qpc import INDEX_BITS
from ..abi.wqe import PUSH_MAX, WQE_DEFAULT, receive_bytes

__all__ = [
    "BATCH",
    "PUSH_WORDS",
    "RECEIVE_BATCH",
    "PushDoorbell",
    "PushWord",
    "RingIndex",
    "RingStatus",
    "receive_batch",
    "ring_flight",
    "send_batch",
    "word_address",
]

BATCH = 256
"""Most bytes of one read of send WQEs: few reads hide the memory's latency, and no QP keeps the bus from others for
long."""

RECEIVE_BATCH = 128
"""The same of receive WQEs, which are smaller, and wait on chip until somebody sends."""

RingIndex = data.StructLayout({"qp": INDEX_BITS, "index": 16})
"""A free-running index into a QP's ring. ``qp`` is the QP's slot; of a doorbell that has just been rung, its index."""

PushDoorbell = data.StructLayout({"qp": INDEX_BITS, "index": 16, "push": 1})
"""A producer index. ``push``: the WQE before it has been pushed."""

PUSH_WORDS = PUSH_MAX // 4
"""Words of 32 bits of the largest WQE that can be pushed."""

PushWord = data.StructLayout({"qp": INDEX_BITS, "word": range(PUSH_WORDS), "data": 32})
"""32 bits of a WQE, pushed by the page of ``qp``."""

RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
"""WQEs before ``producer`` are posted, before ``fetched`` can be read. ``error``: the ring is unusable until RESET."""


def word_address(blocks, size):
    """Layout of an address of fetched WQEs: an 8-byte word in one of ``blocks`` blocks of ``size`` bytes."""
    for name, value in ("blocks", blocks), ("size", size):
        if not isinstance(value, int) or value < 2 or value & value - 1:
            raise ValueError(f"{name} must be a power of two, at least 2, not {value!r}")
    return data.StructLayout({"word": ceil_log2(size // 8), "block": ceil_log2(blocks)})


def ring_flight(rings, blocks, size):
    """Layout of a read of WQEs under way: of which ring, at which word of the blocks its first one is put, and the
    index behind its last one."""
    return data.StructLayout({"qp": ceil_log2(rings), "word": ceil_log2(size // 8) + ceil_log2(blocks), "end": 16})


def send_batch(wqe_bytes=WQE_DEFAULT):
    """:data:`BATCH`, where send WQEs have up to ``wqe_bytes``."""
    return max(BATCH, wqe_bytes)


def receive_batch(wqe_bytes=WQE_DEFAULT):
    """:data:`RECEIVE_BATCH`, where send WQEs have up to ``wqe_bytes``."""
    return max(RECEIVE_BATCH, receive_bytes(wqe_bytes))
