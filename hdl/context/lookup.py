"""The first stage of a side whose contexts are in host memory: who has no slot gets one, while others go on."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.transfer import Done, ReadRequest
from .directory import Directory
from .fetch import ContextFetch
from .layout import SlotLayout
from .slot_bank import SlotBank
from .store import ContextError, ContextStore

__all__ = ["ContextLookup"]


class ContextLookup(wiring.Component):
    """Hands on items, one after the other, each with the attributes and the states of its QPN: a
    :class:`.fetch.ContextFetch`, and in front of it the directory, the store, and a queue.

    An item is looked up when it comes, and gets a slot if its QPN has none. Then it waits in the queue for those before
    it and, if it has missed, for its context; meanwhile those behind it are looked up, and theirs are fetched. So items
    leave in the order in which they came, and ``waiting`` misses overlap. What a lookup decides stays: the slot is
    pinned from then on, until the user says ``unpin``.

    An item whose slot is there comes out ``rows`` + 4 cycles after it came, if nothing waits. There is one each
    ``rows`` + 2 cycles at most.

    Who takes an item may write states back in that cycle, as of ``ContextFetch``. Of an item that is not ``known``,
    because its QPN is beyond the table, and of a ``bad`` one, whose context could not be read, attributes and states
    are undefined, and what is written back has no effect. An item that is known is unpinned once, in the cycle in which
    it is taken or later: when nothing behind needs its slot.

    Parameters
    ----------
    item : shape-like
    record, names, states, rows
        See :class:`.layout.SlotLayout`.
    slots, qpn_bits, pins
        See :class:`.directory.Directory`.
    data_width : int
    waiting : int
        Items, and fetches under way.

    Members
    -------
    base, log_size : 64, 5
        Bus address of the table, 4 KiB aligned, and the logarithm of the number of QPs in it.
    i : stream of ``qpn``, ``item``
    o : stream of ``slot``, ``qpn``, ``known``, ``bad``, ``item``, ``attributes``, ``states``
    settled, write
        See ``ContextFetch``.
    unpin, unpin_en : slot, 1
        Strobe.
    close, close_qpn, closed : 1, QPN, 1
        See ``Directory``: while ``closed``, the record in memory is the truth, and may be changed.
    error : stream of ``qpn``, ``write``
        A context could not be read, or not be written back.
    read, data, write_request, write_data, done
        To and from memory, see :class:`.store.ContextStore`.
    count_hit, count_miss : 1
        Strobes.
    """

    def __init__(self, item, record, names, states, *, slots, rows, data_width=64, qpn_bits=24, pins=64, waiting=16):
        layout = SlotLayout(record, names, states, rows)
        self.qpn_bits = qpn_bits
        self.waiting = waiting
        self.slots = slots
        self._directory = Directory(slots, len(layout.saved), qpn_bits=qpn_bits, pins=pins)
        self._store = ContextStore(
            layout, slots, data_width=data_width, qpn_bits=qpn_bits, jobs=waiting, fetches=waiting
        )
        self._bank = SlotBank(layout, slots)
        self._layout = layout
        found = data.StructLayout({"qpn": qpn_bits, "known": 1, "bad": 1, "item": item})
        self._fetch = ContextFetch(found, self._bank)
        self.item = item
        coming = data.StructLayout({"qpn": qpn_bits, "item": item})
        going = {"slot": range(slots), "qpn": qpn_bits, "known": 1, "bad": 1, "item": item}
        going |= {"attributes": self._bank.layout, "states": data.StructLayout(states)}
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "base": In(64),
                "log_size": In(5),
                "i": In(stream.Signature(coming)),
                "o": Out(stream.Signature(data.StructLayout(going))),
                "settled": Out(1),
                "write": self._fetch.signature.members["write"],
                "unpin": In(range(slots)),
                "unpin_en": In(1),
                "close": In(1),
                "close_qpn": In(qpn_bits),
                "closed": Out(1),
                "error": Out(stream.Signature(ContextError)),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(beat)),
                "write_request": Out(stream.Signature(ReadRequest)),
                "write_data": Out(stream.Signature(beat)),
                "done": In(stream.Signature(Done)),
                "count_hit": Out(1),
                "count_miss": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.directory = directory = self._directory
        m.submodules.store = store = self._store
        m.submodules.fetch = fetch = self._fetch
        bank = self._bank
        wiring.connect(m, directory.job, store.job)
        wiring.connect(m, store.fill, bank.fill)
        for mine, theirs in (
            (self.read, store.read),
            (self.data, store.data),
            (self.write_request, store.write),
            (self.write_data, store.write_data),
            (self.done, store.done),
            (self.error, store.error),
        ):
            wiring.connect(m, wiring.flipped(mine), theirs)
        m.d.comb += [
            store.base.eq(self.base),
            bank.back_slot.eq(store.back_slot),
            bank.back_en.eq(store.back_en),
            store.back_ready.eq(bank.back_ready),
            store.back_valid.eq(bank.back_valid),
            store.back_row.eq(bank.back_row),
            store.back_data.eq(bank.back_data),
            directory.saved.eq(store.saved),
            directory.unpin.eq(self.unpin),
            directory.unpin_en.eq(self.unpin_en),
            directory.close.eq(self.close),
            directory.close_qpn.eq(self.close_qpn),
            self.closed.eq(directory.closed),
        ]

        # -- Items that have their slot, or will have it.
        coming = self.i.payload
        waiting = {"slot": range(self.slots), "qpn": self.qpn_bits, "known": 1, "missed": 1, "item": self.item}
        m.submodules.items = items = Queue(data.StructLayout(waiting), self.waiting, bypass=True)
        known = Signal()
        m.d.comb += [
            known.eq((coming.qpn >> self.log_size) == 0),
            directory.lookup.valid.eq(self.i.valid & known & items.i.ready),
            directory.lookup.payload.eq(coming.qpn),
            items.i.valid.eq(self.i.valid & (directory.lookup.ready | ~known)),
            self.i.ready.eq(items.i.ready & (directory.lookup.ready | ~known)),
            items.i.payload.slot.eq(directory.slot),
            items.i.payload.qpn.eq(coming.qpn),
            items.i.payload.known.eq(known),
            items.i.payload.missed.eq(known & directory.missed),
            Value.cast(items.i.payload.item).eq(Value.cast(coming.item)),
            self.count_hit.eq(directory.lookup.valid & directory.lookup.ready & ~directory.missed),
            self.count_miss.eq(directory.lookup.valid & directory.lookup.ready & directory.missed),
        ]

        # -- Fetches are done in the order of the items that missed.
        m.submodules.bad = bad = memory.Memory(shape=1, depth=self.slots, init=[])
        bad_put, bad_get = bad.write_port(), bad.read_port(domain="comb")
        done, uses = Signal(range(self.waiting + 1)), Signal()
        head, next_ = items.o.payload, fetch.i.payload
        ready = Signal()
        m.d.comb += [
            bad_put.addr.eq(store.filled.slot),
            bad_put.data.eq(store.filled.bad),
            bad_put.en.eq(store.filled.valid),
            bad_get.addr.eq(head.slot),
            ready.eq(~head.missed | done.any()),
            fetch.i.valid.eq(items.o.valid & ready),
            items.o.ready.eq(fetch.i.ready & ready),
            next_.slot.eq(head.slot),
            next_.fresh.eq(head.missed),
            next_.item.qpn.eq(head.qpn),
            next_.item.known.eq(head.known),
            next_.item.bad.eq(bad_get.data),
            Value.cast(next_.item.item).eq(Value.cast(head.item)),
            uses.eq(fetch.i.valid & fetch.i.ready & head.missed),
        ]
        m.d.sync += done.eq(done + store.filled.valid - uses)

        # -- What comes out.
        found, going = fetch.o.payload, self.o.payload
        counts = Signal()
        m.d.comb += [
            self.o.valid.eq(fetch.o.valid),
            fetch.o.ready.eq(self.o.ready),
            self.settled.eq(fetch.settled),
            going.slot.eq(found.slot),
            going.qpn.eq(found.item.qpn),
            going.known.eq(found.item.known),
            going.bad.eq(found.item.bad & found.item.known),
            Value.cast(going.item).eq(Value.cast(found.item.item)),
            going.attributes.eq(found.attributes),
            going.states.eq(found.states),
            counts.eq(found.item.known & ~found.item.bad),
            directory.dirty_slot.eq(found.slot),
        ]
        dirty = [[] for _ in self._layout.saved]
        for part in self._layout.states:
            mine, theirs = getattr(self.write, part), getattr(fetch.write, part)
            m.d.comb += [theirs.data.eq(mine.data), theirs.en.eq(mine.en & counts)]
            dirty[self._layout.saved.index(self._layout.line_of(part))].append(theirs.en)
        m.d.comb += directory.dirty.eq(Cat(Cat(writes).any() for writes in dirty))
        return m
