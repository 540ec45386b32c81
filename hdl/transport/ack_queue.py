"""The answers that wait to be sent: of each QP the latest one."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import Queue
from ..stream.ram import Ram
from .layouts import Ack
from .psn import psn_before

__all__ = ["AckQueue"]

Entry = data.StructLayout({"psn": 24, "msn": 24, "syndrome": 8, "void": 1})
Before = data.StructLayout({"nak": 1, "psn": 24, "turn": 1})


class AckQueue(wiring.Component):
    """Keeps one answer a QP: a newer one takes the place of one that was not yet sent. So the queue never fills, and
    reception never waits for transmission; QPs are served in the order in which they came to have an answer.

    Taking the place of an answer loses nothing, because each answers for all packets before its own, too. One thing
    must not get lost: that a NAK asked for something. So an ACK does not take the place of a NAK that waits, unless it
    is for the NAK's packet or a later one, which then was executed after all. (It is older if a duplicate arrived
    meanwhile.) A NAK always takes the place of what waits; after a fatal one nothing follows, which the acknowledger
    sees to.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    answer : Ack
        ``qp`` must stand there since 2 cycles before ``put``, and 3 cycles must pass between two answers.
    put : 1
        Strobe: here is an answer.
    clear : 1
        With ``put``: the QP has no answer any more.
    o : stream of ``Ack``
        An answer comes out 5 cycles after it went in, and there is one each 4 cycles.
    holds : 1
        The answer that is fetched, or waits at ``o``, is of ``answer.qp``.
    """

    def __init__(self, qps):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        super().__init__(
            {
                "answer": In(Ack),
                "put": In(1),
                "clear": In(1),
                "o": Out(stream.Signature(Ack)),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.order = order = Queue(range(self.qps), self.qps)
        m.submodules.entries = entries = Ram(Entry, self.qps)
        m.submodules.before = before = Ram(Before, self.qps)
        # A QP waits, and stands in `order` just once, while the `turn` of its answer differs from that of the last one
        # taken from there.
        m.submodules.sent = sent = memory.Memory(shape=1, depth=self.qps, init=[])
        sent_turn = sent.read_port(domain="comb")
        order_turn = sent.read_port(domain="comb")
        sent_write = sent.write_port()

        answer = self.answer
        asked = Signal(range(self.qps))
        is_nak = Signal()
        waits = Signal()
        keep = Signal()
        put = Signal()
        m.d.comb += [
            asked.eq(answer.qp),
            before.r_addr.eq(asked),
            sent_turn.addr.eq(asked),
            is_nak.eq(answer.syndrome[5:7] != 0),
            waits.eq(before.r_data.turn != sent_turn.data),
            keep.eq(before.r_data.nak & waits & ~is_nak & ~self.clear & psn_before(answer.psn, before.r_data.psn)),
            put.eq(self.put & ~keep),
            before.w_addr.eq(asked),
            before.w_data.nak.eq(is_nak & ~self.clear),
            before.w_data.psn.eq(answer.psn),
            before.w_data.turn.eq(Mux(self.clear, before.r_data.turn, ~sent_turn.data)),
            before.w_en.eq(put),
            entries.w_addr.eq(asked),
            entries.w_data.psn.eq(answer.psn),
            entries.w_data.msn.eq(answer.msn),
            entries.w_data.syndrome.eq(answer.syndrome),
            entries.w_data.void.eq(self.clear),
            entries.w_en.eq(put),
            order.i.payload.eq(asked),
            order.i.valid.eq(put & ~waits & ~self.clear),
        ]

        qp = Signal(range(self.qps))
        entry = entries.r_data
        m.d.comb += [
            entries.r_addr.eq(order.o.payload),
            order_turn.addr.eq(order.o.payload),
            sent_write.addr.eq(order.o.payload),
            sent_write.data.eq(~order_turn.data),
            self.o.payload.qp.eq(qp),
        ]
        with m.FSM() as fsm:
            with m.State("TAKE"):
                m.d.sync += qp.eq(order.o.payload)
                # An entry that is read while it is written is undefined.
                with m.If(order.o.valid & ~(self.put & (order.o.payload == asked))):
                    m.d.comb += [order.o.ready.eq(1), sent_write.en.eq(1)]
                    m.next = "READ"
            with m.State("READ"):
                m.next = "SHOW"
            with m.State("SHOW"):
                m.d.sync += [
                    self.o.payload.psn.eq(entry.psn),
                    self.o.payload.msn.eq(entry.msn),
                    self.o.payload.syndrome.eq(entry.syndrome),
                ]
                with m.If(entry.void):
                    m.next = "TAKE"
                with m.Else():
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "TAKE"
        m.d.comb += self.holds.eq(~fsm.ongoing("TAKE") & (qp == asked))
        return m
