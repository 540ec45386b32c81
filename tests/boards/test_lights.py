"""What the LEDs show."""

import pytest
from streams import make_rng, simulate
from verbena.boards.lights import LIGHTS, STEPS, Lights

CLOCK = 200
BLINK = 256
STEP = BLINK // STEPS
NAMES = list(LIGHTS)


def watch(strobes, cycles):
    """What each light does in each of ``cycles``; ``strobes`` has the names of what happens, by cycle."""
    dut = Lights(CLOCK)
    seen = {name: [] for name in NAMES}

    async def testbench(ctx):
        for cycle in range(cycles):
            for name in NAMES[1:]:
                ctx.set(getattr(dut, name), name in strobes.get(cycle, ()))
            lights = ctx.get(dut.lights)
            for number, name in enumerate(NAMES):
                seen[name].append(lights >> number & 1)
            await ctx.tick()

    simulate(dut, testbench, seed=1)
    return seen


def heartbeat(cycle):
    return cycle % BLINK >= BLINK // 2


def test_alive_blinks_and_the_others_are_dark():
    seen = watch({}, 3 * BLINK)
    assert seen["alive"] == [heartbeat(cycle) for cycle in range(3 * BLINK)]
    assert not any(sum(seen[name]) for name in NAMES[1:])


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_frame_is_seen(name):
    """Wherever in a step it comes, its light is lit for the second half of the next one."""
    for at in [*make_rng().sample(range(BLINK), 5), STEP - 1, STEP]:
        seen = watch({at: [name]}, 2 * BLINK)
        begin = (at // STEP + 1) * STEP + STEP // 2
        if at % STEP == STEP - 1:  # while the last step is told, it belongs to the next one
            begin += STEP
        lit = range(begin, begin + STEP // 2)
        for each in NAMES[1:]:
            assert seen[each] == [each == name and cycle in lit for cycle in range(2 * BLINK)]
        turned = [alive != heartbeat(cycle) for cycle, alive in enumerate(seen["alive"])]
        assert turned == [name != "damaged" and cycle in lit for cycle in range(2 * BLINK)]


def test_traffic_flickers():
    """Light and dark have the same length, however many frames there are."""
    seen = watch({cycle: ["received"] for cycle in range(2 * BLINK)}, 2 * BLINK)
    assert seen["received"][2 * STEP :] == [cycle % STEP >= STEP // 2 for cycle in range(2 * STEP, 2 * BLINK)]


@pytest.mark.parametrize("clock", [16, 0, "125000000", 62.5e6])
def test_a_clock_that_is_none(clock):
    with pytest.raises(ValueError, match=r"clock must be .* above 16"):
        Lights(clock)
