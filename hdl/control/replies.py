"""What QUERY_QP adds to the attributes: the answers of those who own it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.contexts import QP_DYNAMIC
from ..stream.arbiter import pick

__all__ = ["Replies", "Reply"]

Reply = data.StructLayout({"psn": 24, "index": 16})

SQ_PSN, RQ_PSN, INDICES, COMPLETED = (
    QP_DYNAMIC.fields[name].word for name in ("sq_psn", "rq_psn", "sq_index", "sq_completed")
)


class Replies(wiring.Component):
    """Takes the answers to a QUERY, in any order, and makes them words of :data:`verbena.hdl.abi.contexts.QP_DYNAMIC`,
    when all are there: a word each cycle.

    Members
    -------
    clear : 1
        A query begins. Answers come when it has been said to those who answer, and each only once.
    requester, responder : streams of ``{psn, index}``, completer : stream of ``{index}``
        Always taken.
    word, data, write
        A word of the record; ``write`` says that it is good.
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
        kept = [Signal.like(port.payload, name=f"reply_{number}") for number, port in enumerate(ports)]
        answered = Signal(len(ports))
        for number, port in enumerate(ports):
            m.d.comb += port.ready.eq(1)
            with m.If(port.valid):
                m.d.sync += [kept[number].eq(port.payload), answered[number].eq(1)]
        requester, responder, completer = kept
        words = {
            SQ_PSN: requester.psn,
            RQ_PSN: responder.psn,
            INDICES: Cat(requester.index, responder.index),
            COMPLETED: completer.index,
        }
        m.d.comb += [
            self.write.eq(answered.all() & ~self.done),
            self.data.eq(pick([words[number] for number in range(len(words))], self.word)),
        ]
        with m.If(self.write):
            m.d.sync += [self.word.eq(self.word + 1), self.done.eq(self.word == len(words) - 1)]
        with m.If(self.clear):
            m.d.sync += [answered.eq(0), self.done.eq(0)]
        return m
