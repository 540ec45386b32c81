"""Completion queues: CQEs to rings in host memory, and the events they cause."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import CQ_CONTEXT
from ..abi.cqe import CQE, WcStatus
from ..abi.eqe import EventType
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, Completion, CqControl, Done, Event, QpError, ReadRequest

__all__ = ["CompletionWriter", "CqArm", "CqIndex"]

CqIndex = data.StructLayout({"cq": 12, "index": 16})
"""Consumer index of a CQ, free-running."""

CqArm = data.StructLayout({"cq": 12, "flags": 2})
"""Bit 0: an event at the next completion; bit 1: at the next one that is solicited or in error."""

_Notice = data.StructLayout({"armed": 2, "completion": 1, "error": 1, "waiting": 1, "dead": 1})
"""What is to be said of a CQ: how it is armed, which events are due, if it waits for its turn, if it is dead."""


class CompletionWriter(wiring.Component):
    """Writes each ``Completion`` as a CQE into the ring of its CQ, and raises an event once the CQE is visible.

    A CQE takes 7 cycles at 64 bits, 5 from 128 bits on, one less behind another one of the same CQ; ``writes`` CQEs are
    in flight. ``write`` and ``data`` come in the cycle after a completion if ``hint_cq`` told of it 3 cycles before.
    ``done`` is taken at once (but not in the two cycles behind its own write) and waits for nobody: nor do arming and
    events ever stop CQEs.

    *Events*: arming is one-shot and adds up: flags stay until the first CQE that fulfils one, then both are cleared. A
    CQ whose event still waits for ``event`` gets no second one; the one to come says it all.

    *Errors*: a CQE for which the ring has no room (``consumer`` is a whole ring behind, or nonsense) is not written,
    nor is any later one: the CQ is dead until ``control``, and a CQ_ERR event says so once. A write that ends in an
    error does the same. Completions for a CQ that is dead, not ``valid`` or beyond ``cqs`` are dropped. Each CQE not
    written strobes ``count_cq_overruns``, and if it would have told of success, its QP is reported with QP_FATAL: one
    that failed is on its way to ERR without that.

    *Control*: accepted when no write is in flight any more: the ring's memory is then free. All CQEs wait meanwhile,
    and after a ``hold`` until the next control is accepted: between the two the CQ's attributes may be written.

    Parameters
    ----------
    data_width : int
        Bits of ``data``: 64, 128, 256 or 512.
    cqs, qps : int
        CQs and QPs, powers of two, at least 2. The QP number in a CQE is ``qps`` plus the index.
    writes : int
        Most CQEs in flight.

    Members
    -------
    attribute, attribute_en
        The command block's broadcast of words of CQ contexts.
    completion : stream of ``Completion``
        The payload is taken with the CQE's last beat.
    hint_cq : CQ index
        Probably that of the next completion; a wrong one costs only time.
    write : stream of ``ReadRequest``; data : stream of ``PacketBeat``; done : stream of ``Done``
        A request of 32 bytes, a packet and an answer for each CQE, in order. A packet may begin before its request.
    consumer : stream of ``CqIndex``; arm : stream of ``CqArm``
        Doorbells.
    control : stream of ``CqControl``
    event : stream of ``Event``
        COMPLETION and CQ_ERR, ``number`` is the CQ.
    error : stream of ``QpError``
        A QP has lost a completion. CQEs wait for whoever takes it.
    moves : 1
        No completion waits, or one is taken.
    idle : 1
        Nothing is to be written, to be answered or to be said.
    count_cqes, count_cq_overruns : 1
        Strobes.
    """

    def __init__(self, data_width, cqs, qps, *, writes=16):
        for name, count in ("cqs", cqs), ("qps", qps):
            if not isinstance(count, int) or not 2 <= count <= 4096 or count & count - 1:
                raise ValueError(f"{name} must be a power of two, 2 to 4096, not {count!r}")
        if not isinstance(writes, int) or not 2 <= writes <= 64:
            raise ValueError(f"writes must be 2 to 64, not {writes!r}")
        beat = PacketBeat(data_width)
        self.data_width = data_width
        self.cqs = cqs
        self.qps = qps
        self.writes = writes
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "completion": In(stream.Signature(Completion)),
                "hint_cq": In(Completion.members["cq"]),
                "write": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "consumer": In(stream.Signature(CqIndex)),
                "arm": In(stream.Signature(CqArm)),
                "control": In(stream.Signature(CqControl)),
                "event": Out(stream.Signature(Event)),
                "error": Out(stream.Signature(QpError)),
                "moves": Out(1),
                "idle": Out(1),
                "count_cqes": Out(1),
                "count_cq_overruns": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cq_bits = ceil_log2(self.cqs)
        payload = self.completion.payload
        cq = Signal(cq_bits)
        control_cq = self.control.payload.cq[:cq_bits]
        m.submodules.table = table = Table(CQ_CONTEXT, ("base", "log_size", "valid"), self.cqs)
        m.submodules.producers = producers = memory.Memory(shape=16, depth=self.cqs, init=[])
        m.submodules.consumers = consumers = memory.Memory(shape=16, depth=self.cqs, init=[])
        m.submodules.notices = notices = memory.Memory(shape=_Notice.size, depth=self.cqs, init=[])
        flight = data.StructLayout({"cq": cq_bits, "urgent": 1})
        m.submodules.flights = flights = Queue(flight, self.writes)
        m.submodules.due = due = Queue(cq_bits, self.cqs)
        produce, produced = producers.write_port(), producers.read_port(domain="comb")
        consume, consumed = consumers.write_port(), consumers.read_port(domain="comb")
        note, noted, state = (notices.write_port(), *(notices.read_port(domain="comb") for _ in range(2)))

        # One CQE: look up, check, write.
        row = table.row
        position = Signal(16)
        used = Signal(16)
        dead = Signal()
        slot = Signal(16)
        base = Signal(64)
        phase = Signal()
        unplaced, go = Signal(), Signal()
        overrun = Signal()  # wants the CQ marked dead
        reset = Signal()  # wants the CQ's notice cleared
        granted = Signal()
        beats = max(1, 256 // self.data_width)
        number = Signal(range(max(2, beats)))
        last = Signal(init=beats == 1)  # `number` is that of the last beat
        sized = Cat(row.log_size > k for k in range(16))
        # Whoever is idle looks up what may be needed next. `known`: row, position and notice are those of `cq`;
        # `placed`: and what derives from them is, too.
        looking, same, known, placed = Signal(), Signal(), Signal(), Signal()
        renewed = Signal()  # a CQ's life begins or ends
        before = Signal(cq_bits)
        m.d.sync += [
            before.eq(cq),
            same.eq(looking & (cq == before) & ~consume.en & ~renewed),
            placed.eq(looking & known),
        ]
        m.d.comb += [
            known.eq(same & (cq == before) & ~table.write_conflict[1]),
            cq.eq(Mux(self.completion.valid, payload.cq, self.hint_cq)),
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(cq),
            produced.addr.eq(cq),
            consumed.addr.eq(cq),
            state.addr.eq(cq),
            produce.addr.eq(Mux(reset, control_cq, cq)),
            produce.data.eq(Mux(reset, 0, position + 1)),
            consume.addr.eq(Mux(reset, control_cq, self.consumer.payload.cq)),
            consume.data.eq(Mux(reset, 0, self.consumer.payload.index)),
            consume.en.eq(reset | self.consumer.valid),
            self.consumer.ready.eq(~reset),
            self.error.payload.qp.eq(payload.qp),
            self.error.payload.event.eq(EventType.QP_FATAL),
            self.moves.eq(~self.completion.valid | self.completion.ready),
            flights.i.payload.cq.eq(cq),
            flights.i.payload.urgent.eq(payload.solicited | (payload.status != 0)),
        ]
        quiet = Signal()
        with m.FSM(name="cqe"):
            with m.State("LOOK"):
                m.d.comb += [looking.eq(1), quiet.eq(~self.completion.valid & ~self.control.valid)]
                m.d.sync += [
                    position.eq(produced.data),
                    used.eq(produced.data - consumed.data),
                    dead.eq(_Notice(state.data).dead),
                    slot.eq(position & sized),
                    base.eq(row.base),
                    phase.eq(~position.bit_select(row.log_size, 1)),
                ]
                with m.If(self.control.valid):
                    m.next = "DRAIN"
                with m.Elif(self.completion.valid & flights.i.ready & known):
                    with m.If(~row.valid | dead | (payload.cq[cq_bits:] != 0)):
                        m.next = "DROP"
                    with m.Elif((used & ~sized) != 0):
                        m.next = "OVERRUN"
                    with m.Else():
                        m.d.comb += go.eq(placed & ~self.write.valid)
                        m.d.sync += unplaced.eq(~go)
                        m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [self.data.valid.eq(~last | ~unplaced), self.data.payload.last.eq(last)]
                with m.If(self.data.valid & self.data.ready):
                    m.d.sync += [number.eq(number + 1), last.eq(number == beats - 2)]
                    with m.If(last):
                        m.d.sync += [number.eq(0), last.eq(beats == 1)]
                        m.d.comb += [produce.en.eq(1), flights.i.valid.eq(1), self.completion.ready.eq(1)]
                        m.next = "LOOK"
            with m.State("OVERRUN"):
                m.d.comb += overrun.eq(1)
                with m.If(granted):
                    m.next = "DROP"
            with m.State("DROP"):
                m.d.comb += self.error.valid.eq(payload.status == WcStatus.SUCCESS)
                with m.If(self.error.ready | ~self.error.valid):
                    m.d.comb += [self.completion.ready.eq(1), self.count_cq_overruns.eq(1)]
                    m.next = "LOOK"
            with m.State("DRAIN"):
                with m.If(flights.level == 0):
                    m.next = "RESET"
            with m.State("RESET"):
                m.d.comb += [reset.eq(1), produce.en.eq(1)]
                with m.If(granted):
                    m.d.comb += self.control.ready.eq(1)
                    m.next = "LOOK"
                    with m.If(self.control.payload.hold):
                        m.next = "HELD"
            with m.State("HELD"), m.If(self.control.valid):
                m.next = "RESET"

        cqe = Signal(record_layout(CQE))
        m.d.comb += [
            cqe[name].eq(payload[name])
            for name in ("immediate", "byte_length", "status", "opcode", "flags", "wqe_index", "source_qpn", "syndrome")
        ]
        m.d.comb += [
            cqe.qpn.eq(Cat(payload.qp[: ceil_log2(self.qps)], 1)),
            cqe.phase.eq(phase),
            self.data.payload.data.eq(cqe.as_value().word_select(number, min(256, self.data_width))),
            self.data.payload.count.eq(min(32, self.data_width // 8)),
            self.data.payload.first.eq(number == 0),
            self.write.payload.length.eq(CQE.size),
        ]
        offset = slot << ceil_log2(CQE.size)
        with m.If(self.write.valid):
            m.d.sync += self.write.valid.eq(~self.write.ready)
        with m.Else():
            m.d.sync += [
                self.write.valid.eq(unplaced | go),
                self.write.payload.address.eq(Cat(offset[:12], base[12:] + offset[12:])),
            ]
            with m.If(unplaced):
                m.d.sync += unplaced.eq(0)

        # Notices: answer, verdict, event or doorbell, one a cycle, and the answer goes first. It is chosen in one cycle
        # and applied in the next.
        chosen = Signal(data.StructLayout({"answer": 1, "verdict": 1, "reset": 1, "say": 1, "arm": 1}))
        chosen_cq = Signal(cq_bits)
        urgent, failed = Signal(), Signal()
        flags = Signal(2)
        answer = self.done.valid & flights.o.valid
        say = due.o.valid & ~chosen.say & (~self.event.valid | self.event.ready)
        m.d.comb += [
            self.done.ready.eq(flights.o.valid),
            flights.o.ready.eq(self.done.valid),
            granted.eq(~answer),
            self.arm.ready.eq(~answer & ~overrun & ~reset & ~say),
            self.count_cqes.eq(chosen.answer & ~failed),
        ]
        m.d.sync += [
            chosen.eq(0),
            urgent.eq(flights.o.payload.urgent),
            failed.eq(self.done.payload.status != 0),
            flags.eq(self.arm.payload.flags),
        ]
        with m.If(answer):
            m.d.sync += [chosen.answer.eq(1), chosen_cq.eq(flights.o.payload.cq)]
        with m.Elif(overrun | reset):
            m.d.sync += [
                chosen.verdict.eq(~reset),
                chosen.reset.eq(reset & ~self.control.payload.keep),
                chosen_cq.eq(Mux(reset, control_cq, cq)),
            ]
        with m.Elif(say):
            m.d.sync += [chosen.say.eq(1), chosen_cq.eq(due.o.payload)]
        with m.Else():
            m.d.sync += [chosen.arm.eq(self.arm.valid), chosen_cq.eq(self.arm.payload.cq)]

        old, new = Signal(_Notice), Signal(_Notice)
        push = Signal()
        fresh = Signal(init=1)  # since a reset, which does not reach the notices, nobody was put into `due`
        with m.If(push):
            m.d.sync += fresh.eq(0)
        m.d.comb += [
            noted.addr.eq(chosen_cq),
            note.addr.eq(chosen_cq),
            old.eq(noted.data),
            new.eq(old),
            note.data.eq(new),
            note.en.eq(chosen.as_value().any()),
            renewed.eq(chosen.reset | chosen.verdict),
        ]
        m.d.sync += [due.i.valid.eq(push & ~old.waiting), due.i.payload.eq(chosen_cq)]
        with m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)
        with m.If((chosen.answer & failed & ~old.dead) | chosen.verdict):
            m.d.comb += [new.error.eq(1), new.dead.eq(1), new.waiting.eq(1), push.eq(1)]
        with m.If(chosen.answer & ~failed & (old.armed[0] | (old.armed[1] & urgent))):
            m.d.comb += [new.completion.eq(1), new.armed.eq(0), new.waiting.eq(1), push.eq(1)]
        with m.If(chosen.reset):
            m.d.comb += [new.eq(0), new.waiting.eq(old.waiting & ~fresh)]
        with m.If(chosen.arm):
            m.d.comb += new.armed.eq(old.armed | flags)
        with m.If(chosen.say):
            m.d.sync += [
                self.event.valid.eq(old.completion | old.error),
                self.event.payload.type.eq(Mux(old.completion, EventType.COMPLETION, EventType.CQ_ERR)),
                self.event.payload.number.eq(chosen_cq),
            ]
            m.d.comb += new.completion.eq(0)
            with m.If(~(old.completion & old.error)):
                m.d.comb += [new.error.eq(0), new.waiting.eq(0), due.o.ready.eq(1)]
        pending = chosen.as_value().any() | due.i.valid | (due.level != 0) | self.event.valid
        m.d.comb += self.idle.eq(quiet & (flights.level == 0) & ~pending)
        return m
