"""Which slots are taken, by whom, and who gives his up."""

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SlotTable"]


class SlotTable(wiring.Component):
    """Goes round the slots with a hand. A slot that was used since the hand came past it is passed once more.

    Parameters
    ----------
    slots, qps : int
        Powers of two.
    users : int
        Who may use slots in the same cycle.

    Members
    -------
    slot, index : slot, QP index
        Where the hand is, and the QP that is there.
    taken, recent : 1
        A QP is there; it was used since the hand came past it.
    step : 1
        Strobe: the hand goes on.
    any_free : 1
        Some slot is not taken.
    put, put_slot, put_index : 1, slot, QP index
        Strobe: the QP takes the slot, and has used it.
    free, free_slot : 1, slot
        Strobe: the slot is not taken any more. Not with ``put``.
    look, looked, looked_taken : slot, QP index, 1
        Who is in that slot, or was there last, in the same cycle; and, a cycle later, whether it is.
    used, used_en : array of slots, a bit each
        Who uses his slot; it counts a cycle later.
    """

    def __init__(self, slots, qps, users):
        self.slots = slots
        self.qps = qps
        self.users = users
        super().__init__(
            {
                "slot": Out(range(slots)),
                "index": Out(range(qps)),
                "taken": Out(1),
                "recent": Out(1),
                "step": In(1),
                "any_free": Out(1),
                "put": In(1),
                "put_slot": In(range(slots)),
                "put_index": In(range(qps)),
                "free": In(1),
                "free_slot": In(range(slots)),
                "look": In(range(slots)),
                "looked": Out(range(qps)),
                "looked_taken": Out(1),
                "used": In(range(slots)).array(users),
                "used_en": In(users),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.holders = holders = memory.Memory(shape=range(self.qps), depth=self.slots, init=[])
        write, here, look = holders.write_port(), holders.read_port(domain="comb"), holders.read_port(domain="comb")
        taken, recent = Signal(self.slots), Signal(self.slots)
        m.d.comb += [
            write.addr.eq(self.put_slot),
            write.data.eq(self.put_index),
            write.en.eq(self.put),
            here.addr.eq(self.slot),
            self.index.eq(here.data),
            look.addr.eq(self.look),
            self.looked.eq(look.data),
            self.taken.eq(taken.bit_select(self.slot, 1)),
            self.recent.eq(recent.bit_select(self.slot, 1)),
        ]
        m.d.sync += [self.any_free.eq(~taken.all()), self.looked_taken.eq(taken.bit_select(self.look, 1))]
        with m.If(self.step):
            m.d.sync += [self.slot.eq(self.slot + 1), recent.bit_select(self.slot, 1).eq(0)]
        for number, slot in enumerate(self.used):
            used, used_en = Signal.like(slot, name=f"used_{number}"), Signal(name=f"used_en_{number}")
            m.d.sync += [used.eq(slot), used_en.eq(self.used_en[number])]
            with m.If(used_en):
                m.d.sync += recent.bit_select(used, 1).eq(1)
        with m.If(self.put):
            m.d.sync += [taken.bit_select(self.put_slot, 1).eq(1), recent.bit_select(self.put_slot, 1).eq(1)]
        with m.If(self.free):
            m.d.sync += taken.bit_select(self.free_slot, 1).eq(0)
        return m
