"""Completion queues: CQEs to rings in host memory, and the events they cause."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import CQ_CONTEXT, CQ_CONTEXT_WORDS
from ..abi.cqc import CQ_RECORD, CQC_SAVED, CQN_BITS
from ..abi.cqe import CQE, WcStatus
from ..abi.eqe import EventType
from ..stream.packet import PacketBeat
from ..stream.record import record_layout
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, Completion, CqControl, Done, Event, QpError, ReadRequest
from .cq_doorbells import CqArm, CqDoorbells, CqIndex
from .cq_due import CqDue
from .cq_fetch import CqFetch, record_address
from .cq_flights import CqFlights
from .cq_notices import CqNotices

__all__ = ["CompletionWriter"]

COPIED = (
    "immediate",
    "byte_length",
    "status",
    "opcode",
    "flags",
    "wqe_index",
    "qpn",
    "source_qpn",
    "syndrome",
)
"""Fields of a CQE that are those of the completion."""

RING, MODERATION, VECTOR = ("base", "log_size", "valid"), ("cq_count", "cq_period"), ("comp_vector",)
"""Fields of a CQ's attributes."""

WORDS = 3
"""32-bit words that hold those of the ring."""


class CompletionWriter(wiring.Component):
    """Writes each ``Completion`` as a CQE into the ring of its CQ, and raises an event once the CQE is visible.

    A CQE takes 7 cycles at 64 bits, 5 from 128 bits on, one less behind another one of the same CQ; ``writes`` CQEs are
    in flight. ``write`` and ``data`` come 2 cycles after a completion if ``hint_cq`` told of it 2 cycles before.
    ``done`` is taken at once (but not in the two cycles behind its own write) and waits for nobody: nor do arming and
    events ever stop CQEs of CQs that have their slot. A doorbell is taken every third cycle at most, and counts from
    the third cycle on.

    *Slots*: a CQ has a place on chip while it is used, the one that the low bits of its number say. A completion, or a
    command, of another one of these waits until no CQE is in flight and the CQ that is there has no event to say. Then
    that is written back (a CQE's ``write`` and ``data``, of 16 bytes), and the other one's record is read. Doorbells of
    a CQ without a slot are taken and forgotten: the driver's word of the record says the same. A miss takes 28
    cycles at 64 bits, 19 at 512, besides a read of the memory and what is in flight.

    *Events*: arming is one-shot and adds up: it counts until the first CQE that fulfils one. A CQ whose event still
    waits for ``event`` gets no second one; the one to come says it all. With ``moderation`` an event waits for more
    CQEs of its CQ, or some time (:class:`.cq_moderation.CqModeration`). An error is said at once. So is the event of a
    CQ that a command is about, or whose slot another CQ is to have.

    *Errors*: a CQE for which the ring has no room (``consumer`` is a whole ring behind, or nonsense) is not written,
    nor is any later one: the CQ is dead until ``control``, and a CQ_ERR event says so once. A write that ends in an
    error does the same. Completions for a CQ that is dead, not ``valid``, beyond the table, or whose record cannot be
    read, are dropped. A record that cannot be written back is told by CQ_ERR. Each CQE not
    written strobes ``count_cq_overruns``, and if it would have told of success, its QP is reported with QP_FATAL: one
    that failed is on its way to ERR without that.

    *Control*: accepted when no write is in flight any more: the ring's memory is then free. All CQEs wait meanwhile,
    and after a ``hold`` until the next control is accepted: between the two the CQ's attributes may be written. With
    ``control_bad`` its record could not be read: it is as before, and nothing waits.

    Parameters
    ----------
    data_width : int
        Bits of ``data``: 64, 128, 256 or 512.
    cqs : int
        CQs that have a slot, a power of two, at least 2.
    writes : int
        Most CQEs in flight.
    moderation : bool
        CQs have ``cq_count`` and ``cq_period``.
    queues : int
        Event queues, a power of two: CQs have ``comp_vector`` if there are several.

    Members
    -------
    attribute, attribute_en
        The command block's broadcast of words of CQ contexts.
    base, log_size : 64, 4
        Bus address of the table, aligned to its size, and the logarithm of the number of CQs in it.
    fetch : stream of ``ReadRequest``; fetched : stream of ``PacketBeat``
        Records, of 64 bytes.
    completion : stream of ``Completion``
        The payload is taken with the CQE's last beat.
    hint_cq : CQ index
        Probably that of the next completion; a wrong one costs only time.
    write : stream of ``ReadRequest``; data : stream of ``PacketBeat``; done : stream of ``Done``
        A request of 32 bytes, a packet and an answer for each CQE, in order; or of 16, for a record. A packet may begin
        before its request.
    consumer : stream of ``CqIndex``; arm : stream of ``CqArm``
        Doorbells.
    control : stream of ``CqControl``; control_bad : 1
    event : ``queues`` streams of ``Event``
        COMPLETION, and in the first one CQ_ERR; ``number`` is the CQ.
    unit : 1
        With ``moderation``, strobe: a unit of time begins.
    moderates : 1
        With ``moderation``: an event waits for more CQEs or its time.
    error : stream of ``QpError``
        A QP has lost a completion. CQEs wait for whoever takes it.
    waits, moves : 1
        A completion waits to be written, or has not been answered; none waits to be written, or one is taken.
    mark, visible : 1
        Strobe; and from the cycle after it: what was taken before the strobe is in memory, or has been lost, which
        ``error`` says 8 cycles later at the latest.
    idle : 1
        Nothing is to be written, to be answered or to be said.
    count_cqes, count_cq_overruns, count_cq_fetches : 1
        Strobes.
    """

    def __init__(self, data_width, cqs, *, writes=16, moderation=False, queues=1):
        if not isinstance(cqs, int) or not 2 <= cqs <= 4096 or cqs & cqs - 1:
            raise ValueError(f"cqs must be a power of two, 2 to 4096, not {cqs!r}")
        if not isinstance(writes, int) or not 2 <= writes <= 64:
            raise ValueError(f"writes must be 2 to 64, not {writes!r}")
        beat = PacketBeat(data_width)
        self.data_width = data_width
        self.cqs = cqs
        self.writes = writes
        self.moderation = moderation
        self.queues = queues
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "base": In(64),
                "log_size": In(4),
                "fetch": Out(stream.Signature(ReadRequest)),
                "fetched": In(stream.Signature(beat)),
                "completion": In(stream.Signature(Completion)),
                "hint_cq": In(Completion.members["cq"]),
                "write": Out(stream.Signature(ReadRequest)),
                "data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "consumer": In(stream.Signature(CqIndex)),
                "arm": In(stream.Signature(CqArm)),
                "control": In(stream.Signature(CqControl)),
                "control_bad": Out(1),
                "event": Out(stream.Signature(Event)).array(queues),
                "error": Out(stream.Signature(QpError)),
                "waits": Out(1),
                "moves": Out(1),
                "mark": In(1),
                "visible": Out(1),
                "idle": Out(1),
                "count_cqes": Out(1),
                "count_cq_overruns": Out(1),
                "count_cq_fetches": Out(1),
            }
            | ({"unit": In(1), "moderates": Out(1)} if moderation else {})
        )

    def elaborate(self, platform):
        m = Module()
        cq_bits = ceil_log2(self.cqs)
        payload = self.completion.payload
        kept = RING + MODERATION * self.moderation + VECTOR * (self.queues > 1)
        words = CQ_CONTEXT_WORDS if kept != RING else WORDS
        m.submodules.table = table = Table(CQ_CONTEXT, kept, self.cqs)
        m.submodules.producers = producers = memory.Memory(shape=16, depth=self.cqs, init=[])
        tag = data.StructLayout({"valid": 1, "high": CQN_BITS - cq_bits})
        m.submodules.tags = tags = memory.Memory(shape=tag, depth=self.cqs, init=[])
        m.submodules.doorbells = doorbells = CqDoorbells(self.cqs)
        m.submodules.notices = notices = CqNotices(self.cqs, self.queues)
        m.submodules.reader = reader = CqFetch(self.data_width)
        m.submodules.flights = flights = CqFlights(self.writes)
        m.submodules.due = due = CqDue(self.cqs, moderation=self.moderation, queues=self.queues)
        produce, produced = producers.write_port(), producers.read_port(domain="comb")
        place, (here, rung_here) = tags.write_port(), [tags.read_port(domain="comb") for _ in range(2)]
        wiring.connect(m, reader.request, wiring.flipped(self.fetch))
        wiring.connect(m, wiring.flipped(self.fetched), reader.data)
        wiring.connect(m, wiring.flipped(self.consumer), doorbells.consumer)
        wiring.connect(m, wiring.flipped(self.arm), doorbells.arm)
        wiring.connect(m, doorbells.armed, notices.arm)
        wiring.connect(m, wiring.flipped(self.done), flights.done)
        for said, event in zip(due.o, notices.due):
            wiring.connect(m, said, event)
        for said, event in zip(notices.event, self.event):
            wiring.connect(m, said, wiring.flipped(event))

        # -- Whoever is idle looks up what may be needed next: `known`: row, position and notice are those of `number`;
        # `placed`: and what derives from them is, too.
        controlled = Signal()  # a command's CQ is looked at
        whole, before = Signal(len(payload.cq)), Signal(len(payload.cq))  # in this cycle, and in the one before
        number, cq = before[:CQN_BITS], before[:cq_bits]
        row, record = table.row, reader.record
        position, used, slot = Signal(16), Signal(16), Signal(16)
        dead, match, beyond, phase, full = Signal(), Signal(), Signal(), Signal(), Signal()
        base = Signal(64)
        looking, same, known, placed = Signal(), Signal(), Signal(), Signal()
        waits, drains = Signal(), Signal()  # a completion is not taken in this cycle; a CQ gives its slot
        steady, settled = Signal(), Signal()  # `whole` is `before`, because whoever is looked at stays
        holder = Signal(tag)
        filled = Signal()
        sized = Cat(row.log_size > k for k in range(16))
        coming = Mux(self.completion.valid, payload.cq, self.hint_cq)
        # Whether `whole` is `before`; compared one by one, since the multiplexer would come before the comparison.
        stays = Mux(
            controlled,
            settled,
            Mux(self.completion.valid, payload.cq == before, self.hint_cq == before),
        )
        m.d.comb += [
            whole.eq(Mux(controlled, self.control.payload.cq, coming)),
            known.eq(same & steady & ~table.write_conflict[1]),
            *(port.addr.eq(whole[:cq_bits]) for port in (produced, here)),
            table.index.eq(whole[:cq_bits]),
            notices.look.eq(whole[:cq_bits]),
            doorbells.look.eq(whole[:cq_bits]),
        ]
        m.d.sync += [
            before.eq(whole),
            steady.eq(waits | drains),
            settled.eq(drains & controlled),
            filled.eq(place.en),
            same.eq(looking & stays & ~doorbells.changed & ~notices.changed & ~filled),
            placed.eq(looking & same & stays & ~table.write_conflict[1]),
            position.eq(produced.data),
            used.eq(produced.data - doorbells.index),
            dead.eq(notices.notice.dead),
            holder.eq(here.data),
            match.eq(holder.valid & (holder.high == number[cq_bits:])),
            beyond.eq((before >> self.log_size) != 0),
            full.eq((used & ~sized) != 0),
            slot.eq(position & sized),
            base.eq(row.base),
            phase.eq(~position.bit_select(row.log_size, 1)),
        ]

        # -- One CQE: look up, check, write. Or another CQ gets the slot.
        unplaced, go = Signal(), Signal()
        checks, over = Signal(), Signal()  # whether the ring is full is seen in this cycle: it is
        saving = Signal()  # what is written is a record
        reset, filling, sweeping = Signal(), Signal(), Signal()
        quiet = Signal()
        sends, second = Signal(), Signal()  # a beat of a record is offered; it is the second
        swept = Signal(range(self.cqs))
        word = Signal(range(words))
        saved, old_number = Signal(record_layout(CQ_RECORD)), Signal(CQN_BITS)
        beats = max(1, 256 // self.data_width)
        beat = Signal(range(max(2, beats)))
        last = Signal(init=beats == 1)  # `beat` is the last one
        saved_beats = max(1, 8 * CQC_SAVED // self.data_width)
        with m.FSM(name="cqe"):
            with m.State("SWEEP"):
                # A reset does not reach what the slots hold.
                m.d.comb += [sweeping.eq(1), place.en.eq(1), notices.change.clear.eq(1)]
                m.d.sync += swept.eq(swept + 1)
                with m.If(swept == self.cqs - 1):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [
                    looking.eq(1),
                    waits.eq(self.completion.valid & ~self.control.valid),
                    quiet.eq(~self.completion.valid & ~self.control.valid),
                ]
                m.d.sync += [controlled.eq(0), saving.eq(0)]
                with m.If(self.control.valid):
                    m.d.sync += controlled.eq(1)
                    m.next = "DRAIN"
                with m.Elif(flights.i.ready & known):
                    with m.If(beyond):
                        m.next = "DROP"
                    with m.Elif(~match):
                        m.next = "DRAIN"
                    with m.Elif(~row.valid | dead):
                        m.next = "DROP"
                    with m.Elif(placed & full):
                        m.next = "OVERRUN"
                    with m.Else():
                        m.d.comb += go.eq(placed & ~self.write.valid)
                        m.d.sync += [unplaced.eq(~go), checks.eq(~placed)]
                        m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [
                    over.eq(checks & full),
                    self.data.valid.eq(~over & (~last | ~unplaced)),
                    self.data.payload.last.eq(last),
                ]
                m.d.sync += checks.eq(0)
                with m.If(over):
                    m.d.sync += unplaced.eq(0)
                    m.next = "OVERRUN"
                with m.Elif(self.data.valid & self.data.ready):
                    m.d.sync += [beat.eq(beat + 1), last.eq(beat == beats - 2)]
                    with m.If(last):
                        m.d.sync += [beat.eq(0), last.eq(beats == 1)]
                        m.d.comb += [produce.en.eq(1), flights.i.valid.eq(1), self.completion.ready.eq(1)]
                        m.next = "LOOK"
            with m.State("OVERRUN"):
                m.d.comb += notices.change.lose.eq(1)
                with m.If(notices.granted):
                    m.next = "DROP"
            with m.State("DROP"):
                m.d.comb += self.error.valid.eq(payload.status == WcStatus.SUCCESS)
                with m.If(self.error.ready | ~self.error.valid):
                    m.d.comb += [self.completion.ready.eq(1), self.count_cq_overruns.eq(1)]
                    m.next = "LOOK"

            # Nothing of any CQ is in flight, and nothing is to be said of the one that has the slot.
            with m.State("DRAIN"):
                m.d.comb += [looking.eq(1), drains.eq(1)]
                still = ~flights.any & ~notices.answer & ~notices.busy & ~notices.lost
                with m.If(known & placed & still):
                    with m.If(controlled & match):
                        m.next = "RESET"
                    with m.Elif(~notices.notice.waiting):
                        m.next = "GIVE"
            with m.State("GIVE"):
                m.d.sync += old_number.eq(Cat(cq, holder.high))
                m.next = "ASK"
                with m.If(holder.valid):
                    m.d.sync += [saving.eq(1), unplaced.eq(1)]
                    m.next = "SAVE"
            with m.State("SAVE"):
                final = second | (saved_beats == 1)
                m.d.comb += [sends.eq(1), self.data.valid.eq(~final | ~unplaced), self.data.payload.last.eq(final)]
                with m.If(self.data.valid & self.data.ready):
                    m.d.sync += second.eq(~final)
                    with m.If(final):
                        m.d.comb += flights.i.valid.eq(1)
                        m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += [reader.go.eq(1), self.count_cq_fetches.eq(1)]
                m.next = "FETCH"
            with m.State("FETCH"), m.If(reader.done):
                m.next = "FILL"
                with m.If(reader.bad):
                    m.next = "DROP"
                    with m.If(controlled):
                        m.next = "REFUSE"
            with m.State("FILL"):
                m.d.comb += [filling.eq(1), produce.en.eq(1), notices.change.fill.eq(word == words - 1)]
                with m.If((word != words - 1) | notices.granted):
                    m.d.sync += word.eq(word + 1)
                with m.If(notices.change.fill & notices.granted):
                    m.d.comb += place.en.eq(1)
                    m.d.sync += word.eq(0)
                    m.next = "LOOK"
                    with m.If(controlled):
                        m.next = "RESET"

            with m.State("REFUSE"):
                m.d.comb += [self.control.ready.eq(1), self.control_bad.eq(1)]
                m.next = "LOOK"
            with m.State("RESET"):
                control = self.control.payload
                stays = control.stay if self.moderation else 0
                m.d.comb += [
                    reset.eq(~stays),
                    produce.en.eq(reset),
                    notices.change.renew.eq(~control.keep),
                    notices.change.turn.eq(control.keep & control.hold & reset),
                ]
                with m.If(notices.granted):
                    m.d.comb += self.control.ready.eq(1)
                    m.next = "LOOK"
                    with m.If(self.control.payload.hold):
                        m.next = "HELD"
            with m.State("HELD"), m.If(self.control.valid):
                m.next = "RESET"

        m.d.comb += [
            place.addr.eq(Mux(sweeping, swept, cq)),
            place.data.valid.eq(~sweeping),
            place.data.high.eq(number[cq_bits:]),
            produce.addr.eq(cq),
            produce.data.eq(Mux(filling, record.producer, Mux(reset, 0, position + 1))),
            notices.change_number.eq(Mux(sweeping, swept, number)),
            *(notices.record[name].eq(record[name]) for name in CqNotices.KEPT),
            reader.base.eq(self.base),
            reader.number.eq(number),
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en | filling),
            self.error.payload.qp.eq(payload.qp),
            self.error.payload.event.eq(EventType.QP_FATAL),
            due.write.eq(table.write),
            due.write_en.eq(table.write_en),
            due.news.eq(notices.news),
            due.news_en.eq(notices.news_en),
            flights.mark.eq(self.mark),
            self.visible.eq(flights.visible),
            self.waits.eq(self.completion.valid | flights.any),
            self.moves.eq(~self.completion.valid | self.completion.ready),
            self.idle.eq(quiet & ~flights.any & notices.idle & ~due.waits),
        ]
        if self.moderation:
            m.d.comb += [
                due.unit.eq(self.unit),
                due.hurry.eq(drains | controlled),
                due.hurry_slot.eq(cq),
                self.moderates.eq(due.moderates),
            ]
        with m.If(filling):
            fields = Signal(record_layout(CQ_CONTEXT))
            m.d.comb += [
                *(fields[name].eq(record[name]) for name in kept),
                table.write.index.eq(cq),
                table.write.word.eq(word),
                table.write.data.eq(fields.as_value().word_select(word, 32)),
            ]

        # -- Doorbells: of a CQ without a slot they are in its record, and who reads it knows that they came.
        consumer = Mux(record.consumer_ring == record.ring, record.consumer, 0)
        m.d.comb += [
            rung_here.addr.eq(doorbells.number[:cq_bits]),
            doorbells.here.eq(rung_here.data.valid & (rung_here.data.high == doorbells.number[cq_bits:])),
            doorbells.closed.eq(filling | sweeping),
            doorbells.set.eq(reset | filling),
            doorbells.set_slot.eq(cq),
            doorbells.set_index.eq(Mux(filling, consumer, 0)),
            reader.rung.eq(doorbells.rung),
            reader.rung_number.eq(doorbells.number),
        ]

        # -- What is written.
        cqe = Signal(record_layout(CQE))
        out = self.data.payload
        m.d.comb += [cqe[name].eq(payload[name]) for name in COPIED]
        m.d.comb += [
            cqe.source_ip.eq(payload.source.ip),
            cqe.traffic_class.eq(payload.source.traffic_class),
            cqe.hop_limit.eq(payload.source.hop_limit),
        ]
        old = Value.cast(saved)[: 8 * CQC_SAVED]
        m.d.comb += [
            *(saved[name].eq(row[name]) for name in kept),
            *(saved[name].eq(notices.notice[name]) for name in CqNotices.SAVED),
            saved.producer.eq(position),
        ]
        m.d.comb += [
            cqe.phase.eq(phase),
            out.data.eq(cqe.as_value().word_select(beat, min(256, self.data_width))),
            out.count.eq(min(32, self.data_width // 8)),
            out.first.eq(beat == 0),
            flights.i.payload.number.eq(number),
            flights.i.payload.urgent.eq(payload.solicited | (payload.status != 0)),
            flights.i.payload.saves.eq(saving),
        ]
        with m.If(sends):
            m.d.comb += [
                out.data.eq(old.word_select(second, min(8 * CQC_SAVED, self.data_width))),
                out.count.eq(min(CQC_SAVED, self.data_width // 8)),
                out.first.eq(~second),
            ]
        offset = slot << ceil_log2(CQE.size)
        with m.If(self.write.valid):
            m.d.sync += self.write.valid.eq(~self.write.ready)
        with m.Else():
            m.d.sync += [
                self.write.valid.eq((unplaced & ~over) | go),
                self.write.payload.length.eq(CQE.size),
                self.write.payload.address.eq(Cat(offset[:12], base[12:] + offset[12:])),
            ]
            with m.If(saving):
                m.d.sync += [
                    self.write.payload.length.eq(CQC_SAVED),
                    self.write.payload.address.eq(record_address(self.base, old_number)),
                ]
            with m.If(unplaced):
                m.d.sync += unplaced.eq(0)

        # -- Answers.
        m.d.comb += [notices.lost_number.eq(old_number), self.count_cqes.eq(notices.count_cqes)]
        m.d.sync += [
            notices.answer.eq(flights.o_en & ~flights.o.saves),
            notices.number.eq(flights.o.number),
            notices.urgent.eq(flights.o.urgent),
            notices.failed.eq(flights.failed),
        ]
        with m.If(notices.lost_said):
            m.d.sync += notices.lost.eq(0)
        with m.If(flights.o_en & flights.o.saves & flights.failed):
            m.d.sync += notices.lost.eq(1)
        return m
