"""What QUERY_QP adds to the attributes: the answers of those who own it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_DYNAMIC

__all__ = ["Replies", "Reply"]

Reply = data.StructLayout({"psn": 24, "index": 16})

SQ_PSN, RQ_PSN, INDICES, COMPLETED = (
    QP_DYNAMIC.fields[name].word for name in ("sq_psn", "rq_psn", "sq_index", "sq_completed")
)


class Replies(wiring.Component):
    """Takes the answers to a QUERY, in any order, and makes them words of :data:`verbena.hdl.abi.contexts.QP_DYNAMIC`.

    An answer is taken 1 cycle after it came, if no other one is. Words come in any order.

    Members
    -------
    clear : 1
        A query begins.
    requester, responder : streams of ``{psn, index}``, completer : stream of ``{index}``
    word, data, write
        A word of the record; ``write`` says that it is good. Registers.
    done : 1
        All words have come; until ``clear``.
    """

    def __init__(self):
        super().__init__(
            {
                "clear": In(1),
                "requester": In(stream.Signature(Reply)),
                "responder": In(stream.Signature(Reply)),
                "completer": In(stream.Signature(data.StructLayout({"index": 16}))),
                "word": Out(range(QP_DYNAMIC.size // 4)),
                "data": Out(32),
                "write": Out(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ports = [self.requester, self.responder, self.completer]
        turn, answered = Signal(3), Signal(3)
        sq_index, rq_index = Signal(16), Signal(16)
        last = Signal()  # the indices are left
        told = Signal()
        m.d.comb += last.eq(answered.all() & ~told)
        m.d.comb += [port.ready.eq(turn[number]) for number, port in enumerate(ports)]
        m.d.sync += self.write.eq(turn.any() | last)
        with m.If(turn[0]):
            m.d.sync += [self.word.eq(SQ_PSN), self.data.eq(self.requester.payload.psn)]
            m.d.sync += sq_index.eq(self.requester.payload.index)
        with m.Elif(turn[1]):
            m.d.sync += [self.word.eq(RQ_PSN), self.data.eq(self.responder.payload.psn)]
            m.d.sync += rq_index.eq(self.responder.payload.index)
        with m.Elif(turn[2]):
            m.d.sync += [self.word.eq(COMPLETED), self.data.eq(self.completer.payload.index)]
        with m.Else():
            m.d.sync += [self.word.eq(INDICES), self.data.eq(Cat(sq_index, rq_index))]
        came = Signal(3)
        m.d.comb += came.eq(Cat(port.valid for port in ports))
        m.d.sync += [
            turn.eq(Mux(turn.any(), 0, came & -came)),
            answered.eq(answered | turn),
            told.eq(answered.all()),
            self.done.eq(told),
        ]
        with m.If(self.clear):
            m.d.sync += [answered.eq(0), told.eq(0), self.done.eq(0)]
        return m
