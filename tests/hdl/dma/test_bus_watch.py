"""Who waits for too long is noticed, whatever the others do; and nobody else."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.dma import bus_watch
from verbena.hdl.dma.bus_watch import BusWatch

MOST = [4, 16, 1]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bus_watch, "UNIT", 8)


class Bus:
    """Clients that ask at random, each answered in order after at most ``latency`` cycles, but for ``lost``."""

    def __init__(self, dut, rng, latency, lost=None):
        self.dut, self.rng, self.latency, self.lost = dut, rng, latency, lost
        self.waiting = [[] for _ in MOST]
        self.now = 0
        self.lost_at = None

    async def cycle(self, ctx, lose=False):
        taken = answered = 0
        for client, queue in enumerate(self.waiting):
            if queue and queue[0] is not None and queue[0] <= self.now:
                queue.pop(0)
                answered |= 1 << client
            elif len(queue) < MOST[client] and self.rng.random() < 0.4:
                taken |= 1 << client
                never = lose and client == self.lost and self.lost_at is None
                if never:
                    self.lost_at = self.now
                queue.append(None if never else self.now + self.rng.randrange(1, self.latency))
        ctx.set(self.dut.taken, taken)
        ctx.set(self.dut.answered, answered)
        await ctx.tick()
        self.now += 1


def test_slow_but_alive():
    """Answers that come within the limit, each behind others, make nobody overdue."""
    dut = BusWatch(MOST)
    bus = Bus(dut, make_rng(), 20)

    async def bench(ctx):
        ctx.set(dut.limit, 4)
        for _ in range(4000):
            await bus.cycle(ctx)
            assert not ctx.get(dut.overdue)

    simulate(dut, bench, seed=bus.rng.seed_value)


@pytest.mark.parametrize("lost", range(len(MOST)))
@pytest.mark.parametrize("limit", [1, 4, 9])
def test_one_is_lost(lost, limit):
    """Only its own answers save a client. It takes one to two limits."""
    dut = BusWatch(MOST)
    bus = Bus(dut, make_rng(), 5, lost)

    async def bench(ctx):
        ctx.set(dut.limit, limit)
        for _ in range(200):
            await bus.cycle(ctx)
        while bus.lost_at is None:
            await bus.cycle(ctx, True)
        while not ctx.get(dut.overdue):
            await bus.cycle(ctx)
            assert bus.now - bus.lost_at < 8 * (2 * limit + 1) + 30
        assert bus.now - bus.lost_at >= 8 * limit
        for _ in range(50):
            await bus.cycle(ctx)
            assert ctx.get(dut.overdue)

    simulate(dut, bench, seed=bus.rng.seed_value)


@pytest.mark.parametrize(("limit", "stop"), [(0, 0), (2, 1)])
def test_nobody_looks(limit, stop):
    dut = BusWatch(MOST)

    async def bench(ctx):
        ctx.set(dut.limit, limit)
        ctx.set(dut.stop, stop)
        ctx.set(dut.taken, 2)
        await ctx.tick()
        ctx.set(dut.taken, 0)
        for _ in range(1000):
            await ctx.tick()
            assert not ctx.get(dut.overdue)

    simulate(dut, bench)


@pytest.mark.parametrize("most", [[], [0], [2, "3"]])
def test_wrong_arguments(most):
    with pytest.raises(ValueError, match="most must be positive ints"):
        BusWatch(most)
