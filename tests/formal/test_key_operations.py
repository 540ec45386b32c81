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

    One entry, ``which``, is followed: whether it is valid in host memory. What is claimed is claimed of operations on
    it. Assumed: streams that come keep what they offer; one beat follows each read, one answer each write; nobody else
    writes to the entry; a write that fails has been done or not (``luck``).
    """

    def __init__(self):
        self.dut = KeyOperations(DATA_WIDTH, 1)
        members = self.dut.signature.members
        self.names = [name for name in members if name != "command"]
        own = {"which": wiring.In(KEY_INDEX_BITS), "luck": wiring.In(1), "stands": wiring.In(1)}
        super().__init__({name: members[name] for name in self.names} | own)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        for name, member in self.signature.members.items():
            port = getattr(self, name)
            if name not in self.names:
                pass
            elif not member.is_signature:
                m.d.comb += getattr(dut, name).eq(port)
            elif member.flow == wiring.In:
                wiring.connect(m, wiring.flipped(port), getattr(dut, name))
            else:
                wiring.connect(m, getattr(dut, name), wiring.flipped(port))

        # -- How it is driven.
        reading, writing = Signal(), Signal()
        base, log_size = Signal.like(self.mpt_base), Signal.like(self.mpt_log_size)
        started = Signal()
        m.d.sync += [started.eq(1), base.eq(self.mpt_base), log_size.eq(self.mpt_log_size)]
        assume(m, ~started | ((base == self.mpt_base) & (log_size == self.mpt_log_size)))
        which = Signal(KEY_INDEX_BITS)
        m.d.sync += which.eq(self.which)
        assume(m, ~started | (which == self.which))
        assume(m, self.mpt_base == 0)
        assume(m, ~self.fill.valid | (reading & self.fill.payload.last))
        assume(m, ~self.done.valid | writing)
        with m.If(dut.read.valid & dut.read.ready):
            m.d.sync += reading.eq(1)
        with m.Elif(self.fill.valid):
            m.d.sync += reading.eq(0)
        sent = dut.data.valid & dut.data.ready & dut.data.payload.last
        with m.If(sent):
            m.d.sync += writing.eq(1)
        with m.Elif(self.done.valid):
            m.d.sync += writing.eq(0)

        # -- Whether the entry is valid in host memory.
        valid, read_it, writes_it = Signal(), Signal(), Signal()
        now = Signal()
        m.d.comb += now.eq(Mux(started, valid, self.stands))
        m.d.sync += valid.eq(now)
        with m.If(dut.read.valid & dut.read.ready):
            m.d.sync += read_it.eq(dut.read.payload.address[5:] == self.which)
        with m.If(dut.write.valid & dut.write.ready):
            m.d.sync += writes_it.eq(dut.write.payload.address[5:] == self.which)
        assume(m, ~(self.fill.valid & read_it) | (self.fill.payload.data[VALID_BIT] == now))

        # -- What has come of the present operation.
        begins = (dut.send.valid & dut.send.ready) | (dut.receive.valid & dut.receive.ready)
        ends = (dut.sent.valid & dut.sent.ready) | (dut.received.valid & dut.received.ready)
        invalidates = Signal()
        was_valid, tracked, was_read = Signal(), Signal(), Signal()
        sets, whole = Signal(), Signal()  # the write under way is of a word that is valid; of the others
        cleared, dropped, stood, touched = Signal(), Signal(), Signal(), Signal()
        first = dut.write.payload.length == 8
        of_first = Signal()
        with m.If(dut.write.valid & dut.write.ready):
            m.d.sync += of_first.eq(first)
        good = self.done.valid & (self.done.payload.status == AccessStatus.OK)
        with m.If(begins):
            m.d.sync += [
                invalidates.eq(dut.receive.ready | (dut.send.payload.operation == KeyOperation.INVALIDATE)),
                was_valid.eq(now),
                tracked.eq(Mux(dut.receive.ready, dut.receive.payload.key[8:], dut.send.payload.key[8:]) == self.which),
                *(flag.eq(0) for flag in (was_read, cleared, dropped, stood, touched)),
            ]
            assume(m, ~dut.receive.valid | (dut.receive.payload.operation == KeyOperation.INVALIDATE))
        with m.If(self.fill.valid):
            m.d.sync += was_read.eq(1)
        with m.If(sent):
            m.d.sync += [
                sets.eq(of_first & dut.data.payload.data[VALID_BIT]),
                whole.eq(~of_first),
                touched.eq(1),
            ]
        with m.If(good):
            m.d.sync += [cleared.eq(cleared | ~(sets | whole)), stood.eq(stood | whole)]
        with m.If(self.done.valid & writes_it & of_first & (good | self.luck)):
            m.d.sync += valid.eq(sets)
        drops = dut.invalidate.valid & dut.invalidate.ready
        with m.If(drops):
            m.d.sync += dropped.eq(cleared)

        # -- What must be.
        ok = ends & tracked & (dut.sent.payload.status == AccessStatus.OK)
        refused = (dut.sent.payload.status != AccessStatus.OK) & (dut.sent.payload.status != AccessStatus.BUS)
        claim(m, "dead", ~(ok & invalidates) | (was_valid & cleared & dropped & ~valid))
        claim(m, "dropped_first", ~(sent & ~of_first & tracked) | ~was_valid | dropped)
        claim(m, "valid_last", ~(sent & of_first & dut.data.payload.data[VALID_BIT]) | (stood & ~invalidates))
        claim(m, "as_before", ~(refused & ends) | ~touched)
        reach(m, "invalidated", ok & invalidates & was_read)
        reach(m, "invalidated_as_kept", ok & invalidates & ~was_read)
        reach(m, "registered", ok & ~invalidates & stood & ~was_valid)
        reach(m, "bound_to_nothing", ok & ~invalidates & was_valid)
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
