"""Which queue pair has which slot, and who must give his up."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["WAYS", "Directory", "job_layout"]

WAYS = 4
"""Slots of a set."""


def job_layout(slots, qpn_bits, lines):
    """What the store has to do: write the ``dirty`` lines of ``old`` back, which has the slot until now, and ``fetch``
    ``qpn`` into it, or else say when all that was written of ``qpn`` is in memory."""
    return data.StructLayout(
        {"slot": range(slots), "qpn": qpn_bits, "old": qpn_bits, "dirty": lines, "fetch": 1},
    )


class Directory(wiring.Component):
    """Finds the slot of a QPN, or gives it one.

    Slots are in sets of 4; the low bits of the QPN are the set's. A QPN that has no slot gets the first of its set that
    is empty, else not pinned and not used of late, else not pinned. A slot is used when it is looked up; when all of a
    set that are not pinned are used, the others are not any more. If all are pinned, the lookup waits.

    A slot is *pinned* while more lookups of it have been taken than ``unpin`` has told; that is two counts a slot, each
    with one writer. What is ``dirty`` counts until the slot is given away.

    A lookup takes 2 cycles, and 2 more for each time it has to be repeated because it must wait.

    *Close*: no lookup of ``close_qpn`` is taken while ``close`` is set. As soon as its slot is not pinned it is given
    up, and ``closed`` follows when all of it is in memory. It falls with ``close``. Lookups of others go on meanwhile,
    but for those behind one that waits.

    After a reset all slots are empty, which takes a cycle a slot: nothing is looked up meanwhile.

    Parameters
    ----------
    slots : int
        A power of two, 4 to 1024.
    lines : int
        That may be dirty.
    qpn_bits : int
        More than those that number the sets.
    pins : int
        A power of two, at least 2: a slot has one pin less at most, a further lookup waits.

    Members
    -------
    lookup : stream of QPN
    slot, missed : slot, 1
        In the cycle in which a lookup is taken: where it is, or will be, and that a job to fetch it has been given.
    unpin, unpin_en : slot, 1
        Strobe. Not more often than the slot was looked up.
    dirty_slot, dirty : slot, a bit a line
        Strobe: the line is written. Of a slot that is pinned, and no later than its last ``unpin``.
    job : stream of :func:`job_layout`
        ``valid`` lasts a cycle; what is not taken then comes again, or is another.
    saved : 1
        Strobe: the oldest job without ``fetch`` is done.
    close, close_qpn, closed : 1, QPN, 1
    """

    def __init__(self, slots, lines, *, qpn_bits=24, pins=64):
        if not isinstance(slots, int) or not WAYS <= slots <= 1024 or slots & slots - 1:
            raise ValueError(f"slots must be a power of two from {WAYS} to 1024, not {slots!r}")
        if not isinstance(lines, int) or lines < 1:
            raise ValueError(f"lines must be a positive int, not {lines!r}")
        if not isinstance(pins, int) or pins < 2 or pins & pins - 1:
            raise ValueError(f"pins must be a power of two, at least 2, not {pins!r}")
        if not isinstance(qpn_bits, int) or 1 << qpn_bits <= slots // WAYS:
            raise ValueError(f"qpn_bits must number more than {slots // WAYS} sets, not {qpn_bits!r}")
        self.slots = slots
        self.lines = lines
        self.qpn_bits = qpn_bits
        self.pins = pins
        super().__init__(
            {
                "lookup": In(stream.Signature(qpn_bits)),
                "slot": Out(range(slots)),
                "missed": Out(1),
                "unpin": In(range(slots)),
                "unpin_en": In(1),
                "dirty_slot": In(range(slots)),
                "dirty": In(lines),
                "job": Out(stream.Signature(job_layout(slots, qpn_bits, lines))),
                "saved": In(1),
                "close": In(1),
                "close_qpn": In(qpn_bits),
                "closed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        sets = self.slots // WAYS
        set_bits, pin_bits = ceil_log2(sets), ceil_log2(self.pins)
        entry = data.StructLayout({"valid": 1, "tag": self.qpn_bits - set_bits})

        def rows(name, shape):
            """LUT RAM with a row a set."""
            m.submodules[name] = store = memory.Memory(shape=shape, depth=max(2, sets), init=[])
            return store, store.write_port(), store.read_port(domain="comb")

        # After a reset: one slot after the other. A slot is Cat(set, way).
        waking, wake = Signal(init=1), Signal(range(self.slots))
        m.d.sync += wake.eq(wake + 1)
        with m.If(wake == self.slots - 1):
            m.d.sync += waking.eq(0)

        # -- Look: all that the set holds goes into registers.
        look, deciding = Signal(), Signal()
        closing, closes = Signal(), Signal()  # the QPN looked up is that to be closed; it is its turn
        gone, saved = Signal(), Signal()
        qpn, qpn1 = Signal(self.qpn_bits), Signal(self.qpn_bits)
        index, index1 = qpn[:set_bits], qpn1[:set_bits]
        held = self.close & (self.lookup.payload == self.close_qpn)
        wanted = self.lookup.valid & ~held
        m.d.comb += [
            closing.eq(self.close & ~gone & (closes | ~wanted)),
            qpn.eq(Mux(closing, self.close_qpn, self.lookup.payload)),
            look.eq((wanted | closing) & ~deciding & ~waking),
        ]
        closing1 = Signal()
        m.d.sync += deciding.eq(look)
        with m.If(look):
            m.d.sync += [qpn1.eq(qpn), closing1.eq(closing), closes.eq(~closing)]

        tags, entered, full, puts, begun, ends = [], [], [], [], [], []
        matches = Signal(WAYS)
        valids = Signal(WAYS)
        pinned = Signal(WAYS)
        for way in range(WAYS):
            _, tag_put, tag_get = rows(f"tag{way}", entry)
            _, in_put, in_get = rows(f"entered{way}", pin_bits)
            left, out_put, out_get = rows(f"left{way}", pin_bits)
            unpin_get = left.read_port(domain="comb")
            tag1, count1 = Signal(entry, name=f"tag{way}_1"), Signal(pin_bits, name=f"entered{way}_1")
            m.d.comb += [port.addr.eq(index) for port in (tag_get, in_get, out_get)]
            level = (in_get.data - out_get.data)[:pin_bits]
            full1 = Signal(name=f"full{way}_1")
            with m.If(look):
                m.d.sync += [
                    tag1.eq(tag_get.data),
                    count1.eq(in_get.data),
                    matches[way].eq(tag_get.data.valid & (tag_get.data.tag == qpn[set_bits:])),
                    valids[way].eq(tag_get.data.valid),
                    pinned[way].eq(level != 0),
                    full1.eq(level.all()),
                ]
            # Each unpin is counted in its cycle.
            mine = self.unpin_en & (self.unpin[set_bits:] == way)
            m.d.comb += [
                unpin_get.addr.eq(self.unpin[:set_bits]),
                out_put.addr.eq(Mux(waking, wake[:set_bits], self.unpin[:set_bits])),
                out_put.data.eq(Mux(waking, 0, unpin_get.data + 1)),
                out_put.en.eq(waking | mine),
            ]
            tags.append(tag1)
            entered.append(count1)
            full.append(full1)
            puts.append(tag_put)
            begun.append(in_put)
        _, used_put, used_get = rows("used", WAYS)
        used1 = Signal(WAYS)
        m.d.comb += used_get.addr.eq(index)
        with m.If(look):
            m.d.sync += used1.eq(used_get.data)

        # -- Decide.
        def first(bits):
            return bits & (~bits + 1)[: len(bits)]

        def choose(values):
            return Mux(way[1], Mux(way[0], values[3], values[2]), Mux(way[0], values[1], values[0]))

        free, stale = ~pinned, Signal(WAYS)
        hit, some, victim, way, way_bits = Signal(), Signal(), Signal(WAYS), Signal(range(WAYS)), Signal(WAYS)
        m.d.comb += [
            stale.eq(free & (~used1 | ~valids)),
            hit.eq(matches.any()),
            some.eq(~pinned.all()),
            victim.eq(first(Mux((~valids).any(), ~valids, Mux(stale.any(), stale, free)))),
            way_bits.eq(Mux(hit, matches, victim)),
            way.eq(Cat(way_bits[1] | way_bits[3], way_bits[2] | way_bits[3])),
            self.slot.eq(Cat(index1, way)),
        ]
        # What is written is noted a cycle late: soon enough, as a slot that is not pinned any more is given away later.
        gives, evicts = Signal(), Signal()
        noted = Signal(self.lines)
        noted_slot = Signal(range(self.slots))
        m.d.sync += [noted.eq(self.dirty), noted_slot.eq(self.dirty_slot)]
        for line in range(self.lines):
            m.submodules[f"dirty{line}"] = flags = memory.Memory(shape=1, depth=self.slots, init=[])
            put, get = flags.write_port(), flags.read_port(domain="comb")
            m.d.comb += [
                get.addr.eq(self.slot),
                put.addr.eq(Mux(waking, wake, Mux(noted.any(), noted_slot, self.slot))),
                put.data.eq(~waking & noted[line]),
                put.en.eq(waking | noted[line] | evicts),
            ]
            ends.append(get.data)

        takes, finds, count = Signal(), Signal(), Signal(pin_bits)
        job = self.job.payload
        pinned_here = (matches & pinned).any()
        m.d.comb += [
            job.slot.eq(self.slot),
            job.qpn.eq(qpn1),
            job.old.eq(Cat(index1, choose([tag.tag for tag in tags]))),
            job.dirty.eq(Mux((way_bits & valids).any() & (hit | ~closing1), Cat(ends), 0)),
            job.fetch.eq(~closing1),
            # What was written has the port of the flags first: never for long, as nobody writes each cycle for ever.
            self.job.valid.eq(deciding & ~noted.any() & Mux(closing1, ~pinned_here, ~hit & some)),
            gives.eq(self.job.valid & self.job.ready),
            evicts.eq(gives & (hit | ~closing1)),
            finds.eq(deciding & ~closing1 & hit & ~(matches & Cat(full)).any()),
            takes.eq(finds | (gives & ~closing1)),
            self.lookup.ready.eq(takes),
            self.missed.eq(~hit),
            count.eq(choose(entered) + 1),
        ]
        for number in range(WAYS):
            put, begins = puts[number], begun[number]
            m.d.comb += [
                put.addr.eq(Mux(waking, wake[:set_bits], index1)),
                put.data.valid.eq(~waking & ~closing1),
                put.data.tag.eq(qpn1[set_bits:]),
                put.en.eq(waking | (evicts & way_bits[number])),
                begins.addr.eq(Mux(waking, wake[:set_bits], index1)),
                begins.data.eq(Mux(waking, 0, count)),
                begins.en.eq(waking | (takes & way_bits[number])),
            ]
        m.d.comb += [
            used_put.addr.eq(Mux(waking, wake[:set_bits], index1)),
            used_put.data.eq(Mux(waking, 0, Mux(hit | stale.any(), used1 | way_bits, way_bits))),
            used_put.en.eq(waking | takes),
        ]

        # -- Close.
        with m.If(gives & closing1):
            m.d.sync += gone.eq(1)
        with m.If(self.saved):
            m.d.sync += saved.eq(1)
        with m.If(~self.close):
            m.d.sync += [gone.eq(0), saved.eq(0)]
        m.d.comb += self.closed.eq(self.close & gone & saved)
        return m
