"""What is to be said of CQs: which are armed, which events are due."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.cqc import ARMS_BITS, CQN_BITS
from ..abi.eqe import EventType
from ..stream.fifo import Queue
from ..stream.transfer import Event

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
    event is one for all arms before it. A CQ whose event still waits for ``event`` gets no second one; the one to come
    says it all.

    Parameters
    ----------
    slots : int
        A power of two.

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
    event : stream of ``Event``
        COMPLETION and CQ_ERR, ``number`` is the CQ.
    changed : 1
        In this cycle a CQ's death begins or ends.
    busy : 1
        Something is applied in this cycle.
    idle : 1
        Nothing is to be said.
    count_cqes : 1
        Strobe.
    """

    SAVED = (*(f"{name}_seen" for name in Arms), "dead", "ring")
    """Fields that the engine's part of a record has, too."""

    KEPT = (*Arms, *SAVED)
    """And the driver's part."""

    def __init__(self, slots):
        self.slots = slots
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
                "event": Out(stream.Signature(Event)),
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
        m.submodules.due = due = Queue(CQN_BITS, self.slots)
        note, noted, looked = (notices.write_port(), *(notices.read_port(domain="comb") for _ in range(2)))
        kinds = ("answer", *self.change.signature.members, "say", "arm")
        chosen = Signal(data.StructLayout(dict.fromkeys(kinds, 1)))
        number = Signal(CQN_BITS)
        urgent, failed = Signal(), Signal()
        arms = Signal(data.StructLayout(Arms))
        free = ~self.event.valid | self.event.ready
        change = Signal()
        say = Signal()
        m.d.comb += [
            change.eq(Cat(getattr(self.change, name) for name in self.change.signature.members).any()),
            say.eq(due.o.valid & ~chosen.say & free & ~self.lost),
            self.lost_said.eq(self.lost & ~chosen.say & free),
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
            m.d.sync += [chosen.say.eq(1), number.eq(due.o.payload)]
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
        m.d.sync += [due.i.valid.eq(push & ~old.waiting), due.i.payload.eq(number)]
        with m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)
        with m.If((chosen.answer & failed & ~old.dead) | chosen.lose):
            m.d.comb += [new.error.eq(1), new.dead.eq(1), new.waiting.eq(1), push.eq(1)]
        with m.If(chosen.answer & ~failed & armed):
            m.d.comb += [new.completion.eq(1), new.waiting.eq(1), push.eq(1)]
            m.d.comb += [new[f"{name}_seen"].eq(old[name]) for name in Arms]
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
        with m.If(chosen.say):
            m.d.sync += [
                self.event.valid.eq(old.completion | old.error),
                self.event.payload.type.eq(Mux(old.completion, EventType.COMPLETION, EventType.CQ_ERR)),
                self.event.payload.number.eq(number),
            ]
            m.d.comb += new.completion.eq(0)
            with m.If(~(old.completion & old.error)):
                m.d.comb += [new.error.eq(0), new.waiting.eq(0), due.o.ready.eq(1)]
        with m.If(self.lost_said):
            m.d.sync += [
                self.event.valid.eq(1),
                self.event.payload.type.eq(EventType.CQ_ERR),
                self.event.payload.number.eq(self.lost_number),
            ]
        m.d.comb += self.idle.eq(
            ~self.answer & ~note.en & ~due.i.valid & (due.level == 0) & ~self.event.valid & ~self.lost
        )
        return m
