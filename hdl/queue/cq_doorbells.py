"""Doorbells of CQs: how far the driver has read each, and what it asks events for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.cqc import CQN_BITS
from .cq_notices import Arms

__all__ = ["CqArm", "CqDoorbells", "CqIndex"]

CqIndex = data.StructLayout({"cq": CQN_BITS, "index": 16})
"""Consumer index of a CQ, free-running."""

CqArm = data.StructLayout({"cq": CQN_BITS} | Arms)
"""How often an event was asked for at the next completion, and at the next one that is solicited or in error."""


class CqDoorbells(wiring.Component):
    """Takes one doorbell at a time, and keeps the consumer index of each slot. A doorbell of a CQ without a slot is
    forgotten: the driver's word of the CQ's record says the same.

    *Latency*: a doorbell is done 2 cycles after it was taken, later if a slot is set or ``closed`` then, or ``armed``
    is not ready; the next is taken in the cycle after that. A consumer index stands in its row from the next cycle on.
    A reset does not reach the rows: a slot that begins is set.

    Parameters
    ----------
    slots : int
        A power of two.

    Members
    -------
    consumer : stream of ``CqIndex``; arm : stream of ``CqArm``
        Doorbells. Of two the ``consumer`` goes first.
    number, here : CQN, 1
        The CQ of the doorbell that was taken, and whether it has the slot: in the same cycle.
    closed : 1
        What is ``here`` changes in this cycle: no doorbell is done, and it is looked at again.
    rung : 1
        Strobe: the doorbell of ``number`` is done, or forgotten.
    armed : stream of ``{number, arms, solicited_arms}``
        Of a CQ that has a slot.
    set, set_slot, set_index : 1, slot, 16
        Strobe: that is the slot's consumer index now.
    look, index : slot, 16
        A slot's consumer index, in the same cycle.
    changed : 1
        A consumer index is written in this cycle.
    """

    def __init__(self, slots):
        self.slots = slots
        super().__init__(
            {
                "consumer": In(stream.Signature(CqIndex)),
                "arm": In(stream.Signature(CqArm)),
                "number": Out(CQN_BITS),
                "here": In(1),
                "closed": In(1),
                "rung": Out(1),
                "armed": Out(stream.Signature(data.StructLayout({"number": CQN_BITS} | Arms))),
                "set": In(1),
                "set_slot": In(range(slots)),
                "set_index": In(16),
                "look": In(range(slots)),
                "index": Out(16),
                "changed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.consumers = consumers = memory.Memory(shape=16, depth=self.slots, init=[])
        write, read = consumers.write_port(), consumers.read_port(domain="comb")
        # A doorbell is taken, looked up, and a cycle later written, if meanwhile no slot was filled.
        held, judged, has_slot = Signal(), Signal(), Signal()
        arms_it, sets = Signal(), Signal()
        index, arms = Signal.like(self.consumer.payload.index), Signal(data.StructLayout(Arms))
        with m.If(~held):
            m.d.sync += [
                held.eq(self.consumer.valid | self.arm.valid),
                arms_it.eq(~self.consumer.valid),
                self.number.eq(Mux(self.consumer.valid, self.consumer.payload.cq, self.arm.payload.cq)),
                index.eq(self.consumer.payload.index),
                *(arms[name].eq(self.arm.payload[name]) for name in Arms),
            ]
        with m.If(self.rung):
            m.d.sync += held.eq(0)
        m.d.sync += [has_slot.eq(self.here), judged.eq(held & ~self.rung & ~self.closed)]
        m.d.comb += [
            self.consumer.ready.eq(~held),
            self.arm.ready.eq(~held & ~self.consumer.valid),
            self.armed.valid.eq(judged & ~self.closed & arms_it & has_slot),
            self.armed.payload.number.eq(self.number),
            *(self.armed.payload[name].eq(arms[name]) for name in Arms),
            sets.eq(judged & ~self.closed & ~arms_it & ~self.set),
            self.rung.eq(sets | (judged & ~self.closed & arms_it & (self.armed.ready | ~has_slot))),
            self.changed.eq(self.set | (sets & has_slot)),
            write.addr.eq(Mux(self.set, self.set_slot, self.number)),
            write.data.eq(Mux(self.set, self.set_index, index)),
            write.en.eq(self.changed),
            read.addr.eq(self.look),
            self.index.eq(read.data),
        ]
        return m
