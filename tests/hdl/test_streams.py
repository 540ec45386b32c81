"""The helpers themselves: what a test relies on when it fails."""

from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from at_once import AtOnce
from streams import Deadlock, Item, changes, collect, make_rng, receive_all, send_all, simulate
from verbena.hdl.stream.fifo import Queue

PAIR = data.StructLayout({"a": 4, "b": data.ArrayLayout(4, 2)})


class Join(wiring.Component):
    """Takes an item of both inputs at once: waits for ever if one stays away."""

    def __init__(self):
        side = wiring.Signature({"o": Out(stream.Signature(8))})
        super().__init__({"i": In(stream.Signature(8)).array(2), "side": In(side), "end": Out(side)})

    def elaborate(self, platform):
        m = Module()
        both = self.i[0].valid & self.i[1].valid
        m.d.comb += [port.ready.eq(both) for port in self.i]
        m.d.comb += [self.end.o.valid.eq(1), self.side.o.ready.eq(1)]
        return m


def test_deadlock_says_who_waits():
    dut = Join()

    async def producer(ctx):
        await send_all(ctx, dut.i[1], [7])

    with pytest.raises(Deadlock) as caught:
        simulate(dut, producer, seed=42, deadline=100)
    text = str(caught.value)
    assert "after 100 cycles (seed 42)" in text
    assert "still running: producer" in text
    assert "valid but not ready: i[1] = 7; end.o = 0; ready but not valid: side.o" in text


def test_payloads_of_all_kinds():
    dut = Queue(PAIR, 8)
    items = [{"a": 1, "b": [2, 3]}, {"b": [4, 5]}, PAIR.const({"a": 6}), 0x321]
    expected = [{"a": 1, "b": [2, 3]}, {"a": 0, "b": [4, 5]}, {"a": 6, "b": [0, 0]}, {"a": 1, "b": [2, 3]}]

    async def testbench(ctx):
        await send_all(ctx, dut.i, items)
        got = await receive_all(ctx, dut.o, 4)
        assert got == expected
        assert isinstance(got[0], Item)
        assert got[0].b == [2, 3]
        # What was received can be sent.
        await send_all(ctx, dut.i, got)
        assert await receive_all(ctx, dut.o, 4) == expected

    simulate(dut, testbench)


@pytest.mark.parametrize("stall", [0, 0.5])
def test_background_collects(stall):
    rng = make_rng()
    dut = Queue(8, 4)
    got = []

    async def producer(ctx):
        await send_all(ctx, dut.i, range(50), rng, stall)
        while len(got) < 50:
            await ctx.tick()

    async def consumer(ctx):
        await collect(ctx, dut.o, got, rng, stall)

    simulate(dut, producer, background=[consumer], seed=rng.seed_value)
    assert got == list(range(50))


def test_seed(monkeypatch, capsys):
    monkeypatch.setenv("VERBENA_SEED", "17")
    assert make_rng().random() == make_rng(17).random()
    assert "seed 17" in capsys.readouterr().out


def test_what_has_its_value_is_left_alone():
    """A port is set the first time, whatever it is, and then when its value is another one."""
    dut, calls = Queue(PAIR, 8), []

    class Context:
        def set(self, port, value):
            calls.append((port is dut.i.payload, value))

    put = changes(Context())
    for valid, a in ((0, 1), (0, 1), (1, 1), (1, 2), (0, 2), (1, 1)):
        put(dut.i.valid, valid)
        put(dut.i.payload, {"a": a})
    assert [value for payload, value in calls if not payload] == [0, 1, 0, 1]
    assert [value["a"] for payload, value in calls if payload] == [1, 2, 1]


@pytest.mark.parametrize("stall", [0, 0.5])
def test_ready_falls_in_pauses_alone(stall):
    dut, rng = Queue(8, 8), make_rng(1)
    lows, got = [], []

    async def consumer(ctx):
        got.extend(await receive_all(ctx, dut.o, 20, rng, stall))

    async def producer(ctx):
        await send_all(ctx, dut.i, range(20), rng, stall)

    async def watch(ctx):
        async for *_, ready in ctx.tick().sample(dut.o.ready):
            lows.append(not ready)

    simulate(dut, producer, consumer, background=[watch], seed=rng.seed_value)
    assert got == list(range(20))
    assert any(lows) == (stall > 0)


def test_inputs_that_are_set_at_once():
    """Only what has changed, in one go, and as ``ctx.set`` would."""
    dut = Queue(data.StructLayout({"a": 4, "b": signed(4)}), 2)
    steps = []

    async def testbench(ctx):
        put = AtOnce(SimpleNamespace(set=lambda port, value: (steps.append(value), ctx.set(port, value))))
        for payload, valid in (({"a": 3, "b": -2}, 1), ({"a": 3, "b": -2}, 1), ({"a": 3, "b": 1}, 0)):
            put(dut.i.payload, payload)
            put(dut.i.valid, valid)
            put.set()
            shown = ctx.get(dut.i.payload)
            assert (shown.a, shown.b, ctx.get(dut.i.valid)) == (3, -2 if valid else 1, valid)
        put(dut.o.ready, 1)  # one more
        put.set()
        assert ctx.get(dut.o.ready)
        assert not ctx.get(dut.i.valid)

    simulate(dut, testbench)
    assert len(steps) == 3
