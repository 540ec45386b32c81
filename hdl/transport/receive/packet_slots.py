"""Packets: from the number of their queue pair to its slot."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...context.directory import Row
from ...context.slot_finder import SlotFinder
from ...stream.slice import Slice
from ...wire.packet_header import ReceiveHeader

__all__ = ["PacketSlots"]


class PacketSlots(wiring.Component):
    """Finds the slot of each packet's QP. A packet whose QP has none waits until it has, and all behind it; one whose
    QP does not exist passes as ``absent``. Of the one behind it is told whether its QP has a slot.

    *Latency*: 4 cycles; 1 for the QP of the packet before.

    Parameters
    ----------
    qps, slots : int
        Powers of two; the low bits of a QP number are the QP's index.

    Members
    -------
    i, o : streams of ``ReceiveHeader``
        ``o`` may be withdrawn: its QP leaves its slot.
    slot, absent : slot, 1
        Of the packet at ``o``.
    away, index : 1, QP index
        The packet that is next at ``o`` waits for this QP.
    next_away, next_index : 1, QP index
        That behind it, at ``i``, is for this QP, which has no slot.
    ask, next_ask : streams of QP index; answered, next_answered : 1; row, changed : ``Row``, 1
        To and from the directory.
    used_en : 1
        Strobe: a packet of ``slot`` has passed.
    """

    def __init__(self, qps, slots):
        self.qps = qps
        self.slots = slots
        super().__init__(
            {
                "i": In(stream.Signature(ReceiveHeader)),
                "o": Out(stream.Signature(ReceiveHeader)),
                "slot": Out(range(slots)),
                "absent": Out(1),
                "away": Out(1),
                "index": Out(range(qps)),
                "next_away": Out(1),
                "next_index": Out(range(qps)),
                "ask": Out(stream.Signature(range(qps))),
                "next_ask": Out(stream.Signature(range(qps))),
                "answered": In(1),
                "next_answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "used_en": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice_ = Slice(ReceiveHeader)
        m.submodules.finder = finder = SlotFinder(self.qps, self.slots)
        m.submodules.next_finder = next_finder = SlotFinder(self.qps, self.slots)
        wiring.connect(m, wiring.flipped(self.i), slice_.i)
        wiring.connect(m, finder.ask, wiring.flipped(self.ask))
        wiring.connect(m, next_finder.ask, wiring.flipped(self.next_ask))
        head, coming = slice_.o, self.i.payload.transport.dest_qpn
        m.d.comb += [
            # A packet is looked for while it goes into the register.
            finder.valid.eq(head.valid | self.i.valid),
            finder.index.eq(Mux(head.valid, head.payload.transport.dest_qpn, coming)),
            finder.taken.eq(head.valid & head.ready),
            finder.answered.eq(self.answered),
            next_finder.valid.eq(head.valid & self.i.valid),
            next_finder.index.eq(coming),
            next_finder.answered.eq(self.next_answered),
            self.o.payload.eq(head.payload),
            self.o.valid.eq(head.valid & (finder.here | finder.absent)),
            head.ready.eq(self.o.ready & self.o.valid),
            self.slot.eq(finder.slot),
            self.absent.eq(finder.absent),
            self.away.eq(head.valid & finder.away),
            self.index.eq(finder.index),
            self.next_away.eq(next_finder.away),
            self.next_index.eq(next_finder.index),
            self.used_en.eq(finder.here & head.valid & self.o.ready),
        ]
        for part in (finder, next_finder):
            m.d.comb += [part.row.eq(self.row), part.changed.eq(self.changed)]
        return m
