"""Brings queue pairs to slots, and others from there to host memory."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import CommandStatus, QpAction
from ..abi.eqe import EventType
from ..context.directory import CLASS_BITS, PHASE_BITS, Row
from ..queue.ring import PushDoorbell, RingIndex
from ..stream.connections import connect_signals
from ..stream.transfer import Event, QpControl
from .qp_fetcher import QpFetcher
from .slot_chooser import SlotChooser

__all__ = ["QUIET", "SlotKeeper"]

QUIET = 32
"""Cycles in which completions move, until those that were under way are written or lost: at most 5 of them, each with 3
cycles behind it in which the next one is handed on, and 12 to spare."""


class Work(enum.Enum, shape=3):
    """What is done with tokens and attributes."""

    ANSWER = 0
    """A command hears where its QP is, or that there is none."""
    CREATE = 1
    """A new QP gets a slot."""
    COME = 2
    """A QP comes."""
    LEAVE = 3
    """A QP leaves."""
    RING = 4
    """The doorbells of a QP that has its slot ring."""
    LOSE = 5
    """A QP whose record is bad is forgotten."""


class SlotKeeper(wiring.Component):
    """The QP that a command, a packet, a doorbell or a timer wants gets a slot. If none is free another QP leaves its
    slot before: one that was not used of late, and of which no READs or atomics are released and not answered.
    :class:`.qp_fetcher.QpFetcher` has the records of those that come read, while others come and go. As long as QPs
    are away a slot is made free before somebody comes.

    *A QP leaves* (:class:`.tokens.Tokens`): it is ``closed``; the token SAVE goes, and its owners give its state away,
    while its attributes are read. When no completion of it is under way any more, the directory says that it is away,
    and its record is written. If any QP has reported something meanwhile it comes back to its slot instead, and opens
    when what was reported is done; what is being read of others is dropped, and they are wanted. A QP that has
    something to do of which nobody will remind it is wanted at once.

    *A QP comes*: its record has been read. Its attributes are written, the token LOAD goes, the directory tells, and
    its doorbells ring as the driver's part of its record says. A command is told when they have.

    Who comes or leaves waits for ``grant``; a command is heard first.

    A QP that is wanted, and has its slot, has its doorbells rung as well: who wants it may have met it on its way. If
    the bus does not give them, or it has left, the QP is wanted once more.

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
        another QP. What was reported meanwhile goes first.
    forget, forget_slot : 1, slot
        Strobe, while not ``grant``: the QP there exists no more.
    packet, packet_index : 1, QP index
        A packet waits for it.
    ahead : stream of QP index
        For whom packets come behind that one.
    wanted : stream of QP index; want : stream of ``{qpn, member}``
        From and to the set of those that are wanted.
    evict : stream of slot; evict_skip : 1
        With ``forced``: the QP there leaves it; ``evict_skip``, with ``evict.ready``: there is none, or it must stay.
    closed, closed_qp : 1, 12
        Nothing of the QP in that slot may begin. It stays until ``opens``.
    opens : 1
        Nothing that was reported is still to be done.
    reports, moves, completed : 1
        Something has been reported; completions move; of the QP that gives its state away no more will begin.
    serving : 1
        READs or atomics of the peer of ``closed_qp`` are released and not answered, as of 2 cycles ago.
    room : 1
        There are rows for all READ targets that a QP may have.
    token : stream of ``QpControl``
    attributes_save, attributes_load, attributes_clear, attributes_busy : 1
        Of a :class:`.context_words.ContextWords`, for slot ``closed_qp``.
    collect, full, wake, write, write_index, writing, write_failed, written_index, read, here, take, bad, back,
    doorbells
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
                "wanted": In(stream.Signature(index)),
                "ahead": In(stream.Signature(index)),
                "want": Out(change),
                "closed": Out(1),
                "closed_qp": Out(12),
                "opens": In(1),
                "reports": In(1),
                "moves": In(1),
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
                "read": Out(stream.Signature(data.StructLayout({"index": index, "whole": 1}))),
                "here": In(1),
                "take": Out(1),
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
        m.submodules.chooser = chooser = SlotChooser(self.slots, self.qps, self.users + 1)
        m.submodules.fetcher = fetcher = QpFetcher(self.qps, self.slots)
        wiring.connect(m, fetcher.ask, wiring.flipped(self.ask))
        wiring.connect(m, wiring.flipped(self.wanted), fetcher.wanted)
        wiring.connect(m, wiring.flipped(self.ahead), fetcher.ahead)
        connect_signals(
            m, self, fetcher, "bring", "bring_index", "packet", "packet_index", "answered", "row", "changed"
        )
        for number in range(self.users):
            m.d.comb += chooser.used[number].eq(self.used[number])

        # -- What is being done, and for whom.
        work, index, for_command = Signal(Work), Signal(range(self.qps)), Signal()
        target, returns, forces = Signal(range(self.slots)), Signal(), Signal()
        leaving = Signal()  # somebody does
        had_timer = Signal()  # its timer ran while it was away
        own = chooser.looked  # who is, or was, in slot `closed_qp`
        is_index = Signal()  # it is that of `index`, as of a cycle ago
        wrote = Signal()  # a record is on its way, or it has not been looked whether it arrived
        left = Signal(range(max(QUIET, 2) + 1))
        tell_want, tell_timer, tells = Signal(), Signal(), Signal()
        lost, was_away = Signal(range(self.qps)), Signal()
        fetched = fetcher.o.payload
        reads_back = Signal()
        m.d.comb += [
            chooser.used_en.eq(Cat(self.used_en, fetcher.used_en)),
            chooser.used[self.users].eq(fetcher.used),
            chooser.look.eq(self.closed_qp),
            self.slot.eq(target),
            self.write_index.eq(own),
            self.read.valid.eq(fetcher.read.valid | reads_back),
            self.read.payload.eq(fetcher.read.payload),
            fetcher.read.ready.eq(self.read.ready & ~reads_back),
            fetcher.unwritten.eq(wrote),
            fetcher.unwritten_index.eq(self.written_index),
            self.token.payload.qp.eq(self.closed_qp),
            tells.eq(tell_want | tell_timer),
            self.want.valid.eq(tell_want),
            self.want.payload.member.eq(1),
            self.timers.valid.eq(tell_timer),
            self.event.payload.type.eq(EventType.QP_FATAL),
            self.event.payload.number.eq(lost),
        ]
        with m.If(reads_back):
            m.d.comb += [self.read.payload.index.eq(own), self.read.payload.whole.eq(1)]
        m.d.sync += is_index.eq((own == index) & chooser.looked_taken)
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

        def want(qp):
            m.d.sync += [tell_want.eq(1), self.want.payload.qpn.eq(qp)]

        def time(qp, member):
            m.d.sync += [self.timers.payload.qpn.eq(qp), self.timers.payload.member.eq(member)]

        def begin(what):
            m.d.sync += work.eq(what)
            m.next = "ASK"

        def drop():  # what was fetched, and has come
            m.d.comb += [fetcher.o.ready.eq(1), self.take.eq(1)]

        with m.If(~self.completed):
            m.d.sync += left.eq(QUIET)
        with m.Elif(self.moves & (left != 0)):
            m.d.sync += left.eq(left - 1)
        with m.If(self.opens):
            m.d.sync += self.closed.eq(0)
        with m.If(self.forget):
            m.d.comb += [
                chooser.look.eq(self.forget_slot),
                chooser.free.eq(1),
                chooser.free_slot.eq(self.forget_slot),
                place.eq(1),
                place_index.eq(own),
            ]
        missing = wrote & ~self.writing & self.write_failed
        with m.If(~self.writing & ~self.write_failed):
            m.d.sync += wrote.eq(0)
        come = Signal()  # the record of the QP that was fetched first is here
        creates, answers = Signal(), Signal()
        m.d.comb += [
            come.eq(fetcher.o.valid & self.here),
            creates.eq(fetcher.command_absent & self.bring_create),
            answers.eq(fetcher.command_here | (fetcher.command_absent & ~self.bring_create)),
            chooser.choose.eq(chooser.leaves | (chooser.full & creates) | (come & ~fetched.here & ~self.room)),
            chooser.given_slot.eq(self.closed_qp),
        ]
        with m.FSM() as fsm:
            m.d.comb += [
                self.wants.eq(fsm.ongoing("ASK")),
                self.done.eq(fsm.ongoing("DONE")),
                self.idle.eq(fsm.ongoing("IDLE") & fetcher.idle & rung & ~wrote & ~tells & ~chooser.leaves),
            ]
            with m.State("IDLE"):
                m.d.sync += [
                    index.eq(fetched.index),
                    for_command.eq(fetched.command),
                    had_timer.eq(fetched.timer & ~fetched.here),
                    returns.eq(0),
                    forces.eq(0),
                    leaving.eq(0),
                    was_away.eq(1),
                    self.brought.eq(0),
                    self.status.eq(CommandStatus.OK),
                ]
                with m.If(tells | ~rung | self.closed):
                    pass
                with m.Elif(missing):
                    m.d.sync += [lost.eq(self.written_index), for_command.eq(0), work.eq(Work.LEAVE)]
                    m.next = "LOST"
                with m.Elif(answers):
                    begin(Work.ANSWER)
                with m.Elif(creates & chooser.found):
                    m.d.sync += [index.eq(self.bring_index), had_timer.eq(0)]
                    begin(Work.CREATE)
                if self.forced:
                    with m.Elif(self.evict.valid):
                        m.d.sync += [forces.eq(1), self.closed_qp.eq(self.evict.payload)]
                        begin(Work.LEAVE)
                with m.Elif(come & fetched.here):
                    m.d.sync += self.closed_qp.eq(fetched.slot)
                    begin(Work.RING)
                with m.Elif(come & self.bad):
                    begin(Work.LOSE)
                with m.Elif(come & chooser.found & self.room):
                    begin(Work.COME)
                with m.Elif(chooser.chosen):
                    m.d.comb += chooser.take_victim.eq(1)
                    m.d.sync += self.closed_qp.eq(chooser.victim)
                    begin(Work.LEAVE)
            with m.State("ASK"):
                with m.If(self.grant):
                    m.next = "DONE"
                    with m.Switch(work):
                        with m.Case(Work.LEAVE, Work.RING):
                            m.next = "LOOK"
                        with m.Case(Work.COME):
                            with m.If(self.room):
                                m.d.comb += chooser.take.eq(1)
                                m.d.sync += [self.closed_qp.eq(chooser.slot), target.eq(chooser.slot)]
                                m.d.sync += self.closed.eq(1)
                                m.next = "ATTRIBUTES"
                        with m.Case(Work.CREATE):
                            with m.If(creates):
                                m.d.comb += [fetcher.told.eq(1), chooser.take.eq(1)]
                                m.d.sync += [target.eq(chooser.slot), self.brought.eq(1)]
                                m.next = "PLACE"
                        with m.Case(Work.ANSWER):
                            m.d.sync += target.eq(fetcher.slot)
                            with m.If(answers):
                                m.d.comb += fetcher.told.eq(1)
                                m.d.sync += self.brought.eq(1)
                                with m.If(fetcher.command_absent):
                                    m.d.sync += self.status.eq(CommandStatus.BAD_NUMBER)
                        with m.Case(Work.LOSE):
                            m.d.sync += lost.eq(index)
                            m.next = "LOST"
            with m.State("DONE"):
                m.next = "IDLE"
                if self.forced:
                    with m.If(forces):
                        m.d.comb += [self.evict.ready.eq(1), self.evict_skip.eq(returns | ~leaving)]

            # -- It is here: its doorbells are looked at.
            with m.State("RING"):
                drop()
                m.next = "DONE"
                with m.If(self.bad | ~is_index):  # once more
                    want(index)
                with m.Else():
                    ring(self.closed_qp)

            # -- A QP leaves, unless it must stay.
            with m.State("LOOK"):
                m.next = "WAIT"
            with m.State("WAIT"):
                m.next = "DECIDE"
                with m.If(work == Work.RING):
                    m.next = "RING"
            with m.State("DECIDE"):
                with m.If(self.serving | ~chooser.looked_taken | missing):
                    m.next = "DONE"
                with m.Elif(~self.writing):
                    m.d.comb += [self.collect.eq(1), self.attributes_save.eq(1)]
                    m.d.sync += [self.closed.eq(1), leaving.eq(1)]
                    m.next = "SAVE"
            with m.State("SAVE"):
                m.d.comb += [self.token.valid.eq(1), self.token.payload.action.eq(QpAction.SAVE)]
                with m.If(self.token.ready):
                    m.next = "SAVED"
            with m.State("SAVED"):
                with m.If(self.full & ~self.attributes_busy):
                    with m.If(self.reports):
                        m.d.comb += self.write.eq(1)
                        m.d.sync += [wrote.eq(1), returns.eq(1), target.eq(self.closed_qp)]
                        m.next = "RETURN"
                    with m.Elif(left == 0):
                        m.next = "GONE"
            with m.State("GONE"):
                m.d.comb += [
                    self.write.eq(1),
                    self.attributes_clear.eq(1),
                    chooser.goes.eq(1),
                    place.eq(1),
                    place_index.eq(own),
                    new.known.eq(1),
                    new.away.timer.eq(self.timer),
                    new.away.phase.eq(self.timer_phase),
                    chooser.free.eq(1),
                    chooser.free_slot.eq(self.closed_qp),
                ]
                m.d.sync += [wrote.eq(1), tell_timer.eq(self.timer != 0)]
                time(own, 1)
                with m.If(self.wake):
                    want(own)
                m.next = "CLEAR"
            with m.State("CLEAR"):
                with m.If(~self.attributes_busy & ~tells):
                    m.d.comb += chooser.give.eq(1)
                    m.d.sync += self.closed.eq(0)
                    m.next = "DONE"

            # -- Something was reported: the QP comes back to its slot. What is read of others is dropped.
            with m.State("RETURN"):
                with m.If(~self.writing):
                    m.next = "DROP_FETCHED"
                    with m.If(self.write_failed):
                        m.next = "DROP"
            with m.State("DROP_FETCHED"):
                with m.If(fetcher.o.valid):
                    with m.If(self.here & ~tells):
                        drop()
                        with m.If(fetched.wanted):
                            want(fetched.index)
                with m.Elif(~fetcher.reads & ~tells):
                    m.next = "READ_BACK"
            with m.State("READ_BACK"):
                m.d.comb += reads_back.eq(1)
                with m.If(self.read.ready):
                    m.next = "BACK"
            with m.State("BACK"):
                with m.If(self.here):
                    m.next = "ATTRIBUTES"
                    with m.If(self.bad):
                        m.d.comb += self.take.eq(1)
                        m.next = "DROP"
            with m.State("DROP"):
                m.d.comb += [
                    self.attributes_clear.eq(1),
                    chooser.free.eq(1),
                    chooser.free_slot.eq(self.closed_qp),
                    place_index.eq(own),
                    place.eq(1),
                ]
                m.d.sync += [self.closed.eq(0), lost.eq(own), was_away.eq(0)]
                m.next = "LOST"

            # -- It comes.
            with m.State("ATTRIBUTES"):
                m.d.comb += [self.attributes_load.eq(1), self.back.eq(1)]
                m.next = "SETTLE"
            with m.State("SETTLE"):
                with m.If(~self.attributes_busy):
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [self.token.valid.eq(1), self.token.payload.action.eq(QpAction.LOAD)]
                with m.If(self.token.ready):
                    ring(target)
                    m.d.comb += self.count_qp_fetches.eq(1)
                    m.next = "PLACE"
                    with m.If(returns):
                        m.d.comb += self.take.eq(1)
                        m.next = "DONE"
            with m.State("PLACE"):
                m.d.comb += [
                    place.eq(1),
                    new.here.eq(1),
                    new.known.eq(1),
                    new.value.eq(target),
                    chooser.put.eq(1),
                    chooser.put_slot.eq(target),
                    chooser.put_index.eq(index),
                ]
                m.d.sync += tell_timer.eq(had_timer)
                time(index, 0)
                m.next = "DONE"
                with m.If(work == Work.COME):  # a command is told when its doorbells have rung
                    m.next = "TELL"
            with m.State("TELL"):
                with m.If(~tells):
                    drop()
                    m.d.comb += chooser.comes.eq(1)
                    m.next = "DONE"

            # -- It is forgotten.
            with m.State("LOST"):
                m.d.comb += self.event.valid.eq(1)
                with m.If(self.event.ready):
                    m.d.comb += [place.eq(1), place_index.eq(lost), chooser.comes.eq(was_away)]
                    with m.If(lost == self.written_index):  # another one may be on its way
                        m.d.sync += wrote.eq(0)
                    m.d.sync += tell_timer.eq(1)  # whether it runs or not
                    time(lost, 0)
                    m.next = "FORGOTTEN"
            with m.State("FORGOTTEN"):
                with m.If(~tells & ~self.attributes_busy):
                    m.next = "DONE"
                    with m.If(work == Work.LOSE):
                        drop()
                    with m.If(for_command & (work == Work.LOSE)):
                        m.d.sync += [self.brought.eq(1), self.status.eq(CommandStatus.BUS_ERROR)]
            m.d.comb += fetcher.hold.eq(
                Cat(fsm.ongoing(name) for name in ("RETURN", "DROP_FETCHED", "READ_BACK", "BACK")).any()
            )
        return m
