"""The event queue: EQEs to its ring in host memory, and the interrupt."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.eqe import EQE
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.transfer import Done, Event, ReadRequest

__all__ = ["EventWriter"]


class EventWriter(wiring.Component):
    """Writes each ``Event`` as an EQE into the event ring, and holds ``interrupt`` while the driver has EQEs to read.

    Nothing is lost: events wait at ``event`` while the ring is full, and until the ring exists, that is until the first
    ``eq_reset``. An EQE takes 3 cycles. Up to 15 EQEs are in flight; ``done`` is always accepted.

    A reset of the ring waits until the EQEs in flight are written (to the ring that was) and then zeroes the indices;
    ``eq_base`` and ``eq_log_size`` must be set by then, and ``eq_consumer`` be 0. An EQE whose write ends in an error
    is lost, and its place passed: the driver finds later ones behind it.

    Parameters
    ----------
    data_width : int
        Bits of ``data``: 64, 128, 256 or 512.

    Members
    -------
    eq_base : 64; eq_log_size : 4
        The ring, 4 KiB aligned, of ``1 << eq_log_size`` EQEs.
    eq_reset : 1
        Strobe: the ring begins anew.
    eq_consumer : 16
        Free-running index of the next EQE that the driver will read.
    event : stream of ``Event``
    write : stream of ``ReadRequest``; data : stream of ``PacketBeat``; done : stream of ``Done``
        A request of 16 bytes, a packet and an answer for each EQE, in order. A packet may begin before its request.
    interrupt : 1
        High while an EQE that is visible has not been consumed; 1 cycle behind, and low while a reset waits.
    idle : 1
        No event waits that could be written, and nothing is in flight.
    count_events : 1
        Strobe: an EQE has been written, without an error.
    """

    def __init__(self, data_width):
        beat = PacketBeat(data_width)
        self.data_width = data_width
        super().__init__(
            {
                "eq_base": In(64),
                "eq_log_size": In(4),
                "eq_reset": In(1),
                "eq_consumer": In(16),
                "event": In(stream.Signature(Event)),
                "write": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "interrupt": Out(1),
                "idle": Out(1),
                "count_events": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._producer, self._written = producer, written = Signal(16), Signal(16)  # tests set them near their wrap
        used = Signal(16)
        flying = Signal(4)
        exists = Signal()
        reset = Signal()
        unplaced = Signal()
        beats = max(1, EQE.size * 8 // self.data_width)
        number = Signal(range(max(2, beats)))
        phase = Signal()
        slot = Signal(16)
        waits = Signal()  # nothing to do until the driver acts
        room = Signal()  # the ring exists, and is not full
        may = Signal()  # and another EQE may be in flight
        held = Signal(Event)
        sized = Cat(self.eq_log_size > k for k in range(16))

        launched = Signal()
        m.d.comb += [self.done.ready.eq(1), self.count_events.eq(self.done.valid & (self.done.payload.status == 0))]
        m.d.sync += [
            used.eq(producer - self.eq_consumer),
            self.interrupt.eq(exists & ~reset & (written != self.eq_consumer)),
        ]
        open_ = exists & ((used & ~sized) == 0)
        m.d.sync += [room.eq(open_), may.eq(open_ & ~flying.all())]
        m.d.sync += flying.eq(flying + launched - self.done.valid)
        with m.If(self.done.valid):
            m.d.sync += written.eq(written + 1)
        with m.If(self.eq_reset):
            m.d.sync += reset.eq(1)
        with m.FSM():
            with m.State("SETTLE"):  # `room` and `may` follow `producer` two cycles later
                m.next = "SETTLED"
            with m.State("SETTLED"):
                m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += [waits.eq(~reset & ~(self.event.valid & room)), self.event.ready.eq(~reset & may)]
                m.d.sync += held.eq(self.event.payload)
                m.d.sync += [slot.eq(producer & sized), phase.eq(~producer.bit_select(self.eq_log_size, 1))]
                with m.If(reset):
                    with m.If(flying == 0):
                        m.d.sync += [reset.eq(self.eq_reset), exists.eq(1), producer.eq(0), written.eq(0)]
                        m.next = "SETTLE"
                with m.Elif(self.event.valid & may):
                    m.d.sync += [unplaced.eq(1), producer.eq(producer + 1)]
                    m.d.comb += launched.eq(1)
                    m.next = "SEND"
            with m.State("SEND"):
                last = number == beats - 1
                m.d.comb += [self.data.valid.eq(~last | ~unplaced), self.data.payload.last.eq(last)]
                with m.If(self.data.valid & self.data.ready):
                    m.d.sync += number.eq(number + 1)
                    with m.If(last):
                        m.d.sync += number.eq(0)
                        m.next = "IDLE"

        eqe = Signal(record_layout(EQE))
        m.d.comb += [
            eqe.type.eq(held.type),
            eqe.number.eq(held.number),
            eqe.phase.eq(phase),
            self.data.payload.data.eq(eqe.as_value().word_select(number, min(128, self.data_width))),
            self.data.payload.count.eq(min(EQE.size, self.data_width // 8)),
            self.data.payload.first.eq(number == 0),
            self.write.payload.length.eq(EQE.size),
            self.idle.eq(waits & (flying == 0)),
        ]
        offset = slot << 4
        with m.If(self.write.valid):
            m.d.sync += self.write.valid.eq(~self.write.ready)
        with m.Elif(unplaced):
            m.d.sync += [
                unplaced.eq(0),
                self.write.valid.eq(1),
                self.write.payload.address.eq(Cat(offset[:12], self.eq_base[12:] + offset[12:])),
            ]
        return m
