"""What a response changes, once all that it completes is complete."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .response_meaning import Meaning

__all__ = ["ResponseEffect"]


class ResponseEffect(wiring.Component):
    """Combinational: how far a QP is after a response that counts, and whether the response asks for more.

    Whatever it acknowledges restores the retries. When the last packet is acknowledged, the waiting after an RNR NAK is
    over: there is nothing to send again.

    Members
    -------
    meaning : ``Meaning``
        The response.
    newest : 1
        It names the last packet sent.
    moved : 1
        It has completed messages.
    beyond : 1
        Its ``target`` is not yet the first packet that is not acknowledged.
    stop : 1
        The oldest WQE is a READ or atomic that has to be answered, and the response is not its answer.
    at_failed, drain : 1
        The oldest WQE has failed; a drain waits.
    acknowledged : 1
        All before ``target`` have arrived.
    progressed : 1
        More is acknowledged than before.
    rested : 1
        So is all that was sent.
    implied : 1
        It is an implied NAK.
    more : 1
        Something is to be done about the response, or about the drain.
    """

    meaning: In(Meaning)
    newest: In(1)
    moved: In(1)
    beyond: In(1)
    stop: In(1)
    at_failed: In(1)
    drain: In(1)
    acknowledged: Out(1)
    progressed: Out(1)
    rested: Out(1)
    implied: Out(1)
    more: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.acknowledged.eq(~self.stop),
            self.progressed.eq(self.moved | (self.beyond & ~self.stop)),
            self.rested.eq(self.newest & self.meaning.inclusive & ~self.stop),
            self.implied.eq(self.stop & self.beyond & ~self.meaning.nak & ~self.at_failed),
            self.more.eq(self.at_failed | self.meaning.nak | self.implied | self.drain),
        ]
        return m
