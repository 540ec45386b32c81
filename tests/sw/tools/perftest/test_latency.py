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
    assert latency.typical == pytest.approx(1.75)
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


def test_other_units():
    latency = Latency.of(8, [0, 4000, 5000, 8000, 10000], ways=1).scaled(100)
    assert latency.samples == (400, 100, 300, 200)
    assert (latency.size, latency.iterations, latency.least, latency.typical) == (8, 5, 100, 250)
