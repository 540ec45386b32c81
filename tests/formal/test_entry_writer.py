"""Changes of entries: what was valid is dropped before anything else is written, and nothing is valid by halves."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from followed_entry import FREE, connect_ports, follow
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.memory import entry_writer
from verbena.hdl.memory.entry_writer import EntryWriter

DATA_WIDTH = 512
"""An entry's words are one beat."""
DEPTH = 18
"""One change, of which a write may fail, or the beginning of a second one: a cycle more takes the solver half as long
again."""
REACHED = 24


class Changes(wiring.Component):
    """Any outcomes, with any pauses, that know whether the entry that is followed is valid."""

    def __init__(self):
        self.dut = EntryWriter(DATA_WIDTH)
        self.names = list(self.dut.signature.members)
        super().__init__({name: self.dut.signature.members[name] for name in self.names} | FREE)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        connect_ports(m, self, dut, self.names)
        entry = follow(m, self, dut)
        coming = dut.i.payload
        begins = dut.i.valid & dut.i.ready
        ends = (dut.sent.valid & dut.sent.ready) | (dut.received.valid & dut.received.ready)
        its = coming.index == self.which
        assume(m, ~(begins & its) | (coming.was_valid == entry.now))

        tracked, refused, was_valid, becomes = Signal(), Signal(), Signal(), Signal()
        dropped, others, touched, failed = Signal(), Signal(), Signal(), Signal()
        with m.If(begins):
            m.d.sync += [
                tracked.eq(its),
                refused.eq(coming.status != AccessStatus.OK),
                was_valid.eq(coming.was_valid),
                becomes.eq(coming.entry.valid),
                *(flag.eq(0) for flag in (dropped, others, touched, failed)),
            ]
        with m.If(entry.sent):
            m.d.sync += [others.eq(others | ~entry.of_first), touched.eq(1)]
        with m.If(entry.drops):
            m.d.sync += dropped.eq(1)
        with m.If(dut.done.valid & ~entry.good):
            m.d.sync += failed.eq(1)

        over = ends & tracked
        ok = over & (dut.sent.payload.status == AccessStatus.OK) & ~refused
        taken_back = over & ~refused & failed & ~entry.bad
        first = entry.sent & entry.of_first & ~entry.becomes
        claim(m, "dead", ~(ok & ~becomes) | (~entry.valid & ~entry.alive & (dropped | ~was_valid)))
        claim(m, "stands", ~(ok & becomes) | (entry.valid & (dropped | ~was_valid)))
        claim(m, "refused", ~(ends & refused) | (~touched & (dut.sent.payload.status != AccessStatus.OK)))
        claim(m, "dropped_first", ~(entry.sent & ~entry.of_first & tracked) | ~was_valid | dropped)
        claim(m, "whole", ~(entry.sent & ~entry.of_first & tracked) | ~entry.may_be_read)
        claim(m, "valid_last", ~(entry.sent & entry.becomes) | (others & becomes))
        claim(m, "cleared_first", ~(first & tracked) | was_valid | failed)
        claim(m, "taken_back", ~taken_back | (~entry.valid & ~entry.alive))
        claim(m, "told", ~(ends & ~refused & failed) | (dut.sent.payload.status == AccessStatus.BUS))
        claim(m, "held", ~entry.sent | dut.hold)
        reach(m, "made_valid", ok & becomes & ~was_valid & entry.had)
        reach(m, "made_invalid", ok & ~becomes & was_valid)
        reach(m, "replaced", ok & becomes & was_valid & entry.had)
        reach(m, "nothing", ok & ~becomes & ~was_valid)
        reach(m, "taken_back", taken_back & becomes)
        return m


def test_it_holds(tmp_path):
    verdict = prove(Changes(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Changes(), tmp_path, REACHED).holds


def test_an_entry_that_is_written_before_it_is_dropped_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(entry_writer, "NOT_VALID", entry_writer.OTHERS)
    assert "dropped_first" in prove(Changes(), tmp_path, DEPTH).names
