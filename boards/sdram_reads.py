"""What comes back from SDRAM chips."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data
from amaranth.utils import ceil_log2
from verbena.hdl.dma.axi import Response
from verbena.hdl.stream.fifo import Queue

__all__ = ["SdramReads"]

READ_AHEAD = 16
"""Beats that have been asked for and not been taken."""


class SdramReads:
    """The words that a controller in ``m`` reads: put together to beats, which wait for their user.

    Parameters
    ----------
    m : Module
    axi : ``Axi4``, flipped
    dq_i : 32
        Shows a word ``read_delay`` cycles behind the pins' READ.
    access : record
        That which is under way, with ``id``; only what is neither ``write`` nor ``bridge`` becomes beats.
    read_delay : int

    Members
    -------
    ask, ask_last : 1
        For a word, and for the last one of a burst. To be driven.
    ask_beat : 1
        With a beat's first word. To be driven.
    full : 1
        No beat may be asked for.
    busy : 1
        A word is on its way.
    came : 1
        One is there, and in ``word`` from the next cycle on.
    word : 32
    """

    def __init__(self, m, axi, dq_i, access, read_delay):
        self.m = m
        width = len(dq_i)
        lanes = len(axi.rdata) // width
        item = data.StructLayout({"data": len(axi.rdata), "id": len(axi.rid), "last": 1, "error": 1})
        m.submodules.beats = self._beats = beats = Queue(item, READ_AHEAD)
        self.ask, self.ask_last, self.ask_beat = Signal(name="ask"), Signal(name="ask_last"), Signal(name="ask_beat")
        asked = Signal(range(READ_AHEAD + 1))  # beats
        returning, lasts = Signal(read_delay + 1), Signal(read_delay + 1)
        self.full, self.busy, self.came = asked == READ_AHEAD, returning.any(), returning[-1]
        self.word = Signal(width)
        lane, gathered = Signal(max(1, ceil_log2(lanes))), Signal(len(axi.rdata))
        m.d.sync += [
            returning.eq(Cat(self.ask, returning)),
            lasts.eq(Cat(self.ask_last, lasts)),
            asked.eq(asked + self.ask_beat - (axi.rvalid & axi.rready)),
            beats.i.valid.eq(0),
        ]
        with m.If(self.came):
            m.d.sync += self.word.eq(dq_i)
        with m.If(self.came & ~access.bridge & ~access.write):
            m.d.sync += [
                gathered.eq(Cat(gathered, dq_i)[width:]),
                lane.eq(lane + 1),
                beats.i.valid.eq(lane == lanes - 1),
                beats.i.payload.last.eq(lasts[-1]),
                beats.i.payload.error.eq(0),
            ]
        m.d.comb += [
            beats.i.payload.data.eq(gathered),
            beats.i.payload.id.eq(access.id),
            axi.rvalid.eq(beats.o.valid),
            beats.o.ready.eq(axi.rready),
            axi.rdata.eq(beats.o.payload.data),
            axi.rid.eq(beats.o.payload.id),
            axi.rlast.eq(beats.o.payload.last),
            axi.rresp.eq(Mux(beats.o.payload.error, Response.DECERR, Response.OKAY)),
        ]

    def refuse(self, last):
        """A beat with an error, instead of words."""
        self.m.d.comb += self.ask_beat.eq(1)
        self.m.d.sync += [
            self._beats.i.valid.eq(1),
            self._beats.i.payload.last.eq(last),
            self._beats.i.payload.error.eq(1),
        ]
