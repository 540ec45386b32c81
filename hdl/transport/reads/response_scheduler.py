"""The responses of each QP, counted: which may be cut, which are on their way, which are answered."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.tables import AccessStatus
from ...stream.ready import ReadyQueue
from ...stream.transfer import Passage
from ..common.layouts import Answered, Release

__all__ = ["ResponseCounts", "ResponseScheduler"]

ResponseCounts = data.StructLayout({"released": 5, "cut": 5, "served": 5, "dead": 1})
"""Entries of a QP, modulo 32: released by the acknowledger, cut into packets, answered. ``dead``: one was refused."""


class Operation(enum.Enum, shape=2):
    """What happens to a row."""

    TURN = 0
    END = 1
    ANSWER = 2
    RELEASE = 3


class ResponseScheduler(wiring.Component):
    """Keeps count of each QP's responses, and says whose turn it is to be cut.

    A QP has a turn when an entry is released, after a turn if there is more to do, and when the last of its responses
    on their way is answered, if others wait for that. One operation on a row every 2 cycles: a turn's begin and end
    first, then releases, then answers. From ``release`` to ``begun`` 5 cycles. A token has its turn first, then a
    recall.

    *Answers* pass on their way from transmitter to acknowledger: they are shown in the second cycle after they come,
    and taken in the third or later. A refused one, but for poison, stops its QP until a token.

    *A token* gets a turn of its own. From the moment it is taken at ``release`` until the transmitter says that it has
    arrived there, answers of its QP are swallowed: they are of the QP's past, and nobody counts them any more. One that
    is just being shown is withdrawn, so no register may stand behind ``answered_o``. Another token waits.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    swaps : bool
        With the last members. A SAVE token waits until the answers of its QP are counted.

    Members
    -------
    release : stream of ``Release``
        A token is taken only when the one before has arrived; else taken within a few cycles, whatever else waits.
    answered_i, answered_o : stream of ``Answered``
        From the transmitter, and to the acknowledger.
    served_qp, served
        Entries of the QP that are answered, 1 cycle later.
    free, hold : 1
        A turn may begin; ``hold``: only that of a recall.
    recall, recall_qp
        This QP is to have a turn, whatever it has to do.
    begun : 1
        Strobe: a turn begins.
    qp, token, recalling
        Of the turn, from ``begun`` to the next; ``token``, ``recalling``: it is for a token, for ``recall``.
    open, flying : 1, 1
        From the cycle after ``begun``: the QP's next entry may be cut; others of the QP are cut and not answered.
    end : 1
        Something was cut, or the token sent. Stands until ``ended``; if nothing was cut, a turn ends without.
    complete : 1
        Of ``end``, from its second cycle on: the entry is cut to its end.
    skip : 1
        Of ``end``, likewise: and counts as answered.
    lost : 1
        The entry has no answer, or no further one: the acknowledger is told that it is answered. Stands until
        ``lost_told``.
    ended, lost_told : 1
        Strobes.
    token_done : 1
        Strobe: the token has arrived; that of SAVE or LOAD has been sent. Nothing of the QP's past follows on
        ``answered_o``.
    passage : ``Passage``
        Of the token, while the turn is a token's.
    counts : ``ResponseCounts``
        From the cycle after ``begun`` to the next one: those of the turn's QP.
    loaded : ``ResponseCounts``
        With ``end``, if the turn is LOAD's: what they are from now on. After other tokens they are 0.
    sent : 1
        Strobe: the token of SAVE or LOAD has been sent, and cannot have arrived.
    swap_qp, serving : 12, 1
        Entries of the QP are released and not answered, and will be; 1 cycle later.
    """

    def __init__(self, qps, *, swaps=False):
        self.qps = qps
        self.swaps = swaps
        swap = {
            "passage": Out(Passage),
            "counts": Out(ResponseCounts),
            "loaded": In(ResponseCounts),
            "sent": In(1),
            "swap_qp": In(12),
            "serving": Out(1),
        }
        super().__init__(
            {
                "release": In(stream.Signature(Release)),
                "answered_i": In(stream.Signature(Answered)),
                "answered_o": Out(stream.Signature(Answered)),
                "served_qp": In(12),
                "served": Out(5),
                "free": In(1),
                "hold": In(1),
                "recall": In(1),
                "recall_qp": In(range(qps)),
                "begun": Out(1),
                "qp": Out(range(qps)),
                "token": Out(1),
                "recalling": Out(1),
                "open": Out(1),
                "flying": Out(1),
                "end": In(1),
                "complete": In(1),
                "skip": In(1),
                "ended": Out(1),
                "lost": In(1),
                "lost_told": Out(1),
                "token_done": Out(1),
            }
            | (swap if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ready = ready = ReadyQueue(self.qps)
        m.submodules.rows = rows = memory.Memory(shape=ResponseCounts, depth=self.qps, init=[])
        m.submodules.served = served = memory.Memory(shape=5, depth=self.qps, init=[])
        rows_write, rows_read = rows.write_port(), rows.read_port(domain="comb")
        served_write, served_read = served.write_port(), served.read_port(domain="comb")
        answer, release = self.answered_i.payload, self.release.payload

        # -- One operation after the other: a cycle to read, a cycle to write.
        applying = Signal()
        operation = Signal(Operation)
        at = Signal(range(self.qps))
        row, changed = Signal(ResponseCounts), Signal(ResponseCounts)
        token_due, token_out = Signal(), Signal()  # it has no turn yet; it has not arrived
        token_qp = Signal(range(self.qps))
        wants_answer, counting = Signal(), Signal()  # `counting`: an answer's operation is applied
        turn, special = Signal(), Signal()
        token_may = Signal()  # the token at `release` may be taken
        token_comes = self.release.valid & release.token & ~token_out & ~self.release.ready
        if self.swaps:
            m.submodules.serving = serving = memory.Memory(shape=1, depth=self.qps, init=[])
            serving_write, serving_read = serving.write_port(), serving.read_port(domain="comb")
            m.d.comb += [
                serving_write.addr.eq(at),
                serving_write.data.eq((changed.released != changed.served) & ~changed.dead),
                serving_write.en.eq(applying),
                serving_read.addr.eq(self.swap_qp),
            ]
            m.d.sync += self.serving.eq(serving_read.data)
            # The acknowledger has heard all answers of the QP, but the last one may still have to be counted here.
            saves = release.passage == Passage.SAVE
            token_comes &= ~(saves & wants_answer & (answer.qp == release.qp))
        m.d.sync += token_may.eq(token_comes)
        m.d.comb += [
            special.eq(token_due | self.recall),
            turn.eq(self.free & (special | (ready.o.valid & ~self.hold))),
            ready.o.ready.eq(~applying & ~self.end & self.free & ~special & ~self.hold),
            rows_write.addr.eq(at),
            rows_write.data.eq(changed),
            rows_write.en.eq(applying),
            served_write.addr.eq(at),
            served_write.data.eq(changed.served),
            served_write.en.eq(applying),
            served_read.addr.eq(self.served_qp),
        ]
        m.d.sync += self.served.eq(served_read.data)
        # Registers, one for each operation: others wait for them.
        m.d.sync += [signal.eq(0) for signal in (applying, self.begun, self.ended, counting, self.release.ready)]
        # Whose row is read is told by ORs, as what chooses comes late.
        releases = Signal()
        turn_qp = Mux(token_due, token_qp, Mux(self.recall, self.recall_qp, ready.o.payload))
        which = (
            (self.end, self.qp),
            (~self.end & turn, turn_qp),
            (~self.end & ~turn & releases, release.qp),
            (~self.end & ~turn & ~releases, answer.qp),
        )
        m.d.comb += [
            releases.eq(self.release.valid & (~release.token | token_may)),
            rows_read.addr.eq(reduce(or_, (Mux(chosen, qp, 0) for chosen, qp in which))),
        ]
        with m.If(~applying):
            m.d.sync += [at.eq(rows_read.addr), row.eq(rows_read.data)]
            with m.If(self.end):
                m.d.sync += [operation.eq(Operation.END), applying.eq(1), self.ended.eq(1)]
            with m.Elif(turn):
                m.d.sync += [
                    operation.eq(Operation.TURN),
                    applying.eq(1),
                    self.begun.eq(1),
                    self.qp.eq(turn_qp),
                    self.token.eq(token_due),
                    self.recalling.eq(~token_due & self.recall),
                    token_due.eq(0),
                ]
            with m.Elif(releases):
                m.d.sync += [operation.eq(Operation.RELEASE), applying.eq(1), self.release.ready.eq(1)]
                with m.If(release.token):
                    m.d.sync += [token_due.eq(1), token_out.eq(1), token_qp.eq(release.qp)]
                    if self.swaps:
                        m.d.sync += self.passage.eq(release.passage)
            with m.Elif(wants_answer):
                m.d.sync += [operation.eq(Operation.ANSWER), applying.eq(1), counting.eq(1)]

        again = Signal()
        fatal = (answer.status != AccessStatus.OK) & (answer.status != AccessStatus.POISONED)
        m.d.comb += [changed.eq(row), ready.i.payload.eq(at)]
        m.d.sync += ready.i.valid.eq(applying & again)  # `at` stands a cycle longer
        with m.Switch(operation):
            with m.Case(Operation.END):
                m.d.comb += [
                    changed.cut.eq(row.cut + self.complete),
                    changed.served.eq(row.served + self.skip),
                    again.eq(~self.token & (~self.complete | (row.released != changed.cut))),
                ]
                with m.If(self.token):
                    m.d.comb += changed.eq(0)
                    if self.swaps:
                        with m.If(self.passage == Passage.LOAD):
                            m.d.comb += changed.eq(self.loaded)
            with m.Case(Operation.ANSWER):
                m.d.comb += [
                    changed.served.eq(row.served + answer.last),
                    changed.dead.eq(row.dead | fatal),
                    again.eq(answer.last & (changed.served == row.cut) & (row.released != row.cut)),
                ]
            with m.Case(Operation.RELEASE):
                m.d.comb += [
                    changed.released.eq(row.released + ~release.token),
                    again.eq(~release.token),
                ]
        with m.If(self.begun):
            m.d.sync += [
                self.open.eq(~row.dead & (row.released != row.cut)),
                self.flying.eq(row.served != row.cut),
            ]
            if self.swaps:
                m.d.sync += self.counts.eq(row)

        # -- An answer on its way. A token's arrival is said as OK without `last`.
        here, stale, arrival, counted, passed = Signal(), Signal(), Signal(), Signal(), Signal()
        own, own_stale = Signal(), Signal()  # the answer shown is not the transmitter's, but that of `lost`
        over, told = Signal(), Signal()
        here_ends, early = Signal(), Signal(7)  # tokens that are done without having arrived: those on their way
        if self.swaps:
            m.d.comb += here_ends.eq(self.ended & self.token & (self.passage != Passage.RESET))
            m.d.sync += early.eq(early + self.sent - (over & arrival & (early != 0)))
        m.d.comb += [
            wants_answer.eq(here & ~stale & ~arrival & ~counted),
            over.eq(here & (stale | arrival | (passed & (counted | counting)))),
            self.answered_i.ready.eq(over),
            self.token_done.eq((over & arrival & (early == 0)) | here_ends),
            self.answered_o.payload.eq(answer),
            self.answered_o.valid.eq(Mux(own, ~own_stale, here & ~stale & ~arrival & ~passed)),
            told.eq(own & (own_stale | self.answered_o.ready)),
        ]
        with m.If(own):
            m.d.comb += [
                self.answered_o.payload.qp.eq(self.qp),
                self.answered_o.payload.status.eq(AccessStatus.OK),
                self.answered_o.payload.last.eq(1),
            ]
        m.d.sync += [
            here.eq(self.answered_i.valid & ~over),
            stale.eq(token_out & (answer.qp == token_qp)),
            arrival.eq((answer.status == AccessStatus.OK) & ~answer.last),
            counted.eq((counted | counting) & ~over),
            own_stale.eq(token_out & (self.qp == token_qp)),
            self.lost_told.eq(told),
        ]
        with m.If(over):
            m.d.sync += passed.eq(0)
        with m.Elif(self.answered_o.valid & self.answered_o.ready & ~own):
            m.d.sync += passed.eq(1)
        with m.If(self.token_done):
            m.d.sync += token_out.eq(0)
        with m.If(told):
            m.d.sync += own.eq(0)
        with m.Elif(self.lost & ~self.lost_told & ~(self.answered_o.valid & ~self.answered_o.ready)):
            m.d.sync += own.eq(1)
        return m
