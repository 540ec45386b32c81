"""Brings queue pairs to slots, and others from there to host memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import CommandStatus, QpAction
from ..abi.eqe import EventType
from ..context.directory import CLASS_BITS, PHASE_BITS, Row
from ..context.slot_table import SlotTable
from ..queue.ring import PushDoorbell, RingIndex
from ..stream.connections import connect_signals
from ..stream.transfer import Event, QpControl
from .next_job import JobKind, NextJob
from .qp_fetcher import QpFetcher
from .qp_loader import QpLoader
from .qp_saver import QpSaver

__all__ = ["SlotKeeper"]


class SlotKeeper(wiring.Component):
    """Does one job at a time: the QP that a command, a packet, a doorbell or a timer wants gets a slot. If none is free
    another QP leaves its slot before: one that was not used of late, and of which no READs or atomics are released and
    not answered. Who is next :class:`.next_job.NextJob` says.

    *A QP leaves* (:class:`.qp_saver.QpSaver`): when it is gone the directory says that it is away. If any QP has
    reported something meanwhile it comes back to its slot instead, and opens when what was reported is done. A QP that
    has something to do of which nobody will remind it is wanted at once.

    *A QP comes* (:class:`.qp_loader.QpLoader`): its record is read while others come or leave
    (:class:`.qp_fetcher.QpFetcher`). When it is there the directory tells, and its doorbells ring as the driver's part
    of its record says.

    A job is chosen, and then waits for ``grant``: a command that comes meanwhile is next, or next but one.

    A QP that is wanted, and has its slot, has its doorbells rung as well: who wants it may have met it on its way. If
    the bus does not give them the QP is wanted once more.

    A QP whose record cannot be read or written, or is not what was written, is forgotten, with the event QP_FATAL,
    whose number is the QP's index.

    Parameters
    ----------
    qps, slots : int
        Powers of two.
    users : int
        Who may use slots in the same cycle.
    forced : bool
        With ``evict``.

    Members
    -------
    wants, grant : 1
        There is a job; tokens and attributes may be used for it, from ``grant`` to ``done``.
    done : 1
        Strobe: a job has been done.
    bring, bring_index, bring_create : 1, QP index, 1
        A command needs the slot of this QP. It stands until ``brought``; with ``bring_create`` a QP that does not exist
        has a slot from then on.
    brought, slot, status : 1, slot, ``CommandStatus``
        With ``done``: the QP of ``bring`` has this slot, or cannot have one. If not ``brought`` something was done for
        it, or for another QP. What was reported meanwhile goes first.
    forget, forget_slot : 1, slot
        Strobe, while not ``grant``: the QP there exists no more.
    packet, packet_index, next_packet, next_packet_index : 1, QP index
        A packet waits for the first, and one behind that for the second.
    wanted : stream of QP index; want : stream of ``{qpn, member}``
        From and to the set of those that are wanted.
    evict : stream of slot; evict_skip : 1
        With ``forced``: the QP there leaves it; ``evict_skip``, with ``evict.ready``: there is none, or it must stay.
    closed, closed_qp : 1, 12
        Nothing of the QP in that slot may begin. It stays until ``opens``.
    opens : 1
        Nothing that was reported is still to be done.
    reports, completed : 1
        Something has been reported; of the QP that gives its state away no completion will begin any more.
    waits, moves, mark, visible : 1
        Of a :class:`verbena.hdl.queue.completion.CompletionWriter`.
    serving : 1
        READs or atomics of the peer of ``closed_qp`` are released and not answered, as of 2 cycles ago.
    room : 1
        There are rows for all READ targets that a QP may have.
    token : stream of ``QpControl``
    attributes_save, attributes_load, attributes_clear, attributes_busy : 1
        Of a :class:`.context_words.ContextWords`, for slot ``closed_qp``.
    collect, full, wake, write, write_index, writing, write_failed, written_index, read, read_index, whole, reading,
    bad, back, doorbells
        Of a :class:`verbena.hdl.context.store.QpStore`.
    timer, timer_phase : 5, 2
        Class of the timer that SAVE found, 0 if none runs; and its phase.
    timers : stream of ``{qpn, member}``
        To :class:`verbena.hdl.context.away_timers.AwayTimers`.
    ask : stream of QP index; answered, row, changed : 1, ``Row``, 1
        From the directory.
    place, place_index, new : 1, QP index, ``Row``
        To the directory: this row is written. From registers: a cycle after it was decided.
    used, used_en : array of slots, a bit each
    sq_ring, rq_ring : streams of ``PushDoorbell`` and ``RingIndex``
    event : stream of ``Event``
    idle : 1
        Nothing is to be done.
    count_qp_fetches : 1
        Strobe: a QP has come.
    """

    def __init__(self, qps, slots, *, users=3, forced=False):
        self.qps = qps
        self.slots = slots
        self.users = users
        self.forced = forced
        index, slot = range(qps), range(slots)
        change = stream.Signature(data.StructLayout({"qpn": index, "member": 1}))
        super().__init__(
            {
                "wants": Out(1),
                "grant": In(1),
                "done": Out(1),
                "bring": In(1),
                "bring_index": In(index),
                "bring_create": In(1),
                "brought": Out(1),
                "slot": Out(slot),
                "status": Out(CommandStatus),
                "forget": In(1),
                "forget_slot": In(slot),
                "packet": In(1),
                "packet_index": In(index),
                "next_packet": In(1),
                "next_packet_index": In(index),
                "wanted": In(stream.Signature(index)),
                "want": Out(change),
                "closed": Out(1),
                "closed_qp": Out(12),
                "opens": In(1),
                "reports": In(1),
                "waits": In(1),
                "moves": In(1),
                "mark": Out(1),
                "visible": In(1, init=1),
                "completed": In(1),
                "serving": In(1),
                "room": In(1),
                "token": Out(stream.Signature(QpControl)),
                "attributes_save": Out(1),
                "attributes_load": Out(1),
                "attributes_clear": Out(1),
                "attributes_busy": In(1),
                "collect": Out(1),
                "full": In(1),
                "wake": In(1),
                "write": Out(1),
                "write_index": Out(index),
                "writing": In(1),
                "write_failed": In(1),
                "written_index": In(index),
                "read": Out(1),
                "read_index": Out(index),
                "whole": Out(1),
                "reading": In(1),
                "bad": In(1),
                "back": Out(1),
                "doorbells": In(data.StructLayout({"sq_producer": 16, "rq_producer": 16})),
                "timer": In(CLASS_BITS),
                "timer_phase": In(PHASE_BITS),
                "timers": Out(change),
                "ask": Out(stream.Signature(index)),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "place": Out(1),
                "place_index": Out(index),
                "new": Out(Row(slots)),
                "used": In(slot).array(users),
                "used_en": In(users),
                "sq_ring": Out(stream.Signature(PushDoorbell)),
                "rq_ring": Out(stream.Signature(RingIndex)),
                "event": Out(stream.Signature(Event)),
                "idle": Out(1),
                "count_qp_fetches": Out(1),
            }
            | ({"evict": In(stream.Signature(slot)), "evict_skip": Out(1)} if forced else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetcher = fetcher = QpFetcher(self.qps, self.slots)
        m.submodules.table = table = SlotTable(self.slots, self.qps, self.users)
        m.submodules.next_job = next_job = NextJob(self.qps)
        m.submodules.saver = saver = QpSaver()
        m.submodules.loader = loader = QpLoader()
        wiring.connect(m, fetcher.ask, wiring.flipped(self.ask))
        wiring.connect(m, wiring.flipped(self.wanted), next_job.wanted)
        wiring.connect(m, next_job.o, fetcher.i)
        for number in range(self.users):
            m.d.comb += table.used[number].eq(self.used[number])

        # -- The job: whom it is for, and what has been done.
        kind, index = Signal(JobKind), Signal(range(self.qps))
        for_command, for_wanted, forces = (Signal() for _ in range(3))
        here, away, fresh, returns = (Signal() for _ in range(4))
        fetching, comes = Signal(), Signal()  # the job is at the fetcher; its QP is put into its slot
        target, has_target = Signal(range(self.slots)), Signal()
        had_timer = Signal()  # its timer ran while it was away
        own = table.looked  # who is, or was, in slot `closed_qp`
        wrote = Signal()  # a record is on its way, or it has not been looked whether it arrived
        missing = wrote & ~self.writing & self.write_failed
        tell_want, tell_timer, tells = Signal(), Signal(), Signal()
        lost = Signal(range(self.qps))
        peeks = Signal()
        m.d.comb += [
            table.used_en.eq(self.used_en),
            table.look.eq(self.closed_qp),
            fetcher.answered.eq(self.answered),
            fetcher.row.eq(self.row),
            fetcher.changed.eq(self.changed),
            fetcher.wrote.eq(wrote),
            fetcher.written_index.eq(self.written_index),
            fetcher.reading.eq(self.reading),
            fetcher.hold.eq(returns | saver.returns | self.write),
            self.read.eq(fetcher.read | saver.read | peeks),
            self.read_index.eq(Mux(saver.read, own, fetcher.o.payload.index)),
            self.whole.eq(~peeks),
            self.write.eq(saver.write),
            self.write_index.eq(own),
            for_command.eq(kind == JobKind.COMMAND),
            for_wanted.eq(kind == JobKind.WANTED),
            forces.eq(kind == JobKind.EVICT),
            self.slot.eq(target),
            tells.eq(tell_want | tell_timer),
            self.want.valid.eq(tell_want),
            self.want.payload.member.eq(1),
            self.timers.valid.eq(tell_timer),
            self.event.payload.type.eq(EventType.QP_FATAL),
            self.event.payload.number.eq(lost),
        ]
        place, place_index, new = Signal(), Signal.like(self.place_index), Signal.like(self.new)
        m.d.comb += place_index.eq(index)
        m.d.sync += [self.place.eq(place), self.place_index.eq(place_index), self.new.eq(new)]
        with m.If(self.want.ready):
            m.d.sync += tell_want.eq(0)
        with m.If(self.timers.ready):
            m.d.sync += tell_timer.eq(0)
        for ring in (self.sq_ring, self.rq_ring):
            with m.If(ring.ready):
                m.d.sync += ring.valid.eq(0)
        rung = ~(self.sq_ring.valid | self.rq_ring.valid)

        def ring(slot):
            for port, producer in (
                (self.sq_ring, self.doorbells.sq_producer),
                (self.rq_ring, self.doorbells.rq_producer),
            ):
                m.d.sync += [port.valid.eq(1), port.payload.qp.eq(slot), port.payload.index.eq(producer)]

        def lose(qp):
            m.d.sync += lost.eq(qp)
            m.next = "LOST"

        # -- Who leaves, and who comes.
        for part in (saver, loader):
            connect_signals(m, self, part, "attributes_busy", "reading")
            m.d.comb += part.said.eq(self.token.ready)
        connect_signals(m, self, saver, "serving", "full", "reports", "writing", "write_failed")
        connect_signals(m, self, saver, "completed", "waits", "moves", "visible")
        connect_signals(m, saver, self, "mark", "collect")
        m.d.comb += [
            saver.taken.eq(table.looked_taken),
            saver.missing.eq(missing),
            saver.told.eq(~tells),
            loader.fetched.eq(fetcher.fetched | returns),
            loader.bad.eq(self.bad),
            loader.missing.eq(missing),
            self.token.valid.eq(saver.say | loader.say),
            self.token.payload.qp.eq(self.closed_qp),
            self.token.payload.action.eq(Mux(loader.say, QpAction.LOAD, QpAction.SAVE)),
            self.attributes_save.eq(saver.collect),
            self.attributes_load.eq(loader.load),
            self.attributes_clear.eq(saver.clear),
            self.back.eq(loader.load),
            self.count_qp_fetches.eq(loader.say & self.token.ready),
        ]
        with m.If(self.opens | saver.left | saver.dropped):
            m.d.sync += self.closed.eq(0)
        with m.If(saver.collect | loader.closes):
            m.d.sync += self.closed.eq(1)
        with m.If(~self.writing & ~self.write_failed):
            m.d.sync += wrote.eq(0)
        with m.If(self.write):
            m.d.sync += wrote.eq(1)

        with m.If(self.forget):
            m.d.comb += [
                table.look.eq(self.forget_slot),
                table.free.eq(1),
                table.free_slot.eq(self.forget_slot),
                place.eq(1),
                place_index.eq(own),
            ]
        with m.If(saver.clear):
            m.d.comb += [
                table.free.eq(1),
                table.free_slot.eq(self.closed_qp),
                place.eq(1),
                place_index.eq(own),
                new.known.eq(saver.gone),
                new.away.timer.eq(Mux(saver.gone, self.timer, 0)),
                new.away.phase.eq(Mux(saver.gone, self.timer_phase, 0)),
            ]
        with m.If(saver.gone):
            m.d.sync += [
                tell_want.eq(self.wake),
                self.want.payload.qpn.eq(own),
                tell_timer.eq(self.timer != 0),
                self.timers.payload.qpn.eq(own),
                self.timers.payload.member.eq(1),
            ]
        with m.If(loader.load):
            ring(target)  # the next record has other doorbells
            with m.If(~returns):
                m.d.comb += fetcher.o.ready.eq(1)
                m.d.sync += [fetching.eq(0), comes.eq(1)]

        job = fetcher.o.payload
        packet, next_packet = Signal(), Signal()  # they wait for others than the one that comes
        m.d.comb += [
            next_job.command.eq(self.bring & ~(comes & for_command)),
            next_job.command_index.eq(self.bring_index),
            next_job.evict.eq(self.evict.valid if self.forced else 0),
            packet.eq(self.packet & ~(comes & (self.packet_index == index))),
            next_packet.eq(self.next_packet & ~(comes & (self.next_packet_index == index))),
            next_job.packet.eq(packet | next_packet),
            next_job.packet_index.eq(Mux(packet, self.packet_index, self.next_packet_index)),
        ]
        with m.FSM() as fsm:
            m.d.comb += [
                self.wants.eq(fsm.ongoing("ASK")),
                self.done.eq(fsm.ongoing("DONE")),
                self.idle.eq(
                    fsm.ongoing("IDLE") & rung & ~wrote & ~fetcher.o.valid & ~self.packet & ~self.wanted.valid
                ),
            ]
            with m.State("IDLE"):
                m.d.sync += [
                    kind.eq(job.kind),
                    index.eq(job.index),
                    fetching.eq(~missing),
                    fresh.eq(0),
                    returns.eq(0),
                    has_target.eq(0),
                    had_timer.eq(0),
                    self.brought.eq(0),
                    self.status.eq(CommandStatus.OK),
                ]
                with m.If(missing):
                    m.d.sync += kind.eq(JobKind.LOST)
                with m.If((missing | fetcher.o.valid) & rung & ~self.closed):
                    m.next = "ASK"
            with m.State("ASK"):
                with m.If(self.grant):
                    m.next = "FIND"
                    with m.If(kind == JobKind.LOST):
                        lose(self.written_index)
                    if self.forced:
                        with m.Elif(forces):
                            m.d.comb += saver.begin.eq(1)
                            m.d.sync += self.closed_qp.eq(self.evict.payload)
                            m.next = "LEAVE"
            with m.State("DONE"):
                m.d.comb += fetcher.o.ready.eq(fetching)
                m.d.sync += comes.eq(0)
                m.next = "IDLE"

            # -- Where is it?
            with m.State("FIND"):
                m.d.sync += [
                    here.eq(fetcher.here),
                    away.eq(fetcher.away),
                    target.eq(fetcher.slot),
                    had_timer.eq(fetcher.away & fetcher.timer),
                ]
                with m.If(fetcher.here | fetcher.away | fetcher.absent):
                    m.next = "FOUND"
            with m.State("FOUND"):
                with m.If(here):
                    m.d.sync += self.brought.eq(for_command)
                    m.next = "DONE"
                    with m.If(for_wanted):
                        m.next = "PEEK"
                with m.Elif(~away):
                    m.next = "DONE"
                    with m.If(for_command & self.bring_create):
                        m.d.sync += fresh.eq(1)
                        m.next = "CHOOSE"
                    with m.Elif(for_command):
                        m.d.sync += [self.brought.eq(1), self.status.eq(CommandStatus.BAD_NUMBER)]
                with m.Else():
                    m.next = "CHOOSE"

            # -- It is here: its doorbells are looked at.
            with m.State("PEEK"):
                with m.If(~self.reading):
                    m.d.comb += peeks.eq(1)
                    m.next = "PEEKED"
            with m.State("PEEKED"):
                with m.If(~self.reading):
                    m.next = "DONE"
                    with m.If(self.bad):  # once more
                        m.d.sync += [tell_want.eq(1), self.want.payload.qpn.eq(index)]
                        m.next = "TELL"
                    with m.Else():
                        ring(target)

            # -- A slot that is free, or one whose QP leaves it.
            with m.State("CHOOSE"):
                m.d.sync += self.closed_qp.eq(table.slot)
                with m.If(has_target & self.room):
                    m.d.sync += self.closed_qp.eq(target)
                    m.d.comb += loader.begin.eq(1)
                    m.next = "COME"
                with m.Elif(~has_target & table.any_free):
                    with m.If(table.taken):
                        m.d.comb += table.step.eq(1)
                    with m.Else():
                        m.d.sync += [target.eq(table.slot), has_target.eq(1)]
                        m.next = "PLACE"
                        with m.If(~fresh):
                            m.next = "CHOOSE"
                with m.Else():
                    m.d.comb += table.step.eq(1)
                    with m.If(table.taken & ~table.recent):
                        m.d.comb += saver.begin.eq(1)
                        m.next = "LEAVE"
            with m.State("LEAVE"):
                with m.If(saver.stays | saver.left):
                    m.next = "CHOOSE"
                with m.If(saver.left):
                    with m.If(~has_target):
                        m.d.sync += [target.eq(self.closed_qp), has_target.eq(1)]
                    with m.If(fresh):
                        m.next = "PLACE"
                if self.forced:
                    with m.If(forces & (saver.stays | saver.left)):
                        m.d.comb += [self.evict.ready.eq(1), self.evict_skip.eq(saver.stays)]
                        m.next = "DONE"
                with m.If(saver.back):
                    m.d.comb += loader.begin.eq(1)
                    m.d.sync += [target.eq(self.closed_qp), returns.eq(1)]
                    m.next = "COME"
                with m.If(saver.unwritten):
                    lose(self.written_index)
                with m.If(saver.dropped):
                    m.d.sync += returns.eq(1)
                    lose(own)

            # -- It comes, or comes back: what was read of another one is dropped then.
            with m.State("COME"):
                with m.If(loader.came):
                    m.next = "PLACE"
                with m.If(loader.unwritten):
                    lose(self.written_index)
                with m.If(loader.failed):
                    lose(index)
                    with m.If(returns):
                        m.d.comb += saver.drop.eq(1)
                        m.next = "LEAVE"
            with m.State("PLACE"):
                m.d.comb += [
                    place.eq(~returns),
                    new.here.eq(1),
                    new.known.eq(1),
                    new.value.eq(target),
                    table.put.eq(~returns),
                    table.put_slot.eq(target),
                    table.put_index.eq(index),
                ]
                m.d.sync += [
                    tell_timer.eq(had_timer & ~returns),
                    self.timers.payload.qpn.eq(index),
                    self.timers.payload.member.eq(0),
                    tell_want.eq(returns & for_wanted),
                    self.want.payload.qpn.eq(index),
                ]
                m.next = "TELL"
            with m.State("TELL"):
                with m.If(~tells):
                    m.next = "DONE"
                    if self.forced:
                        with m.If(forces):  # it has returned
                            m.d.comb += [self.evict.ready.eq(1), self.evict_skip.eq(1)]

            # -- It is forgotten.
            with m.State("LOST"):
                m.d.comb += self.event.valid.eq(1)
                with m.If(self.event.ready):
                    m.d.comb += [place.eq(1), place_index.eq(lost)]
                    with m.If(lost == self.written_index):  # another one may be on its way
                        m.d.sync += wrote.eq(0)
                    m.d.sync += [
                        tell_timer.eq(1),  # whether it runs or not
                        self.timers.payload.qpn.eq(lost),
                        self.timers.payload.member.eq(0),
                        tell_want.eq(for_wanted & (lost != index)),
                        self.want.payload.qpn.eq(index),
                    ]
                    m.next = "FORGOTTEN"
            with m.State("FORGOTTEN"):
                with m.If(~tells & ~self.attributes_busy):
                    m.next = "DONE"
                    if self.forced:
                        with m.If(forces):
                            m.d.comb += [self.evict.ready.eq(1), self.evict_skip.eq(1)]
                    with m.If(for_command & (lost == index)):
                        m.d.sync += [self.brought.eq(1), self.status.eq(CommandStatus.BUS_ERROR)]
        return m
