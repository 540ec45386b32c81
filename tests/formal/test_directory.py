"""The directory: a slot that is pinned is not given away, and what is dirty is told when it is."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.hdl._ast import Slice
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.context.directory import Directory

SLOTS = 4
QPN_BITS = 3
PINS = 4
DEPTH = 16
"""4 cycles until the directory is awake, and 6 lookups of 2: 4 fill the set, the fifth takes a slot away."""


class Holders(wiring.Component):
    """One set, and who has which slot, as it follows from what the directory says.

    Assumed: a slot is unpinned only if it is pinned, and is written only while it is pinned; ``close`` stays until
    ``closed``; ``saved`` follows a job without ``fetch``. Who looks up what when is free, and when jobs are taken.
    """

    valid: In(1)
    qpn: In(QPN_BITS)
    unpin: In(range(SLOTS))
    unpin_en: In(1)
    dirty_slot: In(range(SLOTS))
    dirty: In(1)
    job_ready: In(1)
    saved: In(1)
    close: In(1)
    close_qpn: In(QPN_BITS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.directory = dut = Directory(SLOTS, 1, qpn_bits=QPN_BITS, pins=PINS)
        waits, waits_qpn = Signal(), Signal(QPN_BITS)
        m.d.sync += [
            waits.eq(dut.lookup.valid & ~dut.lookup.ready),
            waits_qpn.eq(dut.lookup.payload),
        ]
        closes, closes_qpn = Signal(), Signal(QPN_BITS)
        m.d.sync += [closes.eq(dut.close & ~dut.closed), closes_qpn.eq(dut.close_qpn)]
        m.d.comb += [
            dut.lookup.valid.eq(self.valid | waits),
            dut.lookup.payload.eq(Mux(waits, waits_qpn, self.qpn)),
            dut.unpin.eq(self.unpin),
            dut.unpin_en.eq(self.unpin_en),
            dut.dirty_slot.eq(self.dirty_slot),
            dut.dirty.eq(self.dirty),
            dut.job.ready.eq(self.job_ready),
            dut.saved.eq(self.saved),
            dut.close.eq(self.close | closes),
            dut.close_qpn.eq(Mux(closes, closes_qpn, self.close_qpn)),
        ]
        # What closes goes on with the same QPN, also in the cycle of `closed`.
        was_closed = Signal()
        m.d.sync += was_closed.eq(dut.closed)
        assume(m, ~(was_closed & self.close) | (self.close_qpn == closes_qpn))

        found = dut.lookup.valid & dut.lookup.ready
        job = dut.job.payload
        given = dut.job.valid & dut.job.ready
        to_save = Signal(2)
        m.d.sync += to_save.eq(to_save + (given & ~job.fetch) - self.saved)
        assume(m, ~self.saved | (to_save != 0))

        has, owner, pins, written = [], [], [], []
        for slot in range(SLOTS):
            has.append(Signal(name=f"has{slot}"))
            owner.append(Signal(QPN_BITS, name=f"owner{slot}"))
            pins.append(Signal(range(PINS), name=f"pins{slot}"))
            written.append(Signal(name=f"written{slot}"))
        losing, second, wrong, unsaid, still = [], [], [], [], []
        for slot in range(SLOTS):
            mine, leaves = found & (dut.slot == slot), self.unpin_en & (self.unpin == slot)
            writes = self.dirty & (self.dirty_slot == slot)
            # A job without `fetch` for a QPN that has no slot names one all the same, and takes nothing.
            lost = given & (job.slot == slot) & (job.fetch | (has[slot] & (owner[slot] == job.qpn)))
            assume(m, ~leaves | (pins[slot] != 0))
            assume(m, ~writes | (pins[slot] != 0))
            m.d.sync += pins[slot].eq(pins[slot] + mine - leaves)
            with m.If(lost):
                m.d.sync += [has[slot].eq(0), written[slot].eq(0)]
            with m.If(mine):
                m.d.sync += [has[slot].eq(1), owner[slot].eq(dut.lookup.payload)]
            with m.If(writes):
                m.d.sync += written[slot].eq(1)
            losing.append(lost & (pins[slot] != 0))
            wrong.append(mine & Mux(dut.missed, ~lost, ~has[slot] | (owner[slot] != dut.lookup.payload)))
            second.append(found & dut.missed & has[slot] & (owner[slot] == dut.lookup.payload))
            unsaid.append(lost & has[slot] & written[slot] & ~(job.dirty & (job.old == owner[slot])))
            still.append(dut.closed & has[slot] & (owner[slot] == dut.close_qpn))

        def never(conditions):
            result = 0
            for condition in conditions:
                result |= condition
            return ~result

        claim(m, "pinned", never(losing))
        claim(m, "found", never(wrong))
        claim(m, "one_slot", never(second))
        claim(m, "dirty_is_told", never(unsaid))
        claim(m, "closed", never(still))
        others = given & job.fetch & (job.dirty != 0)
        reach(m, "dirty_slot_given_away", others)
        reach(m, "closed_with_a_slot", given & ~job.fetch & (job.dirty != 0))
        return m


def test_it_holds(tmp_path):
    verdict = prove(Holders(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Holders(), tmp_path, DEPTH).holds


def test_a_slot_that_is_given_away_though_pinned_is_found(tmp_path, monkeypatch):
    """The directory sees no pins."""
    assign = Slice.eq

    def blind(self, value, *args, **kwargs):
        return assign(self, 0 if getattr(self.value, "name", "") == "pinned" else value, *args, **kwargs)

    monkeypatch.setattr(Slice, "eq", blind)  # `pinned` has a bit a way
    assert "pinned" in prove(Holders(), tmp_path, DEPTH).names


def test_a_write_that_is_not_noted_is_found(tmp_path, monkeypatch):
    assign = Signal.eq

    def forget(self, value, *args, **kwargs):
        return assign(self, 0 if self.name == "noted" else value, *args, **kwargs)

    monkeypatch.setattr(Signal, "eq", forget)
    assert "dirty_is_told" in prove(Holders(), tmp_path, DEPTH).names
