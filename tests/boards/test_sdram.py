"""The SDRAM controller on a strict model of the chips, pad registers between them."""

from collections import deque
from dataclasses import replace

import pytest
from memory_users import BASE, outside, three_users
from sdram_chip import SdramModel
from streams import make_rng
from verbena.boards.sdram import Sdram
from verbena.boards.sdram_pins import Command, SdramChip

CHIP = SdramChip(banks=4, rows=2048, columns=256, width=32)


def make(clock, rng, width=64, *, read_delay=4, **changes):
    """(controller, model, testbench of the model). A word that was read is at the pins for one cycle."""
    chip = replace(CHIP, **{"power_up": 3e-6, **changes})
    dut = Sdram(width, chip, BASE, clock, read_delay)
    model = SdramModel(chip, clock, rng)

    async def chips(ctx):
        pins = dut.pins
        late = deque([None] * (read_delay - chip.cas - 1))
        while True:
            *_, command, bank, address, dq, oe = await ctx.tick().sample(
                pins.command, pins.bank, pins.address, pins.dq_o, pins.dq_oe
            )
            late.append(model.edge(command, bank, address, dq if oe else None))
            word = late.popleft()
            ctx.set(pins.dq_i, rng.getrandbits(32) if word is None else word)

    return dut, model, chips


@pytest.mark.parametrize(
    ("width", "clock", "changes"),
    [
        (64, 50_000_000, {}),
        (128, 62_500_000, {}),
        (64, 125_000_000, {"cas": 3}),
        (64, 20_000_000, {}),
        (64, 62_500_000, {"read_delay": 6}),
        (64, 62_500_000, {"banks": 2}),
    ],
)
def test_three_users(width, clock, changes):
    rng = make_rng()
    dut, model, chips = make(clock, rng, width, **changes)
    three_users(dut, rng, background=[chips])
    assert model.commands[Command.MODE] == 1
    assert model.commands[Command.REFRESH] >= 8 + (model.now / clock) / (CHIP.refresh_all / CHIP.rows) - 2


def test_outside():
    rng = make_rng()
    dut, model, chips = make(62_500_000, rng)
    outside(dut, rng, CHIP.size, background=[chips])
    assert set(model.words) <= {(0, 0, column) for column in range(4)}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"chip": SdramChip(2, 2048, 256, 16)}, "chip.width must be 32, not 16"),
        ({"base": BASE + CHIP.size // 2}, f"base must be a multiple of {CHIP.size:#x}, not {BASE + CHIP.size // 2:#x}"),
        ({"read_delay": 2}, "read_delay must be more than CAS, 2, not 2"),
    ],
)
def test_what_it_cannot_be(changes, complaint):
    arguments = {"data_width": 64, "chip": CHIP, "base": BASE, "clock": 62_500_000, "read_delay": 3}
    Sdram(**arguments)
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        Sdram(**arguments | changes)
