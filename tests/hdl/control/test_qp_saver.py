"""QpSaver: whether a QP may leave its slot, what is done in which order, and how that ends."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.control.qp_saver import QpSaver
from verbena.hdl.control.quiet import REST

DONE = ("collect", "write", "read", "clear", "gone")
ENDS = ("stays", "unwritten", "left", "back", "dropped")


class World:
    """Drives a saver, and lists its strobes, each with the cycle in which it came."""

    def __init__(self):
        self.rng = make_rng()
        self.dut = QpSaver()
        self.log = []

    async def tick(self, ctx):
        self.log += [(name, self.cycle) for name in DONE + ENDS if ctx.get(getattr(self.dut, name))]
        await ctx.tick()
        self.cycle += 1

    async def ends(self, ctx):
        """Runs until it has ended; returns how, and the names of what was done before."""
        for _ in range(200):
            before = len(self.log)
            await self.tick(ctx)
            found = [name for name, _ in self.log[before:] if name in ENDS]
            if found:
                (end,) = found
                return end, [name for name, _ in self.log if name in DONE]
        raise AssertionError("it does not end")

    async def begin(self, ctx, strobe="begin", **inputs):
        self.log, self.cycle = [], 0
        for name in ("serving", "full", "reports", "write_failed", "missing", "writing", "reading", "attributes_busy"):
            ctx.set(getattr(self.dut, name), inputs.pop(name, 0))
        for name in ("taken", "said", "told", "completed"):
            ctx.set(getattr(self.dut, name), inputs.pop(name, 1))
        ctx.set(self.dut.waits, 0)
        assert not inputs
        ctx.set(getattr(self.dut, strobe), 1)
        await self.tick(ctx)
        ctx.set(getattr(self.dut, strobe), 0)

    def run(self, testbench):
        simulate(self.dut, testbench, seed=self.rng.seed_value)


@pytest.mark.parametrize("inputs", [{"serving": 1}, {"taken": 0}])
def test_who_stays(inputs):
    """3 cycles after it is asked, and nothing was done."""
    world = World()

    async def testbench(ctx):
        for _ in range(3):
            await world.begin(ctx, **inputs)
            assert await world.ends(ctx) == ("stays", [])
            assert world.log == [("stays", 3)]

    world.run(testbench)


def test_a_record_that_is_written_is_waited_for_and_a_lost_one_is_told_before():
    world = World()

    async def testbench(ctx):
        for failed in (0, 1):
            await world.begin(ctx, writing=1, write_failed=failed)
            for _ in range(world.rng.randrange(3, 20)):
                await world.tick(ctx)
            assert world.log == []
            ctx.set(world.dut.writing, 0)
            ctx.set(world.dut.missing, failed)
            ctx.set(world.dut.full, 1)
            end, done = await world.ends(ctx)
            assert (end, done) == (("unwritten", []) if failed else ("left", ["collect", "write", "clear", "gone"]))
        await world.begin(ctx, missing=0, write_failed=1, full=1)  # that was told
        assert (await world.ends(ctx))[0] == "left"

    world.run(testbench)


def test_who_leaves():
    """Its record is written when all has been given and its completions rest. It has left when others know."""
    world = World()
    dut = world.dut

    async def testbench(ctx):
        for _ in range(10):
            await world.begin(ctx, said=0, told=0, completed=0)
            for _ in range(3 + world.rng.randrange(20)):
                await world.tick(ctx)
            assert world.log == [("collect", 3)]
            assert ctx.get(dut.say)
            ctx.set(dut.said, 1)
            ctx.set(dut.attributes_busy, 1)
            await world.tick(ctx)
            assert not ctx.get(dut.say)
            last = world.rng.choice(["full", "attributes_busy", "completed"])
            for name, value in (("full", 1), ("attributes_busy", 0), ("completed", 1)):
                ctx.set(getattr(dut, name), value if name != last else 1 - value)
            for _ in range(2 * REST):
                await world.tick(ctx)
            assert world.log == [("collect", 3)]
            ctx.set(getattr(dut, last), 0 if last == "attributes_busy" else 1)
            since = world.cycle
            for _ in range(REST + 3):
                await world.tick(ctx)
            when = since + (REST + 1 if last == "completed" else 1)
            assert world.log[1:] == [(name, when) for name in ("write", "clear", "gone")]
            ctx.set(dut.told, 1)
            assert (await world.ends(ctx))[0] == "left"

    world.run(testbench)


@pytest.mark.parametrize("failed", [False, True])
def test_who_comes_back(failed):
    """What was reported before it was gone; nothing else is read meanwhile; a record that is lost is dropped."""
    world = World()
    dut = world.dut

    async def testbench(ctx):
        for _ in range(5):
            await world.begin(ctx, completed=0, reading=1)
            for _ in range(10):
                await world.tick(ctx)
            ctx.set(dut.full, 1)
            ctx.set(dut.reports, 1)
            await world.tick(ctx)
            ctx.set(dut.writing, 1)
            ctx.set(dut.write_failed, failed)
            waits = ["reading", "writing"]
            world.rng.shuffle(waits)
            for name in waits:
                for _ in range(world.rng.randrange(1, 9)):
                    assert ctx.get(dut.returns)
                    await world.tick(ctx)
                ctx.set(getattr(dut, name), 0)
            end = ("dropped", ["collect", "write", "clear"]) if failed else ("back", ["collect", "write", "read"])
            assert await world.ends(ctx) == end
            assert not ctx.get(dut.returns)

    world.run(testbench)


def test_what_came_back_is_not_what_was_written():
    world = World()

    async def testbench(ctx):
        await world.begin(ctx, "drop")
        assert await world.ends(ctx) == ("dropped", ["clear"])
        assert world.cycle == 2

    world.run(testbench)
