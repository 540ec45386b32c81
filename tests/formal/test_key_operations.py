"""Operations on keys, one behind the other: each finds what the one before has left, and what becomes of it holds."""

import pytest
from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from followed_entry import FREE, VALID_BIT, connect_ports, follow
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory import key_operations
from verbena.hdl.memory.entry_writer import EntryWriter
from verbena.hdl.memory.key_operations import KeyOperation, KeyOperations

DATA_WIDTH = 512
"""An entry is one beat."""
DEPTH = 23
"""Of the proof: one operation that reads its entry, and what another one, behind it, writes first."""
REACHED = 40
"""Two operations, of which the second finds kept what the first has left: too much for the proof, which takes the
solver minutes a cycle there. The block's random test has these."""


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Entries are kept in two rows, so that each is soon needed by another one."""
    monkeypatch.setattr(key_operations, "KEPT", 2)


class Operations(wiring.Component):
    """Operations of both clients, on any entries, with any pauses; the command block asks for nothing.

    What is claimed is claimed of operations on the entry that is followed; all of it, or ``only`` the claim of a name.
    Assumed: streams that come keep what they offer; one beat follows each read.
    """

    def __init__(self, only=None):
        self.only = only
        self.dut = KeyOperations(DATA_WIDTH, 1)
        members = self.dut.signature.members
        self.names = [name for name in members if name != "command"]
        super().__init__({name: members[name] for name in self.names} | FREE)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        connect_ports(m, self, dut, self.names)
        entry = follow(m, self, dut)

        # -- What it reads.
        reading, read_it = Signal(), Signal()
        log_size = Signal.like(self.mpt_log_size)
        m.d.sync += log_size.eq(self.mpt_log_size)
        assume(m, ~entry.started | (log_size == self.mpt_log_size))
        assume(m, ~self.fill.valid | (reading & self.fill.payload.last))
        assume(m, ~(self.fill.valid & read_it) | (self.fill.payload.data[VALID_BIT] == entry.now))
        with m.If(dut.read.valid & dut.read.ready):
            m.d.sync += [reading.eq(1), read_it.eq(dut.read.payload.address[5:] == self.which)]
        with m.Elif(self.fill.valid):
            m.d.sync += reading.eq(0)

        # -- What has come of the oldest operation, which alone writes, and what is known of the one behind it.
        begins = (dut.send.valid & dut.send.ready) | (dut.receive.valid & dut.receive.ready)
        ends = (dut.sent.valid & dut.sent.ready) | (dut.received.valid & dut.received.ready)
        asked = data.StructLayout({"invalidates": 1, "tracked": 1, "was_read": 1})
        coming, behind, oldest = Signal(asked), Signal(asked), Signal(asked)
        one, two = Signal(), Signal()  # there is an oldest operation, and one behind it
        invalidates, tracked, was_read = oldest.invalidates, oldest.tracked, oldest.was_read
        was_valid = Signal()  # as it became the oldest
        to_oldest = Signal()
        dropped, others, touched, failed = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            coming.invalidates.eq(dut.receive.ready | (dut.send.payload.operation == KeyOperation.INVALIDATE)),
            coming.tracked.eq(
                Mux(dut.receive.ready, dut.receive.payload.key[8:], dut.send.payload.key[8:]) == self.which
            ),
            to_oldest.eq(Mux(one & ~ends, 0, two | begins)),
        ]
        m.d.sync += [one.eq((one & ~ends) | two | begins), two.eq(one & Mux(ends, two & begins, two | begins))]
        assume(m, ~dut.receive.valid | (dut.receive.payload.operation == KeyOperation.INVALIDATE))
        with m.If(begins):
            m.d.sync += behind.eq(coming)
        with m.Elif(self.fill.valid):
            m.d.sync += behind.was_read.eq(1)
        with m.If(to_oldest):
            m.d.sync += [
                oldest.eq(Mux(two, behind.as_value() | Cat(Const(0, 2), self.fill.valid), coming)),
                was_valid.eq(entry.now),
                *(flag.eq(0) for flag in (dropped, others, touched, failed)),
            ]
        with m.Elif(self.fill.valid & ~two):
            m.d.sync += was_read.eq(1)
        with m.If(entry.sent):
            m.d.sync += [others.eq(others | ~entry.of_first), touched.eq(1)]
        with m.If(entry.drops):
            m.d.sync += dropped.eq(1)
        with m.If(dut.done.valid & ~entry.good):
            m.d.sync += failed.eq(1)

        # -- What must be.
        status = dut.sent.payload.status
        ok = ends & tracked & (status == AccessStatus.OK)
        refused = (status != AccessStatus.OK) & (status != AccessStatus.BUS)
        taken_back = ends & tracked & (status == AccessStatus.BUS) & touched & ~entry.bad
        others_sent = entry.sent & ~entry.of_first & tracked

        def say(name, value):
            if self.only in (None, name):
                claim(m, name, value)

        say("dead", ~(ok & invalidates) | (was_valid & dropped & ~entry.valid & ~entry.alive))
        say("dropped_first", ~others_sent | ~was_valid | dropped)
        say("whole", ~others_sent | ~entry.may_be_read)
        say("as_found", ~(entry.sent & entry.of_first & ~entry.becomes & tracked) | was_valid | failed)
        say("valid_last", ~(entry.sent & entry.becomes) | (others & ~invalidates))
        say("taken_back", ~taken_back | (~entry.valid & ~entry.alive))
        say("as_before", ~(refused & ends) | ~touched)
        say("two", ~(begins & two & ~ends) & ~(ends & ~one))
        reach(m, "invalidated", ok & invalidates & was_read)
        reach(m, "invalidated_as_kept", ok & invalidates & ~was_read)
        reach(m, "registered", ok & ~invalidates & entry.valid & entry.had & ~was_valid)
        reach(m, "bound_to_nothing", ok & ~invalidates & was_valid)
        reach(m, "taken_back", taken_back)
        reach(m, "refused", ends & tracked & refused & was_read)
        reach(m, "others_meanwhile", ok & two)
        return m


def test_it_holds(tmp_path):
    verdict = prove(Operations(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Operations(), tmp_path, REACHED).holds


class Hasty(EntryWriter):
    """Does not say when it is busy."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = EntryWriter(self.data_width)
        connect_ports(m, self, inner, [name for name in self.signature.members if name != "busy"])
        return m


def test_an_operation_that_does_not_wait_for_the_one_before_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(key_operations, "EntryWriter", Hasty)
    assert prove(Operations("dropped_first"), tmp_path, DEPTH).names == ["dropped_first"]
