"""Operations on keys: what was valid is dropped before anything else is done, and nothing is valid by halves."""

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.tables import KEY_INDEX_BITS, AccessStatus
from verbena.hdl.memory import key_operations
from verbena.hdl.memory.key_operations import KeyOperation, KeyOperations

DATA_WIDTH = 512
"""An entry is one beat."""
DEPTH = 31
"""Of the proof: one operation that reads its entry, and the beginning of the next."""
REACHED = 40
"""Two operations, of which the second finds kept what the first has left: too much for the proof, which takes the
solver minutes a cycle there. The block's random test has these."""
VALID_BIT = 63
"""Of an entry's first word."""


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Entries are kept in two rows, so that each is soon needed by another one."""
    monkeypatch.setattr(key_operations, "KEPT", 2)


class Operations(wiring.Component):
    """Operations of both clients, on any entries, with any pauses; the command block asks for nothing.

    One entry, ``which``, is followed: whether it is valid in host memory, and whether it may be so for the access
    check. That reads it at any time (``looks``), but for ``hold``, has it some time later (``lands``), and may have
    seen what was there at any moment between; it takes a change at any moment while that is offered (``swaps``), and
    forgets what it reads then. What is claimed is claimed of operations on the entry. Assumed: streams that come keep
    what they offer; one beat follows each read, one answer each write, in order; nobody else writes to the entry; a
    write that fails has been done or not (``luck``).
    """

    def __init__(self):
        self.dut = KeyOperations(DATA_WIDTH, 1)
        members = self.dut.signature.members
        self.names = [name for name in members if name != "command"]
        free = dict.fromkeys(("luck", "stands", "looks", "lands", "swaps"), wiring.In(1))
        own = {"which": wiring.In(KEY_INDEX_BITS), **free}
        super().__init__({name: members[name] for name in self.names} | own)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        for name, member in self.signature.members.items():
            port = getattr(self, name)
            if name not in self.names:
                pass
            elif not member.is_signature:
                m.d.comb += getattr(dut, name).eq(port) if member.flow == wiring.In else port.eq(getattr(dut, name))
            elif member.flow == wiring.In:
                wiring.connect(m, wiring.flipped(port), getattr(dut, name))
            else:
                wiring.connect(m, getattr(dut, name), wiring.flipped(port))

        # -- How it is driven.
        reading, writing = Signal(), Signal(range(4))
        base, log_size = Signal.like(self.mpt_base), Signal.like(self.mpt_log_size)
        started = Signal()
        m.d.sync += [started.eq(1), base.eq(self.mpt_base), log_size.eq(self.mpt_log_size)]
        assume(m, ~started | ((base == self.mpt_base) & (log_size == self.mpt_log_size)))
        which = Signal(KEY_INDEX_BITS)
        m.d.sync += which.eq(self.which)
        assume(m, ~started | (which == self.which))
        assume(m, self.mpt_base == 0)
        assume(m, ~self.fill.valid | (reading & self.fill.payload.last))
        assume(m, ~self.done.valid | (writing != 0))
        with m.If(dut.read.valid & dut.read.ready):
            m.d.sync += reading.eq(1)
        with m.Elif(self.fill.valid):
            m.d.sync += reading.eq(0)
        sent = dut.data.valid & dut.data.ready & dut.data.payload.last
        m.d.sync += writing.eq(writing + sent - self.done.valid)

        # -- Whether the entry is valid in host memory. Writes under way: whether each is of the first word, and valid.
        valid, read_it, writes_it = Signal(), Signal(), Signal()
        of_first = Signal()
        firsts, sets = Signal(4), Signal(4)
        now = Signal()
        m.d.comb += now.eq(Mux(started, valid, self.stands))
        m.d.sync += valid.eq(now)
        with m.If(dut.read.valid & dut.read.ready):
            m.d.sync += read_it.eq(dut.read.payload.address[5:] == self.which)
        with m.If(dut.write.valid & dut.write.ready):
            m.d.sync += writes_it.eq(dut.write.payload.address[5:] == self.which)
        assume(m, ~(self.fill.valid & read_it) | (self.fill.payload.data[VALID_BIT] == now))

        # -- Whether it may be valid for the access check.
        had, reads_it, seen = Signal(), Signal(), Signal()  # it is; a read of it is under way, which may find that
        swapped, swap = Signal(), Signal()
        change = dut.invalidate
        its = change.valid & (change.payload.index == self.which)
        drops = its & change.ready
        m.d.comb += swap.eq(its & ~swapped & (self.swaps | change.ready))
        m.d.sync += swapped.eq(~drops & (swapped | swap))
        with m.If(swap):
            m.d.sync += [had.eq(change.payload.entry.valid), reads_it.eq(0)]
        with m.Elif(reads_it):
            m.d.sync += [seen.eq(seen | now), reads_it.eq(~self.lands)]
            with m.If(self.lands):
                m.d.sync += had.eq(had | seen | now)
        with m.Elif(self.looks & ~dut.hold):
            m.d.sync += [reads_it.eq(1), seen.eq(now)]
        with m.If(~started):
            m.d.sync += had.eq(self.stands)
        alive = had | (reads_it & seen)

        # -- What has come of the present operation.
        begins = (dut.send.valid & dut.send.ready) | (dut.receive.valid & dut.receive.ready)
        ends = (dut.sent.valid & dut.sent.ready) | (dut.received.valid & dut.received.ready)
        invalidates = Signal()
        was_valid, tracked, was_read = Signal(), Signal(), Signal()
        dropped, others, touched = Signal(), Signal(), Signal()
        bad = Signal()  # the last write has failed
        first = dut.write.payload.length == 8
        with m.If(dut.write.valid & dut.write.ready):
            m.d.sync += of_first.eq(first)
        good = self.done.valid & (self.done.payload.status == AccessStatus.OK)
        with m.If(begins):
            m.d.sync += [
                invalidates.eq(dut.receive.ready | (dut.send.payload.operation == KeyOperation.INVALIDATE)),
                was_valid.eq(now),
                tracked.eq(Mux(dut.receive.ready, dut.receive.payload.key[8:], dut.send.payload.key[8:]) == self.which),
                *(flag.eq(0) for flag in (was_read, dropped, others, touched)),
            ]
            assume(m, ~dut.receive.valid | (dut.receive.payload.operation == KeyOperation.INVALIDATE))
        with m.If(self.fill.valid):
            m.d.sync += was_read.eq(1)
        becomes = of_first & dut.data.payload.data[VALID_BIT]
        with m.If(sent):
            m.d.sync += [others.eq(others | ~of_first), touched.eq(1)]
        for place in range(4):
            behind = place + 1 if place < 3 else place
            with m.If(sent & (writing - self.done.valid == place)):
                m.d.sync += [firsts[place].eq(of_first), sets[place].eq(becomes)]
            with m.Elif(self.done.valid):
                m.d.sync += [firsts[place].eq(firsts[behind]), sets[place].eq(sets[behind])]
        with m.If(self.done.valid):
            m.d.sync += bad.eq(~good)
        with m.If(self.done.valid & writes_it & firsts[0] & (good | self.luck)):
            m.d.sync += valid.eq(sets[0])
        with m.If(drops):
            m.d.sync += dropped.eq(1)

        # -- What must be.
        status = dut.sent.payload.status
        ok = ends & tracked & (status == AccessStatus.OK)
        refused = (status != AccessStatus.OK) & (status != AccessStatus.BUS)
        failed = ends & tracked & (status == AccessStatus.BUS) & touched & ~bad
        claim(m, "dead", ~(ok & invalidates) | (was_valid & dropped & ~valid & ~alive))
        claim(m, "dropped_first", ~(sent & ~of_first & tracked) | ~was_valid | dropped)
        claim(m, "whole", ~(sent & ~of_first & tracked) | ~(reads_it & (seen | now)))
        claim(m, "valid_last", ~(sent & becomes) | (others & ~invalidates))
        claim(m, "taken_back", ~failed | (~valid & ~alive))
        claim(m, "as_before", ~(refused & ends) | ~touched)
        reach(m, "invalidated", ok & invalidates & was_read)
        reach(m, "invalidated_as_kept", ok & invalidates & ~was_read)
        reach(m, "registered", ok & ~invalidates & valid & had & ~was_valid)
        reach(m, "bound_to_nothing", ok & ~invalidates & was_valid)
        reach(m, "taken_back", failed)
        reach(m, "refused", ends & tracked & refused & was_read)
        return m


def test_it_holds(tmp_path):
    verdict = prove(Operations(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Operations(), tmp_path, REACHED).holds


def test_an_entry_that_is_written_before_it_is_dropped_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(key_operations, "NOT_VALID", key_operations.OTHERS)
    assert "dropped_first" in prove(Operations(), tmp_path, DEPTH).names
