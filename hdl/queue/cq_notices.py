"""What is to be said of CQs: which are armed, which events are due."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.cqc import ARMS_BITS, CQN_BITS
from ..abi.eqe import EventType
from ..stream.transfer import Event
from .cq_moderation import CqNews

__all__ = ["Arms", "CqNotices", "Notice"]

Arms = {"arms": ARMS_BITS, "solicited_arms": ARMS_BITS}

Notice = data.StructLayout(
    Arms
    | {f"{name}_seen": bits for name, bits in Arms.items()}
    | {
        "completion": 1,  # an event is due
        "error": 1,  # likewise: CQ_ERR
        "waiting": 1,  # for its turn
        "dead": 1,
        "ring": 1,
    }
)
"""Of a CQ: how often it was armed, how much of that its last event has answered, what is to be said; its ring."""


class CqNotices(wiring.Component):
    """Keeps a :data:`Notice` for each slot, and says events.

    What may change a notice comes one a cycle, the answer first: it is chosen in one cycle and applied in the next. An
    event is one for all arms before it. A CQ whose event still waits gets no second one; the one to come says it all:
    from when it ``begins`` in ``news`` until its number has come back by ``due``.

    Parameters
    ----------
    slots : int
        A power of two.
    queues : int
        Event queues.

    Members
    -------
    answer, number, urgent, failed : 1, CQN, 1, 1
        Strobe: a CQE of this CQ is visible, one that is solicited or an error if ``urgent``; or it was lost.
    change : ``clear``, ``renew``, ``turn``, ``fill``, ``lose``; granted : 1
        At most one of these, for the CQ ``change_number``; it is done when ``granted``. ``clear``: the slot holds
        nothing. ``renew``: the CQ's life begins or ends; an event that waits for its turn comes to nothing. ``turn``:
        it has another ring. ``fill``: the slot has the notice ``record``. ``lose``: the CQ is dead.
    arm : stream of ``number``, arms
        Of a CQ that has a slot.
    lost, lost_number : 1, CQN
        A CQ_ERR is to be said of this CQ, which has no slot; ``lost_said`` when it is.
    look, notice : slot, ``Notice``
        In the same cycle.
    news, news_en : ``CqNews``, 1
        What has happened to a CQ.
    due : ``queues`` streams of CQN
        CQs whose events are to be said now, for each event queue those of completions that it gets.
    event : ``queues`` streams of ``Event``
        COMPLETION, and in the first one CQ_ERR; ``number`` is the CQ.
    changed : 1
        In this cycle a CQ's death begins or ends.
    busy : 1
        Something is applied in this cycle.
    idle : 1
        Nothing is to be said, but of those CQs that have not come back yet.
    count_cqes : 1
        Strobe.
    """

    SAVED = (*(f"{name}_seen" for name in Arms), "dead", "ring")
    """Fields that the engine's part of a record has, too."""

    KEPT = (*Arms, *SAVED)
    """And the driver's part."""

    def __init__(self, slots, queues=1):
        self.slots = slots
        self.queues = queues
        changes = ("clear", "renew", "turn", "fill", "lose")
        super().__init__(
            {
                "answer": In(1),
                "number": In(CQN_BITS),
                "urgent": In(1),
                "failed": In(1),
                "change": In(wiring.Signature({name: Out(1) for name in changes})),
                "change_number": In(CQN_BITS),
                "record": In(Notice),
                "granted": Out(1),
                "arm": In(stream.Signature(data.StructLayout({"number": CQN_BITS} | Arms))),
                "lost": In(1),
                "lost_number": In(CQN_BITS),
                "lost_said": Out(1),
                "look": In(range(slots)),
                "notice": Out(Notice),
                "news": Out(CqNews),
                "news_en": Out(1),
                "due": In(stream.Signature(CQN_BITS)).array(queues),
                "event": Out(stream.Signature(Event)).array(queues),
                "changed": Out(1),
                "busy": Out(1),
                "idle": Out(1),
                "count_cqes": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slot_bits = ceil_log2(self.slots)
        m.submodules.rows = notices = memory.Memory(shape=Notice.size, depth=self.slots, init=[])
        note, noted, looked = (notices.write_port(), *(notices.read_port(domain="comb") for _ in range(2)))
        kinds = ("answer", *self.change.signature.members, "say", "arm")
        chosen = Signal(data.StructLayout(dict.fromkeys(kinds, 1)))
        number = Signal(CQN_BITS)
        urgent, failed = Signal(), Signal()
        arms = Signal(data.StructLayout(Arms))
        free = Signal(self.queues)
        change = Signal()
        say = Signal()
        sayable, turn = Signal(self.queues), Signal(range(self.queues))  # the event queue that `say` is for
        m.d.comb += [
            change.eq(Cat(getattr(self.change, name) for name in self.change.signature.members).any()),
            free.eq(Cat(~event.valid | event.ready for event in self.event)),
            sayable.eq(Cat(due.valid for due in self.due) & free),
            say.eq(sayable.any() & ~chosen.say & ~self.lost),
            self.lost_said.eq(self.lost & ~chosen.say & free[0]),
            self.granted.eq(~self.answer),
            self.arm.ready.eq(~self.answer & ~change & ~say),
            self.count_cqes.eq(chosen.answer & ~failed),
            looked.addr.eq(self.look),
            self.notice.eq(looked.data),
        ]
        m.d.sync += [
            chosen.eq(0),
            urgent.eq(self.urgent),
            failed.eq(self.failed),
            *(arms[name].eq(self.arm.payload[name]) for name in Arms),
        ]
        with m.If(self.answer):
            m.d.sync += [chosen.answer.eq(1), number.eq(self.number)]
        with m.Elif(change):
            m.d.sync += [chosen[name].eq(getattr(self.change, name)) for name in self.change.signature.members]
            m.d.sync += number.eq(self.change_number)
        with m.Elif(say):
            m.d.sync += chosen.say.eq(1)
            # The first one behind the last turn's, or else the first one.
            for behind in (False, True):
                for vector, due in reversed(list(enumerate(self.due))):
                    with m.If(sayable[vector] & ((turn < vector) | (not behind))):
                        m.d.sync += [turn.eq(vector), number.eq(due.payload)]
        with m.Else():
            m.d.sync += [chosen.arm.eq(self.arm.valid), number.eq(self.arm.payload.number)]

        old, new = Signal(Notice), Signal(Notice)
        push, armed, any_armed = Signal(), Signal(), Signal()
        m.d.comb += [
            noted.addr.eq(number[:slot_bits]),
            note.addr.eq(number[:slot_bits]),
            old.eq(noted.data),
            new.eq(old),
            note.data.eq(new),
            note.en.eq(chosen.as_value().any()),
            self.busy.eq(note.en),
            self.changed.eq(chosen.renew | chosen.lose | chosen.fill),
            any_armed.eq(old.arms != old.arms_seen),
            armed.eq(any_armed | (urgent & (old.solicited_arms != old.solicited_arms_seen))),
        ]
        m.d.sync += [
            self.news_en.eq(push | (chosen.answer & ~failed)),
            self.news.number.eq(number),
            self.news.begins.eq(push & ~old.waiting),
            self.news.gathers.eq(chosen.answer & ~failed),
            self.news.urgent.eq(new.dead),
        ]
        for event in self.event:
            with m.If(event.ready):
                m.d.sync += event.valid.eq(0)
        with m.If((chosen.answer & failed & ~old.dead) | chosen.lose):
            m.d.comb += [new.error.eq(1), new.dead.eq(1), new.waiting.eq(1), push.eq(1)]
        with m.If(chosen.clear):
            m.d.comb += new.eq(0)
        with m.If(chosen.renew):
            m.d.comb += [new.eq(0), new.waiting.eq(old.waiting)]
        with m.If(chosen.turn):
            m.d.comb += new.ring.eq(~old.ring)
        with m.If(chosen.fill):
            m.d.comb += new.eq(self.record)
        with m.If(chosen.arm):
            m.d.comb += [new[name].eq(arms[name]) for name in Arms]
        # Whether it is armed is known last, so this stands behind the others, of which none is chosen with it.
        with m.If(chosen.answer & ~failed & armed):
            m.d.comb += [new.completion.eq(1), new.waiting.eq(1), push.eq(1)]
            m.d.comb += [new[f"{name}_seen"].eq(old[name]) for name in Arms]
        # An error is said in the first event queue, if that has room, whichever has brought the CQ back.
        fails = ~old.completion & old.error
        goes = Signal()
        m.d.comb += goes.eq(chosen.say & ~(fails & ~free[0]))
        with m.If(goes):
            m.d.comb += new.completion.eq(0)
            with m.If(~(old.completion & old.error)):
                m.d.comb += [new.error.eq(0), new.waiting.eq(0)]
                m.d.comb += [due.ready.eq(turn == vector) for vector, due in enumerate(self.due)]
        for vector, event in enumerate(self.event):
            mine = fails if vector == 0 else 0
            with m.If(goes & (((turn == vector) & old.completion) | mine)):
                m.d.sync += [
                    event.valid.eq(1),
                    event.payload.type.eq(Mux(old.completion, EventType.COMPLETION, EventType.CQ_ERR)),
                    event.payload.number.eq(number),
                ]
        with m.If(self.lost_said):
            m.d.sync += [
                self.event[0].valid.eq(1),
                self.event[0].payload.type.eq(EventType.CQ_ERR),
                self.event[0].payload.number.eq(self.lost_number),
            ]
        saying = Cat(event.valid for event in self.event).any() | Cat(due.valid for due in self.due).any()
        m.d.comb += self.idle.eq(~self.answer & ~note.en & ~self.news_en & ~saying & ~self.lost)
        return m
