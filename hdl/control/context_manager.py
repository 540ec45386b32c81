"""Queue pairs in slots and in host memory: instances and connections, no logic."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import CommandStatus
from ..abi.contexts import QP_CONTEXT_WORDS
from ..abi.qpc import qpc_bytes
from ..context.away_timers import AwayTimers
from ..context.directory import CLASS_BITS, Directory
from ..context.qp_set import QpSet
from ..context.store import QpStore
from ..dma.engine import StructureRead, StructureWrite
from ..queue.ring import PushDoorbell, PushWord, RingIndex
from ..stream.arbiter import StreamArbiter
from ..stream.connections import connect_signals, connect_via, link
from ..stream.slice import Slice
from ..stream.transfer import Event, QpControl
from ..stream.words import WORD_BITS, SavedWord
from ..transport.receive.packet_slots import PacketSlots
from ..wire.packet_header import ReceiveHeader
from .context_words import ContextWords
from .doorbell_slots import DoorbellSlots
from .forced_swaps import ForcedSwaps
from .sections import BLOCKS, COMPLETING, SECTIONS, limits
from .slot_keeper import SlotKeeper

__all__ = ["ContextManager"]


class ContextManager(wiring.Component):
    """Between what names a QP by its index, and the blocks that know slots: packets, doorbells, commands, timers; and
    between those blocks and host memory.

    Parameters
    ----------
    config : Config

    Members
    -------
    base, tick : 64, 32
        Of the table in host memory; cycles of a tick.
    header, slot_header, slot, absent
        Packets, see :class:`verbena.hdl.transport.receive.packet_slots.PacketSlots`.
    sq, rq, push, slot_sq, slot_rq, slot_push
        Doorbells and pushed words, see :class:`.doorbell_slots.DoorbellSlots`.
    bring, bring_index, bring_create, brought, slot_found, status, wants, grant, done, forget, forget_slot, opens,
    reports, waits, moves, mark, visible, serving, room, token, closed, closed_qp, event, timer
        See :class:`.slot_keeper.SlotKeeper`; ``slot_found`` is its ``slot``.
    attribute_word, attribute_data, attribute_write, attribute_row
        See :class:`.context_words.ContextWords`.
    saved : array of streams of ``SavedWord``; loaded : array of streams of words
        Of each of :data:`.sections.BLOCKS`.
    directory_ready : 1
        As after a reset nobody has a slot, nor a record.
    read, write : ``StructureRead``, ``StructureWrite``
    idle, running : 1
        Nothing is to be done; timers of QPs without a slot run.
    count_qp_fetches : 1
    """

    def __init__(self, config):
        self.config = config
        qps, slots = config.qps, config.slots
        token = stream.Signature(QpControl)
        super().__init__(
            {
                "base": In(64),
                "tick": In(32),
                "header": In(stream.Signature(ReceiveHeader)),
                "slot_header": Out(stream.Signature(ReceiveHeader)),
                "slot": Out(range(slots)),
                "absent": Out(1),
                "sq": In(stream.Signature(PushDoorbell)),
                "rq": In(stream.Signature(RingIndex)),
                "push": In(stream.Signature(PushWord)),
                "slot_sq": Out(stream.Signature(PushDoorbell)),
                "slot_rq": Out(stream.Signature(RingIndex)),
                "slot_push": Out(stream.Signature(PushWord)),
                "bring": In(1),
                "bring_index": In(range(qps)),
                "bring_create": In(1),
                "brought": Out(1),
                "slot_found": Out(range(slots)),
                "status": Out(CommandStatus),
                "wants": Out(1),
                "grant": In(1),
                "done": Out(1),
                "forget": In(1),
                "forget_slot": In(range(slots)),
                "opens": In(1),
                "reports": In(1),
                "waits": In(1),
                "moves": In(1),
                "mark": Out(1),
                "visible": In(1, init=1),
                "serving": In(1),
                "room": In(1),
                "token": Out(token),
                "closed": Out(1),
                "closed_qp": Out(12),
                "event": Out(stream.Signature(Event)),
                "timer": In(CLASS_BITS),
                "attribute_word": Out(range(QP_CONTEXT_WORDS)),
                "attribute_data": Out(32),
                "attribute_write": Out(1),
                "attribute_row": In(32),
                "saved": In(stream.Signature(SavedWord)).array(len(BLOCKS)),
                "loaded": Out(stream.Signature(WORD_BITS)).array(len(BLOCKS)),
                "directory_ready": Out(1),
                "read": Out(StructureRead(config.data_width)),
                "write": Out(StructureWrite(config.data_width)),
                "idle": Out(1),
                "running": Out(1),
                "count_qp_fetches": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        c = self.config
        qps, slots = c.qps, c.slots
        m.submodules.directory = directory = Directory(qps, slots, 7)
        m.submodules.packets = packets = PacketSlots(qps, slots)
        m.submodules.sq = sq = DoorbellSlots(PushDoorbell, qps, slots)
        m.submodules.push = push = DoorbellSlots(PushWord, qps, slots, wants=False)
        m.submodules.rq = rq = DoorbellSlots(RingIndex, qps, slots)
        m.submodules.keeper = keeper = SlotKeeper(qps, slots, forced=c.swap_every > 0)
        m.submodules.timers = timers = AwayTimers(qps, slots)
        m.submodules.wanted = wanted = QpSet(qps, serve=True)
        m.submodules.store = store = QpStore(limits(c.window), qps, qpc_bytes(c.window), c.data_width)
        m.submodules.words = words = ContextWords()

        # -- Who asks where a QP is; those that are on the way of a message first.
        for number, reader in enumerate((packets, sq, push, rq, keeper, timers)):
            link(m, reader.ask, directory.ask[number])
            m.d.comb += reader.answered.eq(directory.answered[number])
            connect_signals(m, directory, reader, "row", "changed")
        # Everybody else goes first: what that goes through is long.
        connect_via(m, "next_ask", Slice(range(qps)), packets.next_ask, directory.ask[6])
        m.d.comb += [
            directory.write.eq(keeper.place),
            directory.index.eq(keeper.place_index),
            directory.new.eq(keeper.new),
            self.directory_ready.eq(directory.ready),
        ]

        # -- Packets, doorbells. Registers stand around doorbells, which come seldom: what they go through is long.
        slices = []
        wiring.connect(m, wiring.flipped(self.header), packets.i)
        wiring.connect(m, packets.o, wiring.flipped(self.slot_header))
        connect_signals(m, packets, self, "slot", "absent")
        m.d.comb += [
            packets.next_answered.eq(directory.answered[6]),
            keeper.packet.eq(packets.away),
            keeper.packet_index.eq(packets.index),
            keeper.next_packet.eq(packets.next_away),
            keeper.next_packet_index.eq(packets.next_index),
        ]
        for part, source, sink in (
            (sq, self.sq, self.slot_sq),
            (rq, self.rq, self.slot_rq),
            (push, self.push, self.slot_push),
        ):
            slices.append(Slice(source.payload.shape()))
            connect_via(m, f"slice_{len(slices)}", slices[-1], source, part.i)
            wiring.connect(m, part.o, wiring.flipped(sink))
            connect_signals(m, keeper, part, "closed", "closed_qp")
        m.d.comb += sq.wait.eq(self.push.valid | slices[-1].o.valid)
        wiring.connect(m, keeper.sq_ring, sq.ring)
        wiring.connect(m, keeper.rq_ring, rq.ring)
        m.d.comb += [keeper.used[0].eq(packets.slot), keeper.used_en[0].eq(packets.used_en)]
        for number, part in ((1, sq), (2, rq)):
            m.d.comb += [keeper.used[number].eq(part.used), keeper.used_en[number].eq(part.used_en)]

        # -- Who is wanted.
        m.submodules.wants = wants = StreamArbiter(wanted.change.payload.shape(), 4)
        asks = []
        for part in (sq, rq):
            slices.append(Slice(part.wanted.payload.shape()))
            link(m, part.wanted, slices[-1].i)
            m.submodules[f"slice_{len(slices)}"] = slices[-1]
            asks.append(slices[-1].o)
        for number, source in enumerate((*asks, timers.o)):
            m.d.comb += [
                wants.i[number].valid.eq(source.valid),
                wants.i[number].payload.qpn.eq(source.payload),
                wants.i[number].payload.member.eq(1),
                source.ready.eq(wants.i[number].ready),
            ]
        link(m, keeper.want, wants.i[3])
        wiring.connect(m, wants.o, wanted.change)
        link(m, wanted.o, keeper.wanted)

        # -- Timers.
        link(m, keeper.timers, timers.change)
        connect_signals(m, self, timers, "tick", "timer")
        connect_signals(m, timers, self, "running")
        m.d.comb += [keeper.timer.eq(self.timer), keeper.timer_phase.eq(timers.phase)]

        # -- Records.
        names = ("full", "wake", "writing", "write_failed", "written_index", "reading", "bad", "doorbells")
        connect_signals(m, store, keeper, *names)
        connect_signals(m, keeper, store, "collect", "write", "read", "whole", "back")
        m.d.comb += [
            store.base.eq(self.base),
            store.write_index.eq(keeper.write_index),
            store.read_index.eq(keeper.read_index),
        ]
        m.d.sync += keeper.completed.eq(Cat(store.given[SECTIONS.index(name)] for name in COMPLETING).all())
        owners = dict(zip(BLOCKS, zip(map(wiring.flipped, self.saved), map(wiring.flipped, self.loaded)), strict=True))
        owners["attributes"] = words.saved, words.loaded
        for number, name in enumerate(SECTIONS):
            saved, loaded = owners[name]
            wiring.connect(m, saved, store.saved[number])
            wiring.connect(m, store.loaded[number], loaded)
        for mine, part in (
            (self.read.request, store.read_request),
            (self.read.data, store.read_data),
            (self.write.request, store.write_request),
            (self.write.data, store.write_data),
            (self.write.done, store.write_done),
        ):
            wiring.connect(m, wiring.flipped(mine), part)
        m.d.comb += [
            words.save.eq(keeper.attributes_save),
            words.load.eq(keeper.attributes_load),
            words.clear.eq(keeper.attributes_clear),
            keeper.attributes_busy.eq(words.busy),
            self.attribute_word.eq(words.word),
            self.attribute_data.eq(words.data),
            self.attribute_write.eq(words.write),
            words.row.eq(self.attribute_row),
        ]

        # -- Commands.
        wiring.connect(m, keeper.token, wiring.flipped(self.token))
        wiring.connect(m, keeper.event, wiring.flipped(self.event))
        names = ("bring", "bring_index", "bring_create", "grant", "forget", "forget_slot", "opens", "reports", "waits")
        connect_signals(m, self, keeper, *names, "moves", "visible", "serving", "room")
        names = ("brought", "status", "wants", "done", "mark", "closed", "closed_qp", "count_qp_fetches")
        connect_signals(m, keeper, self, *names)
        m.d.comb += [
            self.slot_found.eq(keeper.slot),
            self.idle.eq(keeper.idle & wanted.empty & ~Cat(part.o.valid for part in slices).any()),
        ]
        if c.swap_every:
            m.submodules.forced_swaps = forced = ForcedSwaps(slots, c.swap_every)
            wiring.connect(m, forced.o, keeper.evict)
            m.d.comb += forced.skip.eq(keeper.evict_skip)
        return m
