"""Packets: from the number of their queue pair to its slot."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...context.directory import Row
from ...context.slot_finder import SlotFinder
from ...wire.packet_header import ReceiveHeader

__all__ = ["PacketSlots"]


class PacketSlots(wiring.Component):
    """Finds the slot of each packet's QP. A packet whose QP has none waits until it has, and all behind it; one whose
    QP does not exist passes as ``absent``.

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
        The packet at ``i`` waits for this QP.
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
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
                "ask": Out(stream.Signature(range(qps))),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "used_en": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.finder = finder = SlotFinder(self.qps, self.slots)
        wiring.connect(m, finder.ask, wiring.flipped(self.ask))
        m.d.comb += [
            finder.valid.eq(self.i.valid),
            finder.index.eq(self.i.payload.transport.dest_qpn),
            finder.taken.eq(self.i.ready),
            finder.answered.eq(self.answered),
            finder.row.eq(self.row),
            finder.changed.eq(self.changed),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(finder.here | finder.absent),
            self.i.ready.eq(self.o.ready & self.o.valid),
            self.slot.eq(finder.slot),
            self.absent.eq(finder.absent),
            self.away.eq(finder.away),
            self.index.eq(finder.index),
            self.used_en.eq(finder.here & self.i.ready),
        ]
        return m
