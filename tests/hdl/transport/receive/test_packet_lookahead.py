"""PacketLookahead: each QP is named before its packet's turn, and never one that is not there."""

from itertools import pairwise

import pytest
from streams import make_rng, simulate
from verbena.hdl.transport.receive.packet_lookahead import PacketLookahead

QPS, PACKETS, AHEAD = 64, 8, 3


def play(pace, cycles=3000):
    """Packets arrive, and are taken with this probability a cycle. Of each that was taken its QP, and whether that was
    named since the packet before it of another QP; and what was named that was for nobody.
    """
    rng = make_rng()
    dut = PacketLookahead(QPS, PACKETS, AHEAD)
    taken_ones, strange = [], []

    async def testbench(ctx):
        waiting, gone = [], []  # [QP, named]
        for _ in range(cycles):
            arrives = len(waiting) < PACKETS and rng.random() < 0.08
            taken = bool(waiting) and rng.random() < pace
            ready = rng.random() < 0.6
            index = rng.randrange(QPS)
            ctx.set(dut.arrives, arrives)
            ctx.set(dut.index, index)
            ctx.set(dut.taken, taken)
            ctx.set(dut.o.ready, ready)
            _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            if valid and ready:
                for entry in waiting[:AHEAD]:
                    entry[1] |= entry[0] == payload
                if payload not in [qp for qp, _ in waiting[:AHEAD] + gone[-8:]]:
                    strange.append(payload)
            if taken:
                gone.append(waiting.pop(0))
                taken_ones.append(gone[-1])
            if arrives:
                waiting.append([index, False])

    simulate(dut, testbench, seed=rng.seed_value)
    return taken_ones, strange


def test_packets_that_wait_are_named():
    """Their turn comes seldom: all are named long before, but for one of the QP before it."""
    taken, strange = play(0.02)
    assert len(taken) > 30
    assert not strange
    for (before, _), (qp, named) in pairwise(taken):
        assert named or qp == before


@pytest.mark.parametrize("pace", [0.1, 1])
def test_packets_that_do_not_wait(pace):
    """They are passed over, and those behind them are named all the same."""
    taken, strange = play(pace)
    assert len(taken) > 100
    assert not strange


def test_sizes():
    for packets, ahead in ((3, 1), (1, 1), (8, 0), (8, 9)):
        with pytest.raises(ValueError, match="must be"):
            PacketLookahead(QPS, packets, ahead)
