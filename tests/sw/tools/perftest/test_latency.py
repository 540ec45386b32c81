"""What a latency test makes of its times."""

import pytest
from verbena.sw.tools.perftest.latency import Latency


def test_figures():
    # 4, 1, 3, 2, 100, 50 us for there and back
    times = [0, 4000, 5000, 8000, 10000, 110000, 160000]
    latency = Latency.of(8, times, ways=2)
    assert (latency.size, latency.iterations) == (8, 7)
    # The two largest count for nothing, but for the largest value told.
    assert (latency.least, latency.most) == (0.5, 25)
    assert latency.average == pytest.approx((0.5 + 1 + 1.5 + 2) / 4)
    assert latency.deviation == pytest.approx(0.559, abs=0.001)
    assert latency.typical == pytest.approx(1.25)
    assert latency.percentile_99 == latency.percentile_99_9 == 25


def test_the_fewest_iterations():
    latency = Latency.of(8, [0, 1000, 2000, 3000, 4000], ways=1)
    assert (latency.least, latency.most, latency.typical, latency.average, latency.deviation) == (1, 1, 1, 1, 0)


def test_percentiles():
    times = [0]
    for value in range(1, 1003):
        times.append(times[-1] + value * 1000)
    latency = Latency.of(8, times, ways=1)
    assert (latency.percentile_99, latency.percentile_99_9, latency.most) == (991, 1000, 1001)


def test_whole_cycles():
    """Of 6.4 ns: in the times, which are whole ns, 300, 301 and 303 cycles do not look whole."""
    cycles = [1000, 1300, 1601, 1904, 2204, 2507]
    times = [round(cycle * 6.4) for cycle in cycles]
    latency = Latency.of(8, times, ways=1, clock_hz=156.25e6)
    assert latency.samples == (300, 301, 303, 300, 303)
    assert (latency.size, latency.iterations, latency.least, latency.most, latency.typical) == (8, 6, 300, 303, 300)
    both = Latency.of(8, times, ways=2, clock_hz=156.25e6)
    assert both.samples == (150, 150.5, 151.5, 150, 151.5)
    assert both.typical == 150


def test_the_middle_of_an_even_number_is_whole():
    """As perftest's: (300 + 303) / 2 is 301 cycles."""
    times = [round(cycle * 6.4) for cycle in (0, 300, 603, 1003, 1403)]
    assert Latency.of(8, times, ways=1, clock_hz=156.25e6).typical == 301


def test_all_samples_of_a_duration_count():
    latency = Latency.of(8, [0, 4000, 5000, 8000, 10000], ways=2)
    assert latency.mean == 1.25
    assert latency.rate == 400_000  # four in 10 µs
