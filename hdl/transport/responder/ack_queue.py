"""The answers that wait to be sent: of each QP the latest one."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.ram import Ram
from ...stream.ready import ReadyQueue
from ..common.layouts import Ack
from ..common.psn import psn_before

__all__ = ["PACE", "AckAction", "AckQueue"]

PACE = 112
"""Cycles from one answer to the next while other packets wait: what 8 of the smallest messages and an ACK take on a
wire of 64 bits a cycle, so that one ACK answers for 8 of them, however many QPs there are, and no stream of larger
messages is held up."""

LULL = 15
"""Cycles for which no packet waits, until ACKs go freely: more than there are between two packets of a backlog."""

Entry = data.StructLayout({"psn": 24, "msn": 24, "syndrome": 8, "void": 1})
Before = data.StructLayout({"nak": 1, "psn": 24, "turn": 1})


class AckAction(enum.Enum, shape=2):
    """What there is to say to the queue about a QP."""

    ANSWER = 0  # here is an ACK or a NAK
    RELEASE = 1  # a response from `psn` on answers for what waits
    HOLD = 2  # nothing, but that `hold` may have changed
    CLEAR = 3  # the QP has no answer any more


class AckQueue(wiring.Component):
    """Keeps one answer a QP: a newer one takes the place of one that was not yet sent. So the queue never fills, and
    reception never waits for transmission; QPs are served in the order in which they came to have an answer.

    Taking the place of an answer loses nothing, because each answers for all packets before its own, too. One thing
    must not get lost: that a NAK asked for something. So an ACK does not take the place of a NAK that waits, unless it
    is for the NAK's packet or a later one, which then was executed after all. (It is older if a duplicate arrived
    meanwhile.) A NAK always takes the place of what waits; after a fatal one nothing follows, which the acknowledger
    sees to.

    No ACK may overtake a response of its QP, for which it would answer, too: as long as a QP is on hold, its answer
    waits, and others go on. A response answers for what waits, if that is not for a later packet.

    While there is a ``backlog``, the next answer is looked for :data:`PACE` cycles after the last one has gone: newer
    ones take its place meanwhile, and one frame answers for several messages. An answer that is alone does not wait,
    nor does anything once a NAK has come, until the queue is empty.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    swaps : bool
        With ``waits`` and ``hurry``.

    Members
    -------
    answer : Ack
        ``qp`` must stand there since 3 cycles before ``put``, ``psn`` since 1, and the next strobe may come 4 cycles
        later.
    put : 1
        Strobe: there is something to say about QP ``answer.qp``.
    action : AckAction
    hold : 1
        With ``put``: from now on, responses of the QP are on their way.
    backlog : 1
        Other packets wait for the wire.
    o : stream of ``Ack``
        An answer comes out 1 cycle after it went in, if nobody waits, otherwise 4; and there is one each 4 cycles, or
        each 116 with ``backlog``.
    holds : 1
        The answer that is fetched, or waits at ``o``, is of ``answer.qp``; a cycle late.
    waits : 1
        An answer of ``answer.qp``, which has stood for 4 cycles, waits in the queue, is fetched, or is at ``o``; a
        cycle late.
    hurry : 1
        No answer that waits now is held back by the ``backlog``.
    """

    def __init__(self, qps, *, swaps=False):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.swaps = swaps
        super().__init__(
            {
                "answer": In(Ack),
                "put": In(1),
                "action": In(AckAction),
                "hold": In(1),
                "backlog": In(1),
                "o": Out(stream.Signature(Ack)),
                "holds": Out(1),
            }
            | ({"waits": Out(1), "hurry": In(1)} if swaps else {})
        )

    def _bits(self, m, name, reads):
        """A LUT RAM of one bit a QP: its write port and its read ports."""
        m.submodules[name] = rows = memory.Memory(shape=1, depth=self.qps, init=[])
        return rows.write_port(), [rows.read_port(domain="comb") for _ in range(reads)]

    def elaborate(self, platform):
        m = Module()
        m.submodules.order = order = ReadyQueue(self.qps)
        m.submodules.entries = entries = Ram(Entry, self.qps)
        m.submodules.before = before = Ram(Before, self.qps)
        # A QP's answer waits while its bits in these two differ: each has one writer. Whoever stands in `order` need
        # not have one.
        given_write, (given_next,) = self._bits(m, "given", 1)
        sent_write, (sent_asked, sent_next) = self._bits(m, "sent", 2)
        held_write, (held_next,) = self._bits(m, "held", 1)

        answer = self.answer
        asked = Signal(range(self.qps))
        is_answer = Signal()
        is_nak = Signal()
        waits = Signal()
        sent = Signal()  # the bit of `asked`
        older = Signal()  # than what waits
        keep = Signal()
        write = Signal()
        direct = Signal()  # past the memories, because nobody waits
        turn = Signal()
        m.d.sync += [older.eq(psn_before(answer.psn, before.r_data.psn)), asked.eq(answer.qp)]
        m.d.comb += [
            before.r_addr.eq(answer.qp),
            sent_asked.addr.eq(asked),
            is_answer.eq(self.action == AckAction.ANSWER),
            is_nak.eq(answer.syndrome[5:7] != 0),
            waits.eq(before.r_data.turn != sent),
            write.eq(self.put & (self.action != AckAction.HOLD) & ~keep),
            before.w_addr.eq(asked),
            before.w_data.nak.eq(is_nak & is_answer),
            before.w_data.psn.eq(answer.psn),
            before.w_data.turn.eq(turn),
            before.w_en.eq(write),
            given_write.addr.eq(asked),
            given_write.data.eq(turn),
            given_write.en.eq(write),
            held_write.addr.eq(asked),
            held_write.data.eq(self.hold),
            held_write.en.eq(self.put),
            entries.w_addr.eq(asked),
            entries.w_data.psn.eq(answer.psn),
            entries.w_data.msn.eq(answer.msn),
            entries.w_data.syndrome.eq(answer.syndrome),
            entries.w_data.void.eq(~is_answer),
            entries.w_en.eq(write),
            order.i.payload.eq(asked),
            order.i.valid.eq(self.put & ~self.hold & ~direct),
        ]
        with m.Switch(self.action):
            with m.Case(AckAction.ANSWER):
                m.d.comb += keep.eq(waits & older & before.r_data.nak & ~is_nak)
            with m.Case(AckAction.RELEASE):
                m.d.comb += keep.eq(waits & older)
        # What waited and is void now goes on waiting, until it is its turn.
        m.d.comb += turn.eq(Mux(is_answer & ~direct, ~sent, before.r_data.turn))

        # When the next answer may be looked for.
        pace, lull = Signal(range(PACE + 1)), Signal(range(LULL + 1), init=LULL)
        urgent, go = Signal(), Signal(init=1)
        m.d.sync += go.eq((pace == 0) | (lull == LULL) | urgent)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [pace.eq(PACE), go.eq((lull == LULL) | urgent)]
        with m.Elif(pace != 0):
            m.d.sync += pace.eq(pace - 1)
        with m.If(self.backlog):
            m.d.sync += lull.eq(0)
        with m.Elif(lull != LULL):
            m.d.sync += lull.eq(lull + 1)
        with m.If(self.put & is_answer & is_nak):
            m.d.sync += urgent.eq(1)
        with m.Elif(order.empty):
            m.d.sync += urgent.eq(0)
        if self.swaps:
            with m.If(self.hurry):
                m.d.sync += urgent.eq(1)

        qp = Signal(range(self.qps))
        taken = Signal()
        m.d.sync += sent.eq(Mux(sent_write.en & taken, sent_write.data, sent_asked.data))
        entry = entries.r_data
        m.d.comb += [
            entries.r_addr.eq(order.o.payload),
            given_next.addr.eq(order.o.payload),
            sent_next.addr.eq(order.o.payload),
            held_next.addr.eq(order.o.payload),
            sent_write.addr.eq(order.o.payload),
            sent_write.data.eq(given_next.data),
            taken.eq(order.o.payload == asked),
            self.o.payload.qp.eq(qp),
        ]
        with m.FSM() as fsm:
            with m.State("TAKE"):
                m.d.sync += [  # whether or not it is so
                    qp.eq(Mux(order.o.valid, order.o.payload, asked)),
                    self.o.payload.psn.eq(answer.psn),
                    self.o.payload.msn.eq(answer.msn),
                    self.o.payload.syndrome.eq(answer.syndrome),
                ]
                with m.If(order.o.valid):
                    # An entry that is read while it is written is undefined.
                    with m.If(go & ~(self.put & taken)):
                        m.d.comb += order.o.ready.eq(1)
                        # One on hold comes again when it is free.
                        with m.If(~held_next.data & (given_next.data != sent_next.data)):
                            m.d.comb += sent_write.en.eq(1)
                            m.next = "READ"
                with m.Elif(order.empty & go & self.put & is_answer & ~self.hold & ~waits):
                    m.d.comb += direct.eq(1)
                    m.next = "SEND"
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
        m.d.sync += self.holds.eq(~fsm.ongoing("TAKE") & (qp == asked))
        if self.swaps:
            m.d.sync += self.waits.eq(waits | (~fsm.ongoing("TAKE") & (qp == asked)))
        return m
