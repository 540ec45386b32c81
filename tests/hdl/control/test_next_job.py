"""NextJob: who goes first, and that nobody waits for ever."""

import pytest
from streams import make_rng, shared, simulate
from verbena.hdl.control.next_job import PACKETS, JobKind, NextJob

QPS = 16
ASKERS = ("command", "packet")
STREAMS = ("wanted", "ahead")


@pytest.mark.parametrize("often", [0.1, 0.5, 0.95])
def test_against_a_model(often):
    """Each cycle anybody may ask, and the job may be taken or not."""
    rng = make_rng()
    dut = shared(NextJob, QPS)
    seen = set()

    async def testbench(ctx):
        before = 0  # packets that went before somebody who is wanted
        for _ in range(2000):
            asks = {name: rng.random() < often / (1 if name == "packet" else 8) for name in ASKERS}
            asks |= {name: rng.random() < often for name in STREAMS}
            qp = {name: rng.randrange(QPS) for name in asks}
            ready = rng.random() < 0.7
            for name in ASKERS:
                ctx.set(getattr(dut, name), asks[name])
                ctx.set(getattr(dut, f"{name}_index"), qp[name])
            for name in STREAMS:
                ctx.set(getattr(dut, name).valid, asks[name])
                ctx.set(getattr(dut, name).payload, qp[name])
            ctx.set(dut.o.ready, ready)
            packets = [name for name in ("packet", "ahead") if asks[name]]
            wanted = ["wanted"] if asks["wanted"] else []
            order = ["command"] if asks["command"] else []
            order += wanted + packets if before == PACKETS else packets + wanted
            assert ctx.get(dut.o.valid) == bool(order)
            first = order[0] if order else None
            if first:
                assert ctx.get(dut.o.payload.kind) == JobKind[first.upper()]
                assert ctx.get(dut.o.payload.index) == qp[first]
            for name in STREAMS:
                assert not asks[name] or ctx.get(getattr(dut, name).ready) == (first == name and ready)
            if ready and first == "wanted":
                before = 0
            elif ready and first in ("packet", "ahead"):
                before += len(wanted)
            seen.add((first, before))
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)
    assert {first for first, _ in seen} >= {*ASKERS, *STREAMS}
    assert often < 0.5 or max(before for _, before in seen) == PACKETS
