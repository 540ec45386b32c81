"""Ports between clients, each of which reads or writes for one purpose, and the arbiter of the AXI channels."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BurstRequest", "ReadPort", "WriteBeat", "WritePort", "burst_limit"]

PAGE_BITS = 12
"""No burst crosses 4 KiB (AXI4, A3.4.1)."""

BurstRequest = data.StructLayout({"address": 64, "length": 8})
"""One AXI burst of whole, aligned beats; ``length`` is AxLEN, beats less one."""


def burst_limit(data_width):
    """Most beats a burst has: 256, and no more than 4 KiB."""
    return min(256, (8 << PAGE_BITS) // data_width)


class ReadPort(wiring.Signature):
    """A client of :class:`.arbiter.ReadArbiter`, the client's view.

    Members
    -------
    burst : stream of ``BurstRequest``
        The client has reserved room for all of its beats.
    valid : 1
        A beat arrives, and is taken. Beats come in order of the client's bursts, 2 cycles after theirs at the earliest.
    data, error, last
        The beat; its RRESP is not OKAY; it ends its burst.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "burst": Out(stream.Signature(BurstRequest)),
                "valid": In(1),
                "data": In(data_width),
                "error": In(1),
                "last": In(1),
            }
        )


class WriteBeat(data.StructLayout):
    """``data``, ``strobe`` with a bit a byte, and ``last`` of a burst."""

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__({"data": data_width, "strobe": data_width // 8, "last": 1})


class WritePort(wiring.Signature):
    """A client of :class:`.arbiter.WriteArbiter`, the client's view.

    Members
    -------
    burst : stream of ``BurstRequest``
    beat : stream of ``WriteBeat``
        Beats in order of the bursts; they may be valid before the burst is taken, and move with it or after it.
    answer, error : 1
        A burst is answered, in order; its BRESP is not OKAY.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "burst": Out(stream.Signature(BurstRequest)),
                "beat": Out(stream.Signature(WriteBeat(data_width))),
                "answer": In(1),
                "error": In(1),
            }
        )
