"""Which event queue a completion event is for."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import CQ_CONTEXT
from ..abi.cqc import CQN_BITS
from ..stream.fifo import Queue
from ..stream.table import Table
from ..stream.transfer import AttributeWrite

__all__ = ["CqVectors"]


class CqVectors(wiring.Component):
    """Leads each CQ to the event queue that its ``comp_vector`` names, and keeps it there: so an event queue that is
    full holds up no other one.

    *Latency*: those of :class:`.stream.fifo.Queue`, and 2 cycles.

    Parameters
    ----------
    slots : int
        A power of two.
    queues : int
        Event queues, a power of two, at least 2. Of ``comp_vector`` as many bits count as that takes.

    Members
    -------
    write, write_en : ``AttributeWrite``, 1
        The broadcast of words of CQ contexts; not in the two cycles behind ``i`` of that slot.
    i : stream of CQN
        ``ready`` is always 1: a slot has one CQ inside at most.
    o : ``queues`` streams of CQN
    holds : 1
        There are CQs inside.
    """

    def __init__(self, slots, queues):
        self.slots = slots
        self.queues = queues
        cq = stream.Signature(CQN_BITS)
        super().__init__(
            {
                "write": In(AttributeWrite),
                "write_en": In(1),
                "i": In(cq),
                "o": Out(cq).array(queues),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Table(CQ_CONTEXT, ("comp_vector",), self.slots)
        asked, known = Signal(), Signal()
        number, found = Signal(CQN_BITS), Signal(CQN_BITS)
        m.d.sync += [asked.eq(self.i.valid), known.eq(asked), number.eq(self.i.payload), found.eq(number)]
        m.d.comb += [
            self.i.ready.eq(1),
            table.write.eq(self.write),
            table.write_en.eq(self.write_en),
            table.index.eq(self.i.payload[: ceil_log2(self.slots)]),
        ]
        waiting = []
        for vector, o in enumerate(self.o):
            m.submodules[f"queue_{vector}"] = queue = Queue(CQN_BITS, self.slots)
            chosen = table.row.comp_vector[: ceil_log2(self.queues)] == vector
            m.d.comb += [queue.i.valid.eq(known & chosen), queue.i.payload.eq(found)]
            wiring.connect(m, queue.o, wiring.flipped(o))
            waiting.append(queue.level != 0)
        m.d.comb += self.holds.eq(self.i.valid | asked | known | Cat(waiting).any())
        return m
