"""One entry of the MPT, whether it is valid in host memory, and whether it may be so for the access check."""

from types import SimpleNamespace

from amaranth.hdl import Mux, Signal
from amaranth.lib import wiring
from prover import assume
from verbena.hdl.abi.tables import KEY_INDEX_BITS, AccessStatus

__all__ = ["FREE", "VALID_BIT", "connect_ports", "follow"]

VALID_BIT = 63
"""Of an entry's first word."""

FREE = {
    "which": wiring.In(KEY_INDEX_BITS),
    **dict.fromkeys(("luck", "stands", "looks", "lands", "swaps"), wiring.In(1)),
}
"""Members of a bench that the solver chooses."""


def connect_ports(m, bench, dut, names):
    """Connects these members of ``dut`` with those of ``bench``, which have the same names."""
    for name in names:
        member, port = dut.signature.members[name], getattr(bench, name)
        if not member.is_signature:
            m.d.comb += getattr(dut, name).eq(port) if member.flow == wiring.In else port.eq(getattr(dut, name))
        elif member.flow == wiring.In:
            wiring.connect(m, wiring.flipped(port), getattr(dut, name))
        else:
            wiring.connect(m, getattr(dut, name), wiring.flipped(port))


def follow(m, bench, dut):
    """Follows the entry ``which``, which ``stands`` in memory at the beginning.

    The access check reads it at any time (``looks``), but for ``hold``, has it some time later (``lands``), and may
    have seen what was there at any moment between; it takes a change at any moment while that is offered (``swaps``),
    and forgets what it reads then. Assumed: one answer follows each write, in order; nobody else writes to the entry; a
    write that fails has been done or not (``luck``). The table begins at 0.
    """
    started = Signal()
    which, base = Signal(KEY_INDEX_BITS), Signal.like(dut.mpt_base)
    m.d.sync += [started.eq(1), which.eq(bench.which), base.eq(dut.mpt_base)]
    assume(m, ~started | (which == bench.which))
    assume(m, dut.mpt_base == 0)

    # -- Writes under way: whether each is of the first word, and valid.
    valid, writes_it, of_first = Signal(), Signal(), Signal()
    firsts, sets = Signal(4), Signal(4)
    now, writing = Signal(), Signal(range(4))
    done = dut.done.valid
    assume(m, ~done | (writing != 0))
    sent = dut.data.valid & dut.data.ready & dut.data.payload.last
    becomes = of_first & dut.data.payload.data[VALID_BIT]
    good = done & (dut.done.payload.status == AccessStatus.OK)
    bad = Signal()  # the last write has failed
    m.d.comb += now.eq(Mux(started, valid, bench.stands))
    m.d.sync += [valid.eq(now), writing.eq(writing + sent - done)]
    with m.If(dut.write.valid & dut.write.ready):
        m.d.sync += [writes_it.eq(dut.write.payload.address[5:] == bench.which)]
        m.d.sync += of_first.eq(dut.write.payload.length == 8)
    for place in range(4):
        behind = place + 1 if place < 3 else place
        with m.If(sent & (writing - done == place)):
            m.d.sync += [firsts[place].eq(of_first), sets[place].eq(becomes)]
        with m.Elif(done):
            m.d.sync += [firsts[place].eq(firsts[behind]), sets[place].eq(sets[behind])]
    with m.If(done):
        m.d.sync += bad.eq(~good)
    with m.If(done & writes_it & firsts[0] & (good | bench.luck)):
        m.d.sync += valid.eq(sets[0])

    # -- The access check: it has a valid one, or a read of it is under way, which may find that.
    had, reads_it, seen = Signal(), Signal(), Signal()
    swapped, swap = Signal(), Signal()
    change = dut.invalidate
    its = change.valid & (change.payload.index == bench.which)
    drops = its & change.ready
    m.d.comb += swap.eq(its & ~swapped & (bench.swaps | change.ready))
    m.d.sync += swapped.eq(~drops & (swapped | swap))
    with m.If(swap):
        m.d.sync += [had.eq(change.payload.entry.valid), reads_it.eq(0)]
    with m.Elif(reads_it):
        m.d.sync += [seen.eq(seen | now), reads_it.eq(~bench.lands)]
        with m.If(bench.lands):
            m.d.sync += had.eq(had | seen | now)
    with m.Elif(bench.looks & ~dut.hold):
        m.d.sync += [reads_it.eq(1), seen.eq(now)]
    with m.If(~started):
        m.d.sync += had.eq(bench.stands)
    return SimpleNamespace(
        started=started,
        now=now,
        valid=valid,
        had=had,
        alive=had | (reads_it & seen),
        may_be_read=reads_it & (seen | now),
        sent=sent,
        of_first=of_first,
        becomes=becomes,
        good=good,
        bad=bad,
        drops=drops,
    )
