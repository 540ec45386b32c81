"""Cutting a request into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.transfer import LENGTH_BITS, PAGE_BITS_MAX, ReadRequest
from .port import PAGE_BITS, BurstRequest, burst_limit

__all__ = ["Splitter"]


class Splitter(wiring.Component):
    """Splits each request into bursts that end at multiples of the longest burst: 256 beats or 4 KiB, whatever is less.

    Bursts consist of whole beats: the first and the last may hold bytes before and behind the request. ``i`` is taken
    with the request's last burst, so whoever feeds it may look at further fields of the request meanwhile. A burst
    comes out 1 cycle after its request; a request takes 1 cycle and 1 a burst.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    i : stream of ``ReadRequest``
        ``length`` is 1 to 4096 bytes (0 is not allowed). It lies within an aligned block of 1 GiB.
    o : stream of ``BurstRequest``
    start, end
        With ``o``: byte within the first beat at which the request starts (0 but in the first burst), and byte within
        the last beat of the burst that is its last one.
    last : 1
        With ``o``: the request's last burst.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "i": In(stream.Signature(ReadRequest)),
                "o": Out(stream.Signature(BurstRequest)),
                "start": Out(range(data_width // 8)),
                "end": Out(range(data_width // 8)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lane_bits = ceil_log2(self.data_width // 8)
        beat_bits = ceil_log2(burst_limit(self.data_width))
        block_bits = lane_bits + beat_bits  # bytes of a block, at whose end bursts end
        blocks_bits = PAGE_BITS - block_bits
        address = self.i.payload.address

        # The end of the request, counted from the start of its first block: once known, nothing is left to subtract
        # from, and the bursts before the last one only count blocks down.
        offset = address[:block_bits]
        sum_bits = max(block_bits, LENGTH_BITS) + 1
        sum_ = Signal(sum_bits)
        end = Signal(block_bits)
        left = Signal(sum_bits - block_bits)
        busy = Signal()
        first = Signal()
        block = Signal(blocks_bits + 1)  # within the page, and a bit more: a request touches two pages at most
        m.d.comb += sum_.eq(offset + self.i.payload.length - 1)

        start_beat = Signal(beat_bits)
        end_beat = Signal(beat_bits)
        page = Signal(PAGE_BITS_MAX - PAGE_BITS)
        m.d.comb += [
            start_beat.eq(offset[lane_bits:] & first.replicate(beat_bits)),
            end_beat.eq(end[lane_bits:] | (~self.last).replicate(beat_bits)),
            self.start.eq(offset[:lane_bits] & first.replicate(lane_bits)),
            self.end.eq(end[:lane_bits] | (~self.last).replicate(lane_bits)),
            self.o.valid.eq(busy),
            page.eq(address[PAGE_BITS:PAGE_BITS_MAX] + block[blocks_bits]),
            self.o.payload.address.eq(
                Cat(Const(0, lane_bits), start_beat, block[:blocks_bits], page, address[PAGE_BITS_MAX:])
            ),
            self.o.payload.length.eq(end_beat - start_beat),
            self.i.ready.eq(busy & self.o.ready & self.last),
        ]
        with m.If(busy):
            with m.If(self.o.ready):
                m.d.sync += [busy.eq(~self.last), first.eq(0), left.eq(left - 1), block.eq(block + 1)]
                m.d.sync += self.last.eq(left == 1)
        with m.Else():
            m.d.sync += [
                busy.eq(self.i.valid),
                first.eq(1),
                Cat(end, left).eq(sum_),
                self.last.eq(sum_[block_bits:] == 0),
                block.eq(address[block_bits:PAGE_BITS]),
            ]
        return m
