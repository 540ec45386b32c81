"""Waves, their views, and the speed of the model."""

import pytest
from stand_in import R, stand_in
from verbena.sim.speed import measure
from verbena.sim.waves import save_views, signals
from verbena.sim.world import World

pytestmark = pytest.mark.verilator


def test_waves_of_each_adapter_and_their_views(tmp_path):
    with World(2, stand_in(), trace=True) as world:
        world.waves(tmp_path / "run")
        world.adapters[1].write32(R.SOURCE, 0x12345678)
        world.waves(None)
        cycles = world.cycles
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0.vcd", "run.1.vcd"]
    vcd = tmp_path / "run.1.vcd"
    text = vcd.read_text()
    assert f"{0x12345678:b}" in text
    last = int(text[text.rindex("#") :].split()[0][1:])
    assert last == pytest.approx(cycles * 6400, abs=6400)

    gtkwave, surfer = save_views(vcd)
    known = {name for name, _ in signals(vcd)}
    assert any(name.endswith(".axi__araddr") for name in known)
    for name in ("axil__wdata", "axi__araddr", "tx__payload", "rx__valid", "interrupt", "clk"):
        assert f".{name}" in gtkwave.read_text()
        assert f".{name}\n" in surfer.read_text()
    added = [line.split()[1] for line in surfer.read_text().splitlines() if line.startswith("variable_add")]
    assert set(added) <= known
    assert str(vcd) in gtkwave.read_text()


@pytest.mark.parametrize("adapters", [1, 2])
def test_speed_is_measured(adapters, capsys):
    speed = measure(stand_in(), adapters=adapters, seconds=0.3, frames=True)
    with capsys.disabled():
        print(f"\n{speed:,.0f} cycles/s of the stand-in with {adapters} adapters, and frames arriving")
    assert speed > 0
