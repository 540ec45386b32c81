"""Clocks of a board: what can be simulated of them, and the dividers of the PLL."""

import pytest
from verbena.boards.clocking import GIGABIT, VCO, pll_settings


@pytest.mark.parametrize("reference", [25_000_000, 30_000_000, 100_000_000])
@pytest.mark.parametrize("core", [50_000_000, 62_500_000, 100_000_000, 125_000_000])
def test_dividers(reference, core):
    """Gigabit Ethernet's clock is exact, the core's not above what is asked, and within 10 % of it."""
    settings = pll_settings(reference, core)
    assert reference * settings.feedback == GIGABIT * settings.input
    assert GIGABIT * settings.output in VCO
    assert GIGABIT * settings.output // settings.second == settings.core
    assert 0.9 * core <= settings.core <= core


def test_a_reference_of_which_no_gigabit_clock_can_be_made():
    with pytest.raises(ValueError, match="no PLL makes 125 MHz and at most 100000000 Hz of 24576000 Hz"):
        pll_settings(24_576_000, 100_000_000)
