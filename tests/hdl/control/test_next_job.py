"""NextJob: who goes first, and that nobody waits for ever."""

import pytest
from streams import make_rng, shared, simulate
from verbena.hdl.control.next_job import PACKETS, JobKind, NextJob

QPS = 16
ASKERS = ("command", "evict", "packet")


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
            qp = {name: rng.randrange(QPS) for name in (*ASKERS, "wanted")}
            wanted, ready = rng.random() < often, rng.random() < 0.7
            for name, value in asks.items():
                ctx.set(getattr(dut, name), value)
                if name != "evict":
                    ctx.set(getattr(dut, f"{name}_index"), qp[name])
            ctx.set(dut.wanted.valid, wanted)
            ctx.set(dut.wanted.payload, qp["wanted"])
            ctx.set(dut.o.ready, ready)
            order = [name for name in ("command", "evict") if asks[name]]
            rest = [name for name, is_there in (("packet", asks["packet"]), ("wanted", wanted)) if is_there]
            order += rest[::-1] if before == PACKETS else rest
            assert ctx.get(dut.o.valid) == bool(order)
            first = order[0] if order else None
            if first:
                assert ctx.get(dut.o.payload.kind) == JobKind[first.upper()]
                assert first == "evict" or ctx.get(dut.o.payload.index) == qp[first]
            assert ctx.get(dut.wanted.ready) == (first == "wanted" and ready)
            if ready and first == "wanted":
                before = 0
            elif ready and first == "packet":
                before += wanted
            seen.add((first, before))
            await ctx.tick()

    simulate(dut, testbench, seed=rng.seed_value)
    assert {first for first, _ in seen} >= {*ASKERS, "wanted"}
    assert often < 0.5 or max(before for _, before in seen) == PACKETS
