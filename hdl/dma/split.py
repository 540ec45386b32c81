"""Cutting a request into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.transfer import LENGTH_BITS, ReadRequest
from .port import PAGE_BITS, BurstRequest, burst_limit

__all__ = ["Splitter"]


class Splitter(wiring.Component):
    """Splits each request into bursts that end at multiples of ``limit`` beats.

    Bursts consist of whole beats: the first and the last may hold bytes before and behind the request. ``i`` is taken
    with the request's last burst, so whoever feeds it may look at further fields of the request meanwhile. A burst
    comes out 1 cycle after its request; a request takes 1 cycle and 1 a burst.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    limit : int or None
        Most beats of a burst, a power of two; None: 256 beats or 4 KiB, whatever is less.
    granularity : int
        1 or 8: address and length are multiples of it.

    Members
    -------
    i : stream of ``ReadRequest``
        ``length`` is 1 to 4096 bytes (0 is not allowed).
    o : stream of ``BurstRequest``
    start, end
        With ``o``: byte within the first beat at which the request starts (0 but in the first burst), and byte within
        the last beat of the burst that is its last one; in units of ``granularity``.
    last : 1
        With ``o``: the request's last burst.
    """

    def __init__(self, data_width, *, limit=None, granularity=1):
        most = burst_limit(data_width)
        if limit is None:
            limit = most
        if limit < 1 or limit > most or limit & limit - 1:
            raise ValueError(f"limit must be a power of two up to {most}, not {limit!r}")
        if granularity not in (1, 8):
            raise ValueError(f"granularity must be 1 or 8, not {granularity!r}")
        self.data_width = data_width
        self.limit = limit
        self.granularity = granularity
        lane = data_width // 8 // granularity
        super().__init__(
            {
                "i": In(stream.Signature(ReadRequest)),
                "o": Out(stream.Signature(BurstRequest)),
                "start": Out(range(lane)),
                "end": Out(range(lane)),
                "last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        unit_bits = ceil_log2(self.granularity)
        lane_bits = ceil_log2(self.data_width // 8 // self.granularity)
        beat_bits = ceil_log2(self.limit)
        block_bits = lane_bits + beat_bits  # units of a block, at whose end bursts end
        blocks_bits = PAGE_BITS - unit_bits - block_bits

        # The end of the request, counted in units from the start of its first block: once known, nothing is left to
        # subtract from, and the bursts before the last one only count blocks down.
        offset = self.i.payload.address[unit_bits : unit_bits + block_bits]
        sum_bits = max(block_bits, LENGTH_BITS - unit_bits) + 1
        sum_ = Signal(sum_bits)
        end = Signal(block_bits)
        left = Signal(sum_bits - block_bits)
        busy = Signal()
        first = Signal()
        block = Signal(blocks_bits + 1)  # within the page, and a bit more
        m.d.comb += sum_.eq(offset + self.i.payload.length[unit_bits:] - 1)

        start_beat = Signal(beat_bits)
        end_beat = Signal(beat_bits)
        m.d.comb += [
            self.last.eq(left == 0),
            start_beat.eq(offset[lane_bits:] & first.replicate(beat_bits)),
            end_beat.eq(end[lane_bits:] | (~self.last).replicate(beat_bits)),
            self.start.eq(offset[:lane_bits] & first.replicate(lane_bits)),
            self.end.eq(end[:lane_bits] | (~self.last).replicate(lane_bits)),
            self.o.valid.eq(busy),
            self.o.payload.page.eq(self.i.payload.address[PAGE_BITS:]),
            self.o.payload.next.eq(block[blocks_bits]),
            self.o.payload.offset.eq(Cat(Const(0, unit_bits + lane_bits), start_beat, block[:blocks_bits])),
            self.o.payload.length.eq(end_beat - start_beat),
            self.i.ready.eq(busy & self.o.ready & self.last),
        ]
        with m.If(busy):
            with m.If(self.o.ready):
                m.d.sync += [busy.eq(~self.last), first.eq(0), left.eq(left - 1), block.eq(block + 1)]
        with m.Elif(self.i.valid):
            m.d.sync += [
                busy.eq(1),
                first.eq(1),
                Cat(end, left).eq(sum_),
                block.eq(self.i.payload.address[unit_bits + block_bits : PAGE_BITS]),
            ]
        return m
