"""What the parts of a :class:`.wqe_fetcher.RingPrefetcher` say to each other and to those who use it."""

from amaranth.lib import data

__all__ = ["BATCH", "RingIndex", "RingStatus"]

BATCH = 256
"""Most bytes of one read: long enough to hide the memory's latency, and no QP keeps the bus from others for long."""

RingIndex = data.StructLayout({"qp": 12, "index": 16})
"""A free-running index into a QP's ring."""

RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
"""WQEs before ``producer`` are posted, before ``fetched`` can be read. ``error``: the ring is unusable until RESET."""
