"""The first stage of a side: whatever concerns a queue pair comes out with the queue pair's context."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..stream.transfer import AttributeWrite

__all__ = ["ContextFetch"]


class ContextFetch(wiring.Component):
    """Hands on items, one after the other, each with the attributes and the states of its slot.

    Who takes an item may write a state back, in the cycle in which it takes the item, and at no other time. The next
    item is fetched meanwhile; if it is of the same slot it gets what was written back. So nobody decides on a state
    that another item still changes, and nobody waits for that. Who decides in several steps may ``change`` the state
    at the output before, and then has to write it back.

    An item that is taken at ``i`` comes out ``rows`` + 2 cycles later, if the output is free. There is one each
    ``rows`` + 2 cycles at most; a fetch begins a cycle later if a state's write begins then. ``i.ready`` is a register:
    an item is taken when its fetch may begin, and the next one when it has moved to the output.

    What others write, attributes and *others'* states, is heard a cycle later.

    *Attributes* that are heard before an item comes out are fetched once more. Those of an item at the output stay, but
    for ``live``, which follows the broadcast: an item that waits there for something else must not miss that its queue
    pair is taken away.

    *Others'* states are written at any time, by somebody else. An item comes out with what was heard last, fetched
    once more if need be. At the output it stays as it is, unless the user lets it follow.

    Parameters
    ----------
    item : shape-like
    bank : ContextBank
        The stage contains it, and is its only user.
    others : iterable of str
        Those of the bank's states that somebody else writes.
    follows : iterable of str
        Fields of others' states that may follow.
    live : str
        One of the bank's attributes, which stands in one word.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    i : stream of ``slot``, ``item``
    o : stream of ``slot``, ``item``, ``attributes``, ``states``
    settled : 1
        What was written back is in the bank, or will be in time: only then ``o`` may be taken. That is so ``rows``
        cycles after the last item that was written back.
    coming : ``slot``, ``item``
        What is being fetched; what is at ``i``, if nothing is.
    fetching : ``slot``, ``item``
        What is being fetched, from the cycle after it was taken on; so with ``moves``.
    moves : 1
        ``coming`` is at ``o`` in the next cycle.
    preview : ``attributes``, ``states``
        While nothing is at ``o``: with what the item comes out that ``moves`` in this cycle.
    write : for each state of its own ``data``, ``en``, ``change``
        What ``o.payload.slot`` has from now on; ``en`` only in the cycle in which ``o`` is taken. ``change`` only in
        other cycles: what stands at ``o`` from the next cycle on, and nowhere else.
    other : for each of ``others`` ``slot``, ``data``, ``en``
        What the slot has from now on; ``en`` in every cycle number ``rows`` at most.
    follow : 1
        What is heard of others' states in this cycle shows at ``o`` in the next one, as far as it ``follows``.
    """

    def __init__(self, item, bank, *, others=(), follows=(), live="state"):
        self.item = item
        self.live = live
        self.others = tuple(others)
        self.follows = tuple(follows)
        self._bank = bank
        slot, states = range(bank.slots), bank.states.shape()
        taken = data.StructLayout({"slot": slot, "item": item})
        self.fetched = data.StructLayout({"slot": slot, "item": item, "attributes": bank.layout, "states": states})
        shapes = {name: field.shape for name, field in states}
        writes = {
            name: Out(wiring.Signature({"data": In(shape), "en": In(1), "change": In(1)}))
            for name, shape in shapes.items()
            if name not in self.others
        }
        foreign = {
            name: Out(wiring.Signature({"slot": In(slot), "data": In(shapes[name]), "en": In(1)}))
            for name in self.others
        }
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "i": In(stream.Signature(taken)),
                "o": Out(stream.Signature(self.fetched)),
                "settled": Out(1),
                "coming": Out(taken),
                "fetching": Out(taken),
                "moves": Out(1),
                "preview": Out(data.StructLayout({"attributes": bank.layout, "states": states})),
                "write": Out(wiring.Signature(writes)),
                "other": Out(wiring.Signature(foreign)),
                "follow": In(1),
            }
        )

    def _same(self, going, kept):
        """The item that is fetched is of the slot of the last one."""
        return going == kept

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = self._bank
        coming, going = self.coming, self.o.payload
        full, here, move = Signal(), Signal(), Signal()
        free = Signal(init=1)  # nothing is being fetched
        kept = Signal(self.coming.shape(), reset_less=True)  # what is
        ports = [getattr(bank.write, name) for name in self.write.signature.members]
        m.d.comb += [
            self.o.valid.eq(full),
            self.settled.eq(Cat(port.ready for port in ports).all()),
            bank.r_slot.eq(coming.slot),
            Value.cast(coming).eq(Mux(free, Value.cast(self.i.payload), Value.cast(kept))),
            self.fetching.eq(kept),
            self.i.ready.eq(free),
            self.moves.eq(move),
            self.preview.attributes.eq(bank.attributes),
        ]

        with m.If(free):
            m.d.sync += [free.eq(~self.i.valid), Value.cast(kept).eq(Value.cast(self.i.payload))]
        with m.Elif(move):
            m.d.sync += free.eq(1)

        # -- What others write is heard a cycle later: by then it is known whether it concerns the item being fetched.
        changes = Signal()  # an attribute or a state of the item's slot is heard
        said, heard = [], []  # of each that writes: whether, and which slot; in time, and when it is heard
        others = []
        for name in self.others:
            outer = getattr(self.other, name)
            written = {
                part: Signal.like(getattr(outer, part), name=f"{name}_{part}") for part in ("slot", "data", "en")
            }
            m.d.sync += [mine.eq(getattr(outer, part)) for part, mine in written.items()]
            said.append((outer.en, outer.slot))
            heard.append((written["en"], written["slot"]))
            others.append((name, written, getattr(bank.write, name)))
        attribute, attribute_en = Signal(AttributeWrite), Signal()
        m.d.sync += [attribute.eq(self.attribute), attribute_en.eq(self.attribute_en)]
        m.d.comb += [bank.attribute.eq(attribute), bank.attribute_en.eq(attribute_en)]
        said.append((self.attribute_en, self.attribute.index[: ceil_log2(bank.slots)]))
        heard.append((attribute_en, attribute.index[: ceil_log2(bank.slots)]))

        def concerns(writes):
            return Cat(en & (slot == coming.slot) for en, slot in writes).any()

        m.d.sync += changes.eq(concerns(said))

        # -- The bank is read while the item before is worked on.
        again = Signal()
        with m.FSM():
            with m.State("READ"):
                # In the cycle in which an item moves on, the next one is not there yet.
                m.d.comb += [bank.r_look.eq(1), bank.r_en.eq(~free | self.i.valid)]
                m.d.sync += again.eq(concerns(heard))
                with m.If(bank.r_en & bank.r_ready):
                    m.next = "FETCH"
            with m.State("FETCH"):
                m.d.comb += here.eq(bank.r_valid & ~again & ~changes)
                m.d.sync += again.eq(again | changes)
                with m.If(move):
                    m.next = "READ"
                with m.Elif(bank.r_valid):
                    m.next = "HOLD"
                    with m.If(again | changes):
                        m.next = "READ"
            with m.State("HOLD"):
                m.d.comb += here.eq(~changes)
                with m.If(move | changes):
                    m.next = "READ"
        m.d.comb += move.eq(here & (~full | (self.o.valid & self.o.ready)))

        with m.If(move):
            m.d.sync += [
                full.eq(1),
                going.slot.eq(kept.slot),
                Value.cast(going.item).eq(Value.cast(kept.item)),
                going.attributes.eq(bank.attributes),
            ]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += full.eq(0)

        # -- The states of the last item's slot stay here, and are what was written back: an item of the same slot takes
        # them, since the bank may have been read before.
        known, same = Signal(), Signal()
        m.d.sync += same.eq(known & self._same(going.slot, kept.slot))  # both have stood for a cycle when one moves
        with m.If(move):
            m.d.sync += known.eq(1)
        for name in self.write.signature.members:
            outer, inner = getattr(self.write, name), getattr(bank.write, name)
            stored, written = Value.cast(bank.states[name]), Value.cast(outer.data)
            m.d.comb += [
                inner.slot.eq(going.slot),
                Value.cast(inner.data).eq(written),
                inner.en.eq(outer.en),
                Value.cast(self.preview.states[name]).eq(Mux(same, Value.cast(going.states[name]), stored)),
            ]
            with m.If(Mux(move & ~same, 1, outer.en | outer.change)):
                m.d.sync += Value.cast(going.states[name]).eq(Mux(move & ~same, stored, written))

        for name, outer, inner in others:
            written, stored, state = outer["data"], Value.cast(bank.states[name]), going.states[name]
            m.d.comb += [
                inner.slot.eq(outer["slot"]),
                Value.cast(inner.data).eq(Value.cast(written)),
                inner.en.eq(outer["en"]),
                Value.cast(self.preview.states[name]).eq(stored),
            ]
            with m.If(move):
                m.d.sync += Value.cast(state).eq(stored)
            with m.Elif(self.follow & outer["en"] & (outer["slot"] == going.slot)):
                m.d.sync += [state[field].eq(written[field]) for field in self.follows]

        field = bank.record.fields[self.live]
        word, first = divmod(field.offset, 32)
        index = attribute.index[: ceil_log2(bank.slots)]
        with m.If(~move & attribute_en & (index == going.slot) & (attribute.word == word)):
            m.d.sync += going.attributes[self.live].eq(attribute.data[first : first + field.width])
        return m
