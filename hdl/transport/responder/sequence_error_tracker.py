"""Whether the requester has gone back after a PSN sequence error, and the missing packet was lost again."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.psn import PSN_BITS

__all__ = ["SequenceError", "SequenceErrorTracker"]

NEAR_BITS = 8
"""A gap is watched if its first packet is less than 2**8 ahead of the one expected: so much is kept a QP. Otherwise the
requester's timer has to find out."""

SequenceError = data.StructLayout({"offset": NEAR_BITS, "others": 1, "again": 1})
"""What came since the NAK. ``offset``: how far ahead the first packet was, 0 if that is not known; ``others``: another
one came; ``again``: the packet before was the first one, once more."""


class SequenceErrorTracker(wiring.Component):
    """There is one NAK for a gap. But if the requester goes back and the missing packet is lost once more, only another
    NAK spares its timer; this block finds that out from the packets ahead of the one expected.

    The gap is a new one if its first packet comes again after others did, and its neighbour directly behind it: that
    the requester has gone back is the simplest explanation. One packet of the gap that is late, early or doubled is no
    reason: it is either not the first, or not followed by the first one's neighbour. (Two faults together may be taken
    for a return, which costs the requester one retry.)

    Inputs are sampled each cycle; outputs belong to the inputs of the cycle before, but for ``state``, which must have
    stayed.

    Members
    -------
    distance
        How far the packet is ahead of the one expected, modulo 2**24.
    state : SequenceError
        Before the packet.
    renewed : 1
        The packet tells that the gap is a new one.
    next : SequenceError
        After the packet, if it is ahead, and the gap was known or is answered with a NAK now.
    """

    distance: In(PSN_BITS)
    state: In(SequenceError)
    renewed: Out(1)
    next: Out(SequenceError)

    def elaborate(self, platform):
        m = Module()
        low = Signal(NEAR_BITS)
        near = Signal()
        first = Signal()
        second = Signal()
        m.d.sync += [
            low.eq(self.distance),
            near.eq(self.distance[NEAR_BITS:] == 0),
            first.eq(self.distance[:NEAR_BITS] == self.state.offset),
            second.eq(self.distance[:NEAR_BITS] == (self.state.offset + 1)[:NEAR_BITS]),
        ]
        m.d.comb += [
            # An offset of 0 was never seen again.
            self.renewed.eq(self.state.again & near & second),
            self.next.offset.eq(self.state.offset),
            self.next.others.eq(self.state.others | ~(near & first)),
            self.next.again.eq(self.state.others & near & first),
        ]
        with m.If(self.renewed | (self.state.offset == 0)):
            m.d.comb += self.next.eq(0)
            with m.If(near):
                m.d.comb += self.next.offset.eq(low)
        return m
