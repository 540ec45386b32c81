"""Which queue pairs are to get slots, and their records on the way to them."""

from itertools import pairwise

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..context.directory import Row
from ..context.slot_finder import SlotFinder
from .next_job import JobKind, NextJob

__all__ = ["Fetched", "QpFetcher"]

FETCHES = 2
"""Records that are read at a time: while one is given to its owners the next one comes."""


class Fetched(data.StructLayout):
    """A QP whose record is read: who wants it, a ``command``, or the set of those that are ``wanted``; ``here``, with
    ``slot``: it had its slot, and the driver's part alone is read; ``timer``: its timer ran while it was away.
    """

    def __init__(self, qps, slots):
        super().__init__({"index": range(qps), "slot": range(slots), "command": 1, "wanted": 1, "here": 1, "timer": 1})


class QpFetcher(wiring.Component):
    """Takes one job after the other, looks where its QP is, and has the record of one that is away read, and the
    driver's part of one that is wanted and here. Who is next :class:`.next_job.NextJob` says.

    A QP that packets wait for, and that has its slot, has used it. Nothing is read of a QP whose record is being read
    already. A command hears at once that its QP is here, or is not at all, and what it said stands until it is told.

    *Latency*: 7 cycles from a job to its read, and 8 for one of a QP that has its slot.

    Parameters
    ----------
    qps, slots : int
        Powers of two.

    Members
    -------
    bring, bring_index : 1, QP index
        As of :class:`.slot_keeper.SlotKeeper`.
    packet, packet_index, wanted, ahead
        See :class:`.next_job.NextJob`.
    ask, answered, row, changed
        From the directory.
    used, used_en : slot, 1
    command_here, command_absent, slot : 1, 1, slot
        The QP of ``bring`` has this slot; it does not exist. As of 2 cycles ago.
    told : 1
        Strobe: the command has heard of it.
    unwritten, unwritten_index : 1, QP index
        This QP's record is not in host memory yet.
    hold : 1
        No read begins.
    read : stream of ``{index, whole}``
        To a :class:`verbena.hdl.context.store.QpStore`.
    reads : 1
        A read begins.
    o : stream of ``Fetched``
        Whose records are read, in their order; taken when it has come and is not needed any more.
    idle : 1
    """

    def __init__(self, qps, slots):
        self.qps = qps
        self.slots = slots
        index, slot = range(qps), range(slots)
        super().__init__(
            {
                "bring": In(1),
                "bring_index": In(index),
                "packet": In(1),
                "packet_index": In(index),
                "wanted": In(stream.Signature(index)),
                "ahead": In(stream.Signature(index)),
                "ask": Out(stream.Signature(index)),
                "answered": In(1),
                "row": In(Row(slots)),
                "changed": In(1),
                "used": Out(slot),
                "used_en": Out(1),
                "command_here": Out(1),
                "command_absent": Out(1),
                "slot": Out(slot),
                "told": In(1),
                "unwritten": In(1),
                "unwritten_index": In(index),
                "hold": In(1),
                "read": Out(stream.Signature(data.StructLayout({"index": index, "whole": 1}))),
                "reads": Out(1),
                "o": Out(stream.Signature(Fetched(qps, slots))),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.finder = finder = SlotFinder(self.qps, self.slots)
        m.submodules.next_job = next_job = NextJob(self.qps)
        wiring.connect(m, finder.ask, wiring.flipped(self.ask))
        wiring.connect(m, wiring.flipped(self.wanted), next_job.wanted)
        wiring.connect(m, wiring.flipped(self.ahead), next_job.ahead)
        kind, index = Signal(JobKind), Signal(range(self.qps))
        for_command, for_packet = Signal(), Signal()
        here, away, absent, timer = (Signal() for _ in range(4))  # as of a cycle ago
        whole = Signal()  # of the read that begins: it was away
        mine = Signal()  # it is still the command's QP

        # -- Whose records are read, the oldest first.
        fetches = [Signal(self.o.payload.shape(), name=f"fetch_{number}") for number in range(FETCHES)]
        valid = Signal(FETCHES)
        push, pop = Signal(), Signal()
        new = Signal(self.o.payload.shape())
        m.d.comb += [
            self.o.valid.eq(valid[0]),
            self.o.payload.eq(fetches[0]),
            pop.eq(self.o.valid & self.o.ready),
            new.index.eq(index),
            new.slot.eq(self.slot),
            new.command.eq(for_command),
            new.wanted.eq(kind == JobKind.WANTED),
            new.here.eq(~whole),
            new.timer.eq(timer & whole),
        ]
        with m.If(pop):
            m.d.sync += [valid.eq(valid >> 1), *(left.eq(right) for left, right in pairwise(fetches))]
        for number, fetch in enumerate(fetches):
            free = ~valid[number] & (valid[number - 1] if number else 1)
            with m.If(push & free & ~pop):
                m.d.sync += [fetch.eq(new), valid[number].eq(1)]
            if number:
                with m.If(push & pop & free):
                    m.d.sync += [fetches[number - 1].eq(new), valid[number - 1].eq(1)]
        twice, packet_is_fetched, unwritten = Signal(), Signal(), Signal()

        def among(which):
            found = 0
            for number, fetch in enumerate(fetches):
                found |= valid[number] & (fetch.index == which)
            return found

        m.d.sync += [
            twice.eq(among(index)),
            packet_is_fetched.eq(among(self.packet_index)),
            unwritten.eq(self.unwritten & (self.unwritten_index == index)),
            mine.eq(self.bring & (self.bring_index == index)),
        ]
        m.d.comb += [
            for_command.eq(kind == JobKind.COMMAND),
            for_packet.eq((kind == JobKind.PACKET) | (kind == JobKind.AHEAD)),
            next_job.command.eq(self.bring),
            next_job.command_index.eq(self.bring_index),
            next_job.packet.eq(self.packet & ~packet_is_fetched),
            next_job.packet_index.eq(self.packet_index),
            finder.index.eq(index),
            finder.answered.eq(self.answered),
            finder.row.eq(self.row),
            finder.changed.eq(self.changed),
            self.used.eq(self.slot),
            self.read.payload.index.eq(index),
            self.read.payload.whole.eq(whole),
        ]
        with m.FSM() as fsm:
            m.d.comb += [
                self.idle.eq(fsm.ongoing("IDLE") & ~valid.any() & ~next_job.o.valid),
                self.reads.eq(fsm.ongoing("READ")),
            ]
            with m.State("IDLE"):
                m.d.comb += next_job.o.ready.eq(~valid[FETCHES - 1] & ~self.hold)
                m.d.sync += [kind.eq(next_job.o.payload.kind), index.eq(next_job.o.payload.index)]
                with m.If(next_job.o.valid & next_job.o.ready):
                    m.next = "FIND"
            with m.State("FIND"):
                m.d.comb += finder.valid.eq(1)
                with m.If(finder.here | finder.away | finder.absent):
                    m.next = "FOUND"
            with m.State("FOUND"):
                m.d.comb += finder.valid.eq(1)
                m.d.comb += [
                    self.command_here.eq(for_command & mine & here),
                    self.command_absent.eq(for_command & mine & absent),
                ]
                with m.If(for_command & (~mine | self.told)):
                    m.next = "IDLE"
                with m.Elif(for_command & (here | absent)):
                    pass
                with m.Elif(for_packet & (here | absent | twice)):
                    m.d.comb += self.used_en.eq(here)
                    m.next = "IDLE"
                with m.Elif(absent):
                    m.next = "IDLE"
                with m.Elif((here | (away & ~unwritten)) & ~twice & ~self.hold):
                    m.d.sync += whole.eq(away)
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += self.read.valid.eq(1)
                with m.If(self.read.ready):
                    m.d.comb += push.eq(1)
                    m.next = "PUSHED"
            with m.State("PUSHED"):  # who asks is compared with what is read
                m.next = "IDLE"
            looks = fsm.ongoing("FIND") | fsm.ongoing("FOUND")
        with m.If(looks):
            m.d.sync += [here.eq(finder.here), away.eq(finder.away), absent.eq(finder.absent)]
            with m.If(finder.here):
                m.d.sync += self.slot.eq(finder.slot)
            with m.If(finder.away):
                m.d.sync += timer.eq(finder.timer)
        return m
