"""From a CQ's record in host memory to its slot."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.cqc import CQ_RECORD, CQC_BYTES, CQN_BITS
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import ReadRequest

__all__ = ["CqFetch", "record_address"]

WORD = 64


def record_address(base, number):
    """Bus address of a CQ's record: the table is aligned to its size."""
    return base | number << ceil_log2(CQC_BYTES)


class CqFetch(wiring.Component):
    """Reads one CQ's record at a time.

    The driver writes its word of the record and then rings. Who rings while the record is read cannot tell whether the
    read has seen that, so the record is read once more. ``done`` comes with the last beat of ``data``, and the record
    stays until the next ``go``.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    base : 64
        Bus address of the table, aligned to its size.
    go, number : 1, CQN
        Strobe, when nothing is being read.
    rung, rung_number : 1, CQN
        Strobe: a doorbell of this CQ, whose number stands here since the cycle before.
    request : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        64 bytes each.
    done, bad : 1
        Strobe: ``record`` is there; or the bus has failed, and it is undefined.
    record
        From the cycle after ``done`` on.
    """

    def __init__(self, data_width):
        self.data_width = data_width
        super().__init__(
            {
                "base": In(64),
                "go": In(1),
                "number": In(CQN_BITS),
                "rung": In(1),
                "rung_number": In(CQN_BITS),
                "request": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
                "done": Out(1),
                "bad": Out(1),
                "record": Out(record_layout(CQ_RECORD)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        number = Signal(CQN_BITS)
        again, rings, near = Signal(), Signal(), Signal()
        lanes = self.data_width // WORD
        beat = Signal(range(max(2, CQC_BYTES * 8 // self.data_width)))
        ends = Signal()
        m.d.comb += [
            rings.eq(self.rung & near),
            self.request.payload.address.eq(record_address(self.base, number)),
            self.request.payload.length.eq(CQC_BYTES),
            ends.eq(self.data.valid & self.data.ready & self.data.payload.last),
            self.bad.eq(self.data.payload.error),
        ]
        m.d.sync += near.eq(self.rung_number == number)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += number.eq(self.number)
                with m.If(self.go):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += self.request.valid.eq(1)
                m.d.sync += again.eq(rings)
                with m.If(self.request.ready):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.data.ready.eq(1)
                m.d.sync += again.eq(again | rings)
                with m.If(self.data.valid):
                    m.d.sync += beat.eq(beat + 1)
                with m.If(ends):
                    m.d.sync += beat.eq(0)
                    m.next = "ASK"
                    with m.If(self.bad | ~(again | rings)):
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
        for name, field in CQ_RECORD.fields.items():
            place, bit = divmod(field.offset, WORD)
            at, lane = divmod(place, lanes)
            with m.If(self.data.valid & (beat == at)):
                first = lane * WORD + bit
                m.d.sync += self.record[name].eq(self.data.payload.data[first : first + field.width])
        return m
