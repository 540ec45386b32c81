"""Which slot the next queue pair gets, and who leaves his if none is free."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..context.slot_table import SlotTable

__all__ = ["SlotChooser"]


class SlotChooser(wiring.Component):
    """Has a slot that is free ready, and, if somebody must leave, names the one who was not used of late.

    Parameters
    ----------
    slots, qps : int
        Powers of two.
    users : int
        Who may use slots in the same cycle.

    Members
    -------
    put, put_slot, put_index, free, free_slot, look, looked, looked_taken, used, used_en
        Of the :class:`verbena.hdl.context.slot_table.SlotTable`.
    found, slot : 1, slot
        This one is free, and is for the QP that comes next.
    take : 1
        Strobe, while ``found``: it is that of a QP that comes; ``put`` follows.
    give, given_slot : 1, slot
        Strobe: this slot is free. It is found at once.
    goes, comes : 1
        Strobes: a QP is away from now on; a QP that was away is here, or is forgotten.
    full : 1
        No slot is free.
    leaves : 1
        No slot is free, and QPs are away: some of them will come.
    choose : 1
        A QP must leave.
    chosen, victim : 1, slot
        This one; it stays until ``take_victim``, or until ``choose`` is over.
    take_victim : 1
        Strobe: it is seen to.
    """

    def __init__(self, slots, qps, users):
        self.slots = slots
        self.qps = qps
        self.users = users
        index, slot = range(qps), range(slots)
        super().__init__(
            {
                "put": In(1),
                "put_slot": In(slot),
                "put_index": In(index),
                "free": In(1),
                "free_slot": In(slot),
                "look": In(slot),
                "looked": Out(index),
                "looked_taken": Out(1),
                "used": In(slot).array(users),
                "used_en": In(users),
                "found": Out(1),
                "slot": Out(slot),
                "take": In(1),
                "give": In(1),
                "given_slot": In(slot),
                "goes": In(1),
                "comes": In(1),
                "full": Out(1),
                "leaves": Out(1),
                "choose": In(1),
                "chosen": Out(1),
                "victim": Out(slot),
                "take_victim": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = SlotTable(self.slots, self.qps, self.users)
        for name in ("put", "put_slot", "put_index", "free", "free_slot", "look", "used_en"):
            m.d.comb += getattr(table, name).eq(getattr(self, name))
        for number in range(self.users):
            m.d.comb += table.used[number].eq(self.used[number])
        away = Signal(range(self.qps + 1))
        taken = Signal(3)  # the slot of a QP that comes is not taken yet, or `any_free` does not say so yet
        m.d.comb += [
            self.looked.eq(table.looked),
            self.looked_taken.eq(table.looked_taken),
            self.full.eq(~self.found & ~table.any_free & ~taken.any()),
            self.leaves.eq(self.full & (away != 0)),
        ]
        m.d.sync += [away.eq(away + self.goes - self.comes), taken[1:].eq(taken[:2])]
        with m.If(self.put):
            m.d.sync += taken[0].eq(0)
        with m.If(self.take):
            m.d.sync += [taken[0].eq(1), self.found.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += self.chosen.eq(fsm.ongoing("CHOSEN"))
            with m.State("IDLE"):
                with m.If(~self.found & ~taken.any() & table.any_free):
                    m.next = "SEEK"
                with m.Elif(self.choose):
                    m.next = "CHOOSE"
            with m.State("SEEK"):
                with m.If(self.found | taken.any() | ~table.any_free):
                    m.next = "IDLE"
                with m.Elif(table.taken):
                    m.d.comb += table.step.eq(1)
                with m.Else():
                    m.d.sync += [self.slot.eq(table.slot), self.found.eq(1)]
                    m.next = "IDLE"
            with m.State("CHOOSE"):
                m.d.comb += table.step.eq(1)
                m.d.sync += self.victim.eq(table.slot)
                with m.If(~table.taken | ~self.choose):
                    m.next = "IDLE"
                with m.Elif(~table.recent):
                    m.next = "CHOSEN"
            with m.State("CHOSEN"):
                with m.If(self.take_victim | ~self.choose):
                    m.next = "IDLE"
        with m.If(self.give & ~self.found):
            m.d.sync += [self.slot.eq(self.given_slot), self.found.eq(1)]
        return m
