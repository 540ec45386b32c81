"""Operations on keys: what was valid is dropped before anything else is done, and nothing is valid by halves."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory import key_operations
from verbena.hdl.memory.key_operations import KeyOperation, KeyOperations

DATA_WIDTH = 512
"""An entry is one beat."""
DEPTH = 34
VALID_BIT = 63
"""Of an entry's first word."""


class Operations(wiring.Component):
    """Operations of both clients, on any entries, with any pauses; the command block asks for nothing.

    Assumed: streams that come keep what they offer; one beat follows each read, one answer each write.
    """

    def __init__(self):
        self.dut = KeyOperations(DATA_WIDTH, 1)
        members = self.dut.signature.members
        self.names = [name for name in members if name != "command"]
        super().__init__({name: members[name] for name in self.names})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        for name, member in self.signature.members.items():
            port = getattr(self, name)
            if not member.is_signature:
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

        # -- What has come of the present operation.
        begins = (dut.send.valid & dut.send.ready) | (dut.receive.valid & dut.receive.ready)
        ends = (dut.sent.valid & dut.sent.ready) | (dut.received.valid & dut.received.ready)
        invalidates = Signal()
        was_valid, first_read = Signal(), Signal()  # the first entry that was read
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
                *(flag.eq(0) for flag in (was_valid, first_read, cleared, dropped, stood, touched)),
            ]
            assume(m, ~dut.receive.valid | (dut.receive.payload.operation == KeyOperation.INVALIDATE))
        with m.If(self.fill.valid & ~first_read):
            m.d.sync += [first_read.eq(1), was_valid.eq(self.fill.payload.data[VALID_BIT])]
        with m.If(sent):
            m.d.sync += [
                sets.eq(of_first & dut.data.payload.data[VALID_BIT]),
                whole.eq(~of_first),
                touched.eq(1),
            ]
        with m.If(good):
            m.d.sync += [cleared.eq(cleared | ~(sets | whole)), stood.eq(stood | whole)]
        drops = dut.invalidate.valid & dut.invalidate.ready
        with m.If(drops):
            m.d.sync += dropped.eq(cleared)

        # -- What must be.
        ok = ends & (dut.sent.payload.status == AccessStatus.OK)
        bus = dut.sent.payload.status == AccessStatus.BUS
        claim(m, "dead", ~(ok & invalidates) | (was_valid & cleared & dropped))
        claim(m, "dropped_first", ~(sent & ~of_first) | ~was_valid | dropped)
        claim(m, "valid_last", ~(sent & of_first & dut.data.payload.data[VALID_BIT]) | (stood & ~invalidates))
        claim(m, "as_before", ~(ends & ~ok & ~bus) | ~touched)
        reach(m, "invalidated", ok & invalidates)
        reach(m, "registered", ok & ~invalidates & stood & ~was_valid)
        reach(m, "bound_to_nothing", ok & ~invalidates & was_valid)
        reach(m, "refused", ends & ~ok & ~bus & first_read)
        return m


def test_it_holds(tmp_path):
    verdict = prove(Operations(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Operations(), tmp_path, DEPTH).holds


def test_an_entry_that_is_written_before_it_is_dropped_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(key_operations, "NOT_VALID", key_operations.OTHERS)
    assert "dropped_first" in prove(Operations(), tmp_path, DEPTH).names
