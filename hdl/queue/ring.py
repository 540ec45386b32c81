"""What the parts of a :class:`.wqe_fetcher.RingPrefetcher` say to each other and to those who use it."""

from amaranth.lib import data

from ..abi.wqe import WQE_MAX

__all__ = ["BATCH", "PUSH_WORDS", "PushDoorbell", "PushWord", "RingIndex", "RingStatus"]

BATCH = 256
"""Most bytes of one read: long enough to hide the memory's latency, and no QP keeps the bus from others for long."""

RingIndex = data.StructLayout({"qp": 12, "index": 16})
"""A free-running index into a QP's ring."""

PushDoorbell = data.StructLayout({"qp": 12, "index": 16, "push": 1})
"""A producer index. ``push``: the WQE before it has been pushed."""

PUSH_WORDS = WQE_MAX // 4
"""Words of 32 bits of the largest WQE that can be pushed."""

PushWord = data.StructLayout({"qp": 12, "word": range(PUSH_WORDS), "data": 32})
"""32 bits of a WQE, pushed by the page of ``qp``."""

RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
"""WQEs before ``producer`` are posted, before ``fetched`` can be read. ``error``: the ring is unusable until RESET."""
