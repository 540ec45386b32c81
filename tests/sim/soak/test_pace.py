"""What a lossy wire allows follows from its loss."""

import random

import pytest
from verbena.sim.soak import pace
from verbena.sim.soak.pace import longest_for, passing, timeout_for

MEGABYTE = 1 << 20


@pytest.mark.parametrize("data_width", [64, 512])
def test_what_is_under_way_passes_within_a_timeout(data_width):
    for connections in (1, 8, 32):
        cycles = 16 << timeout_for(connections, data_width)
        assert cycles * data_width // 8 >= connections * pace.BACKLOG
    assert timeout_for(16, 64) == timeout_for(16, 512) + 3


def test_packets_that_pass_in_a_row():
    """Against a wire that is thrown dice for."""
    rng = random.Random(5)
    for loss in (0.01, 0.1, 0.5):
        rows = 20_000
        passed = 0
        for _ in range(rows):
            while not any(rng.random() < loss for _ in range(5)):
                passed += 1
        assert passed / rows == pytest.approx(passing(loss), rel=0.08)
    assert passing(0) == float("inf")


def test_a_timeout_costs_less_where_more_is_lost():
    """Each NAK that is lost costs one: 16 connections at 10 % had ones of 524,288 cycles, and did not end."""
    assert timeout_for(16, 64, 0.01) == timeout_for(16, 64) == timeout_for(16, 64, 0.001)
    timeouts = [timeout_for(16, 64, loss) for loss in (0.01, 0.02, 0.05, 0.1, 0.5)]
    assert timeouts == sorted(timeouts, reverse=True)
    assert 16 << timeout_for(16, 64, 0.1) <= 32_768
    assert timeout_for(1, 512, 0.5) == 9


@pytest.mark.parametrize("mtu", [256, 4096])
def test_a_message_is_as_long_as_its_rounds_allow(mtu):
    assert longest_for(0, mtu, MEGABYTE) == longest_for(0.01, mtu, MEGABYTE) == MEGABYTE
    for loss in (0.05, 0.1, 0.2):
        longest = longest_for(loss, mtu, MEGABYTE)
        rounds = longest / mtu / passing(loss)
        assert rounds <= pace.ROUNDS
        assert longest == MEGABYTE or rounds > 0.98 * pace.ROUNDS
    assert mtu <= longest_for(0.5, mtu, MEGABYTE) < 8 * mtu
    assert isinstance(longest_for(0.1, mtu, MEGABYTE), int)


def test_the_longest_message_does_not_count_as_hung():
    """A round costs a timeout if one of the three faults that destroy a NAK hits it."""
    for loss in (0.01, 0.05, 0.1, 0.2):
        timeout = 16 << timeout_for(8, 64, loss)
        assert pace.ROUNDS * ((1 - (1 - loss) ** 3) * timeout + 5000) < pace.HANG
