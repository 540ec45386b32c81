"""Gates open and close between frames, and end a frame that is cut off."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.stream.frame_gate import ReceiveGate, TransmitGate


def frames(rng, count):
    """Beats of ``count`` frames, each with the number of its frame in the data."""
    beats = []
    for number in range(count):
        length = rng.randrange(1, 6)
        for place in range(length):
            last = place == length - 1
            beats.append({"data": number << 8 | place, "count": 8, "first": place == 0, "last": last, "error": 0})
    return beats


def wholes(beats):
    """The frames that ``beats`` make up: (number, data of the beats, error); the rules of the stream are checked."""
    found, frame = [], None
    for beat in beats:
        assert beat.first == (frame is None)
        frame = [] if beat.first else frame
        frame.append(beat)
        if beat.last:
            found.append((frame[0].data >> 8, frame, beat.error))
            frame = None
    assert frame is None
    return found


def offered(beat):
    """What of a beat must stay until it is taken."""
    return beat.data & (1 << 8 * beat.count) - 1, beat.count, beat.first, beat.last, beat.error


@pytest.mark.parametrize("cut", [False, True])
def test_transmit(cut):
    """With ``stop`` alone all frames pass, whole and in order; with ``cut`` one that has begun ends damaged, and
    meanwhile the source may change its mind.
    """
    rng = make_rng()
    dut = TransmitGate(64)
    beats = frames(rng, 150)
    taken, begun_in_stop = [], []
    state = {"at": 0, "done": False}

    async def source(ctx):
        while state["at"] < len(beats):
            beat = beats[state["at"]]
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, 1)
            ready = False
            while not ready and not state.get("reset"):
                _, _, ready = await ctx.tick().sample(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            if state.get("reset"):
                # The source is reset: what is offered changes, and the frame is forgotten.
                ctx.set(dut.i.payload.as_value(), rng.getrandbits(64))
                while state["at"] < len(beats) and not beats[state["at"]]["first"]:
                    state["at"] += 1
                while state.get("reset"):
                    await ctx.tick()
                continue
            state["at"] += 1
            while rng.random() < 0.3 and not state.get("reset"):
                await ctx.tick()
        state["done"] = True

    async def control(ctx):
        while not state["done"]:
            for _ in range(rng.randrange(1, 40)):
                await ctx.tick()
            ctx.set(dut.stop, 1)
            for _ in range(rng.randrange(0, 3)):
                await ctx.tick()
            if cut:
                ctx.set(dut.cut, 1)
                await ctx.tick()
                while not ctx.get(dut.closed):
                    await ctx.tick()
                state["reset"] = True
                for _ in range(rng.randrange(2, 6)):
                    await ctx.tick()
                    assert ctx.get(dut.closed)
                state["reset"] = False
                ctx.set(dut.cut, 0)
            for _ in range(rng.randrange(3)):
                await ctx.tick()
            ctx.set(dut.stop, 0)
        for _ in range(20):
            await ctx.tick()

    async def sink(ctx):
        held, stopped = None, 0
        edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.payload, dut.stop))
        while True:
            ready = rng.random() < 0.6
            ctx.set(dut.o.ready, ready)
            _, _, valid, beat, stop = await anext(edges)
            if held is not None:
                assert valid
                assert offered(beat) == held
            if valid and ready:
                taken.append(beat)
            if valid and beat.first and held is None and stopped and stop:
                begun_in_stop.append(beat.data)
            held = offered(beat) if valid and not ready else None
            stopped = stop

    simulate(dut, source, control, background=[sink], seed=rng.seed_value)
    found = wholes(taken)
    good = [number for number, _, error in found if not error]
    assert begun_in_stop == []
    assert good == sorted(set(good))
    for number, frame, error in found:
        whole = [beat["data"] for beat in beats if beat["data"] >> 8 == number]
        if not error:
            assert [beat.data for beat in frame] == whole
        else:
            assert [beat.data for beat in frame[:-1]] == whole[: len(frame) - 1]
    assert any(error for *_, error in found) == cut
    if not cut:
        assert good == list(range(150))


def test_receive():
    """A frame passes whole if it begins without ``stop``; ``cut`` takes away the rest."""
    rng = make_rng()
    dut = ReceiveGate(64)
    beats = frames(rng, 300)
    got, expected = [], []

    async def bench(ctx):
        passes = False
        cutting = 0
        for beat in beats:
            while rng.random() < 0.2:
                ctx.set(dut.i.valid, 0)
                await ctx.tick()
            if cutting:
                cutting -= 1
            elif rng.random() < 0.05:
                cutting = rng.randrange(1, 6)
            stop = bool(cutting) or rng.random() < 0.3
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.stop, stop)
            ctx.set(dut.cut, bool(cutting))
            if beat["first"]:
                passes = not stop
            if passes:
                expected.append(beat["data"])
            _, _, valid, ready, payload = await ctx.tick().sample(dut.o.valid, dut.i.ready, dut.o.payload)
            assert ready
            if valid:
                got.append(payload.data)
            if cutting:
                passes = False

    simulate(dut, bench, seed=rng.seed_value)
    assert got == expected
    assert 0 < len(got) < len(beats)
