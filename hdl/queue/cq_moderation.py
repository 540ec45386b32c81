"""Fewer completion events: one for several CQEs, or after a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import CQ_CONTEXT
from ..abi.cqc import CQN_BITS
from ..stream.table import Table
from ..stream.transfer import AttributeWrite

__all__ = ["CqModeration", "CqNews"]

CqNews = data.StructLayout({"number": CQN_BITS, "begins": 1, "gathers": 1, "urgent": 1})
"""Of a CQ: an event is due, which was not before (``begins``); a CQE is visible (``gathers``); its event is to come at
once, whether it was due before or not (``urgent``)."""

TIME_BITS = CQ_CONTEXT.fields["cq_period"].width + 1
"""Of a time, which is compared by the sign of a difference."""


class CqModeration(wiring.Component):
    """Holds completion events back until ``cq_count`` CQEs are there, or for ``cq_period``.

    An event that begins is the first CQE's. It comes out with the CQE that makes ``cq_count`` of them, or when
    ``cq_period`` units of time have begun since, whichever is first. It comes at once if ``cq_period`` is 0 or
    ``cq_count`` 1; with a ``cq_count`` of 0 the time alone counts.

    *Latency*: an event that comes at once is at ``o`` 3 cycles after its news. Slots are looked at one a cycle in
    which no news arrives, so one whose time is over comes out within ``slots`` such cycles.

    Parameters
    ----------
    slots : int
        A power of two.

    Members
    -------
    write, write_en : ``AttributeWrite``, 1
        The broadcast of words of CQ contexts; not while there are news of that slot.
    unit : 1
        Strobe: a unit of time begins.
    news, news_en : ``CqNews``, 1
        A slot has one event at most, from ``begins`` until it is out, and one CQ meanwhile.
    hurry, hurry_slot : 1, slot
        The event of this slot comes out, if it has one, after 2 cycles without news.
    o : stream of CQN
        Events: taken at once.
    holds : 1
        There are events inside.
    """

    def __init__(self, slots):
        self.slots = slots
        super().__init__(
            {
                "write": In(AttributeWrite),
                "write_en": In(1),
                "unit": In(1),
                "news": In(CqNews),
                "news_en": In(1),
                "hurry": In(1),
                "hurry_slot": In(range(slots)),
                "o": Out(stream.Signature(CQN_BITS)),
                "holds": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self.slots)
        # `left`: CQEs that are still missing. The limits of a slot stay as long as it has an event.
        layout = data.StructLayout({"held": 1, "number": CQN_BITS, "left": 16, "until": TIME_BITS})
        m.submodules.table = table = Table(CQ_CONTEXT, ("cq_count", "cq_period"), self.slots)
        m.submodules.rows = rows = memory.Memory(shape=layout, depth=self.slots, init=[])
        read, write = rows.read_port(domain="comb"), rows.write_port()
        now = Signal(TIME_BITS)
        m.d.sync += now.eq(now + self.unit)

        # What the table says of a slot comes 2 cycles after the news.
        come, comes = Signal(), Signal()
        coming, news = Signal(CqNews), Signal(CqNews)
        m.d.sync += [come.eq(self.news_en), comes.eq(come), coming.eq(self.news), news.eq(coming)]
        m.d.comb += [table.write.eq(self.write), table.write_en.eq(self.write_en)]
        m.d.comb += table.index.eq(self.news.number[:bits])

        # One slot a cycle: that of the news, or the next in the round. A reset does not reach the rows, but the first
        # round clears them. The row is read a cycle before, also if it is being written then.
        turn, fresh = Signal(bits), Signal(init=1)
        next_slot, slot = Signal(bits), Signal(bits)
        hurries, clears = Signal(), Signal()  # why it is looked at
        old, new, limits = Signal(layout), Signal(layout), table.row
        m.d.comb += [
            next_slot.eq(Mux(come, coming.number, Mux(self.hurry, self.hurry_slot, turn))),
            read.addr.eq(next_slot),
            write.addr.eq(slot),
            write.data.eq(new),
            write.en.eq(1),
        ]
        m.d.sync += [
            slot.eq(next_slot),
            old.eq(Mux(next_slot == slot, new.as_value(), read.data.as_value())),
            hurries.eq(self.hurry),
            clears.eq(fresh),
        ]
        with m.If(~come & ~self.hurry):
            m.d.sync += turn.eq(turn + 1)
            with m.If(turn.all()):
                m.d.sync += fresh.eq(0)

        due, held = Signal(), Signal()
        past = Signal(TIME_BITS)
        m.d.comb += [new.eq(old), past.eq(now - old.until), held.eq(old.held & ~clears), new.held.eq(held & ~due)]
        with m.If(comes):
            m.d.comb += [self.o.payload.eq(news.number), self.o.valid.eq(due & (held | news.begins))]
            with m.If(news.begins):
                at_once = (limits.cq_period == 0) | (limits.cq_count == 1)
                m.d.comb += [
                    due.eq(news.urgent | at_once),
                    new.held.eq(~due),
                    new.number.eq(news.number),
                    new.left.eq(limits.cq_count - 1),
                    new.until.eq(now + limits.cq_period),
                ]
            with m.Else():
                m.d.comb += due.eq(news.urgent | (news.gathers & (old.left == 1)))
                m.d.comb += new.left.eq(old.left - news.gathers)
        with m.Else():
            m.d.comb += [
                due.eq(hurries | ~past[-1]),
                self.o.payload.eq(old.number),
                self.o.valid.eq(held & due),
            ]

        events, enters, leaves = Signal(range(self.slots + 1)), Signal(), Signal()
        m.d.sync += [
            enters.eq(new.held & ~held),
            leaves.eq(held & ~new.held),
            events.eq(events + enters - leaves),
        ]
        m.d.comb += self.holds.eq(self.news_en | come | comes | enters | (events != 0))
        return m
