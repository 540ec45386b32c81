"""Doorbells of a queue pair that is away for a while."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DoorbellHold"]


class DoorbellHold(wiring.Component):
    """Passes doorbells on; of the QP that is ``closed`` it keeps the last one, and passes it on when the QP is back.

    A doorbell says how far the driver has posted, so the last one says what all of them do.

    Parameters
    ----------
    shape : shape-like
        Of a doorbell, with a field ``qp``.

    Members
    -------
    i, o : streams of ``shape``
    closed, closed_qp : 1, 12
    """

    def __init__(self, shape):
        self.shape = shape
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "closed": In(1),
                "closed_qp": In(12),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kept, keeps = Signal(self.shape), Signal()
        back, aside = Signal(), Signal()  # what is kept goes on now, before all others; what comes is kept
        m.d.comb += [
            back.eq(keeps & ~(self.closed & (kept.qp == self.closed_qp))),
            aside.eq(self.closed & (self.i.payload.qp == self.closed_qp)),
            self.o.valid.eq(back | (self.i.valid & ~aside)),
            self.o.payload.eq(Mux(back, kept, self.i.payload)),
            self.i.ready.eq(~back & (aside | self.o.ready)),
        ]
        with m.If(back & self.o.ready):
            m.d.sync += keeps.eq(0)
        with m.Elif(~back & self.i.valid & aside):
            m.d.sync += [keeps.eq(1), kept.eq(self.i.payload)]
        return m
