"""From when a completion event is due until it may be said."""

from amaranth.hdl import Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.cqc import CQN_BITS
from ..stream.fifo import Queue
from ..stream.transfer import AttributeWrite
from .cq_moderation import CqModeration, CqNews
from .cq_vectors import CqVectors

__all__ = ["CqDue"]


class CqDue(wiring.Component):
    """Has each CQ that has an event wait for more CQEs or its time, if events are moderated, and then for its turn, in
    the event queue that the CQ names.

    *Latency*: that of :class:`.stream.fifo.Queue`; 2 cycles more with ``moderation`` for an event that comes at once
    (:class:`.cq_moderation.CqModeration`), 2 more with several ``queues`` (:class:`.cq_vectors.CqVectors`).

    Parameters
    ----------
    slots : int
        CQs that have a slot, a power of two.
    moderation : bool
        CQs have ``cq_count`` and ``cq_period``.
    queues : int
        Event queues, a power of two: CQs have ``comp_vector`` if there are several.

    Members
    -------
    write, write_en : ``AttributeWrite``, 1
        The broadcast of words of CQ contexts.
    news, news_en : ``CqNews``, 1
        A slot has one event at most, from ``begins`` until it is out.
    unit : 1
        With ``moderation``, strobe: a unit of time begins.
    hurry, hurry_slot : 1, slot
        With ``moderation``: the event of this slot waits no longer.
    moderates : 1
        With ``moderation``: an event waits for more CQEs or its time.
    o : ``queues`` streams of CQN
        CQs whose events are to be said now.
    waits : 1
        There are events inside.
    """

    def __init__(self, slots, *, moderation=False, queues=1):
        self.slots = slots
        self.moderation = moderation
        self.queues = queues
        super().__init__(
            {
                "write": In(AttributeWrite),
                "write_en": In(1),
                "news": In(CqNews),
                "news_en": In(1),
                "o": Out(stream.Signature(CQN_BITS)).array(queues),
                "waits": Out(1),
            }
            | (
                {"unit": In(1), "hurry": In(1), "hurry_slot": In(range(slots)), "moderates": Out(1)}
                if moderation
                else {}
            )
        )

    def elaborate(self, platform):
        m = Module()
        number, valid, held = self.news.number, self.news_en & self.news.begins, Const(0, 1)
        if self.moderation:
            m.submodules.moderation = moderation = CqModeration(self.slots)
            m.d.comb += [
                moderation.write.eq(self.write),
                moderation.write_en.eq(self.write_en),
                moderation.unit.eq(self.unit),
                moderation.news.eq(self.news),
                moderation.news_en.eq(self.news_en),
                moderation.hurry.eq(self.hurry),
                moderation.hurry_slot.eq(self.hurry_slot),
                moderation.o.ready.eq(1),
                self.moderates.eq(moderation.holds),
            ]
            number, valid, held = moderation.o.payload, moderation.o.valid, moderation.holds
        if self.queues > 1:
            m.submodules.vectors = vectors = CqVectors(self.slots, self.queues)
            m.d.comb += [vectors.write.eq(self.write), vectors.write_en.eq(self.write_en)]
            for queued, said in zip(vectors.o, self.o):
                wiring.connect(m, queued, wiring.flipped(said))
            entry, queues = vectors.i, vectors.holds
        else:
            m.submodules.queue = queue = Queue(CQN_BITS, self.slots)
            wiring.connect(m, queue.o, wiring.flipped(self.o[0]))
            entry, queues = queue.i, queue.level != 0
        m.d.comb += [entry.valid.eq(valid), entry.payload.eq(number), self.waits.eq(held | queues)]
        return m
