"""Which slots are taken, by whom, and who gives his up."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SlotTable"]


class SlotTable(wiring.Component):
    """Goes round the slots with a hand. A slot that was used since the hand came past it is passed once more.

    Bits of slots stand in LUT RAM, and one of each kind is written in a cycle. So uses wait for each other, for a put,
    and for the hand when it leaves a slot that was used; one of the same user that comes meanwhile takes the place of
    the one that waits, which is forgotten. After a reset nothing is put or freed, and what is said of slots is not
    right yet, for one cycle more than there are slots.

    Parameters
    ----------
    slots, qps : int
        Powers of two.
    users : int
        Who may use slots in the same cycle.

    Members
    -------
    slot : slot
        Where the hand is.
    taken, recent : 1
        A QP is there; it was used since the hand came past it.
    step : 1
        Strobe: the hand goes on.
    any_free : 1
        Some slot is not taken.
    put, put_slot, put_index : 1, slot, QP index
        Strobe: the QP takes the slot, and has used it. Neither with ``step`` nor in the cycle behind it.
    free, free_slot : 1, slot
        Strobe: the slot, which was taken, is not any more. Not with ``put``.
    look, looked, looked_taken : slot, QP index, 1
        Who is in that slot, or was there last, in the same cycle; and, a cycle later, whether it is.
    used, used_en : array of slots, a bit each
        Who uses his slot; it counts 2 cycles later at the earliest.
    """

    def __init__(self, slots, qps, users):
        self.slots = slots
        self.qps = qps
        self.users = users
        super().__init__(
            {
                "slot": Out(range(slots)),
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
        m.submodules.taken = taken = memory.Memory(shape=1, depth=self.slots, init=[])
        m.submodules.recent = recent = memory.Memory(shape=1, depth=self.slots, init=[])
        hold, take, mark = (part.write_port() for part in (holders, taken, recent))
        held, looked = holders.read_port(domain="comb"), taken.read_port(domain="comb")
        here, marked = taken.read_port(domain="comb"), recent.read_port(domain="comb")
        waking = Signal(init=1)  # the hand goes round once: a reset does not reach the memories
        count = Signal(range(self.slots + 1))  # of slots that are taken
        m.d.comb += [
            hold.addr.eq(self.put_slot),
            hold.data.eq(self.put_index),
            hold.en.eq(self.put),
            take.addr.eq(Mux(waking, self.slot, Mux(self.put, self.put_slot, self.free_slot))),
            take.data.eq(self.put),
            take.en.eq(waking | self.put | self.free),
            held.addr.eq(self.look),
            looked.addr.eq(self.look),
            here.addr.eq(self.slot),
            marked.addr.eq(self.slot),
            self.looked.eq(held.data),
            self.taken.eq(here.data),
            self.recent.eq(marked.data),
            self.any_free.eq(~count[-1]),
        ]
        m.d.sync += [self.looked_taken.eq(looked.data), count.eq(count + self.put - self.free)]
        with m.If(self.step | waking):
            m.d.sync += self.slot.eq(self.slot + 1)
        with m.If(waking & self.slot.all()):
            m.d.sync += waking.eq(0)

        passed, passed_slot = Signal(), Signal.like(self.slot)  # the hand has: it is written a cycle later
        m.d.sync += [passed.eq((self.step & self.recent) | waking), passed_slot.eq(self.slot)]
        uses = [Signal.like(slot, name=f"use_{number}") for number, slot in enumerate(self.used)]
        waits = Signal(self.users)
        with m.If(passed):
            m.d.comb += [mark.addr.eq(passed_slot), mark.en.eq(1)]
        with m.Elif(self.put):
            m.d.comb += [mark.addr.eq(self.put_slot), mark.data.eq(1), mark.en.eq(1)]
        with m.Else():
            m.d.comb += [mark.data.eq(1), mark.en.eq(waits.any())]
            m.d.sync += waits.eq(waits & (waits - 1))  # the first counts
            for number in reversed(range(self.users)):
                with m.If(waits[number]):
                    m.d.comb += mark.addr.eq(uses[number])
        for number, slot in enumerate(self.used):
            with m.If(self.used_en[number]):
                m.d.sync += [uses[number].eq(slot), waits[number].eq(1)]
        return m
