"""What a test tells of the time that it takes."""

from types import SimpleNamespace

import pytest
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.perftest.progress import FIRST, LAST, Progress, begin, span

SIMULATED = "simulated; timers: 16 cycles for 4.096 µs"


class Context:
    """A device of 100 MHz, whose time the test sets."""

    def __init__(self, clock_text=SIMULATED):
        self.now = 0
        self._adapter = SimpleNamespace(port=SimpleNamespace(clock_text=clock_text, clock_hz=100e6))

    def time_ns(self):
        return self.now


class Bench:
    """A test's progress, and what it has told; the computer's clock stands at ``clock``."""

    def __init__(self, name, **given):
        self.kind, self.context = KINDS[name], Context()
        self.options = Options(**given).resolved(self.kind)
        self.clock, self.told = 1000.0, []
        self.progress = Progress(self.kind, self.options, self.context, tell=self.told.append, clock=lambda: self.clock)


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        (
            "write_bw",
            {},
            "41 million cycles are simulated, which takes about 7 min; -n or -s make it less, on both sides",
        ),
        ("write_bw", {"all_sizes": True}, "10487 million cycles are simulated, which takes about 29.1 h; -n or -s"),
        ("write_bw", {"qps": 4, "size": 8, "iterations": 500_000}, "30 million cycles are simulated"),
        ("send_lat", {"size": 8, "iterations": 100_000}, "60 million cycles are simulated"),
        ("read_lat", {"size": 80_000, "iterations": 1000}, "11 million cycles are simulated"),
        ("read_bw", {"duration": 10.0}, "1000 million cycles are simulated, which takes about 2.8 h; -D makes it less"),
    ],
)
def test_a_test_that_takes_minutes_is_announced(name, given, text):
    bench = Bench(name, **given)
    bench.progress.announce()
    (told,) = bench.told
    assert told.startswith(f"verbena: {text}")


@pytest.mark.parametrize(("name", "given"), [("write_bw", {"iterations": 500}), ("write_lat", {}), ("send_lat", {})])
def test_a_short_test_is_not(name, given):
    bench = Bench(name, **given)
    bench.progress.announce()
    assert bench.told == []


def test_progress_is_told_less_and_less_often():
    bench = Bench("write_bw", iterations=1000)
    count = bench.progress.round(bench.options)
    for _ in range(999):
        bench.clock += 1
        count(1)
    assert (FIRST, LAST) == (5, 60)
    assert [line.split()[1] for line in bench.told[:6]] == ["0%", "2%", "4%", "8%", "14%", "20%"]
    assert len(bench.told) == 4 + (999 - 75) // 60
    assert bench.told[3] == "verbena: 8% is done, about 15 min left"


def test_all_sizes_are_one_test():
    """Nearly all of it is in the largest ones."""
    bench = Bench("write_bw", all_sizes=True, iterations=10)
    for options in bench.options.rounds():
        count = bench.progress.round(options)
        for _ in range(5):
            count(2)
        bench.clock += 100
        count(0)
    assert bench.told[-1].startswith("verbena: 50% is done")


def test_both_directions_count_half_each():
    bench = Bench("send_bw", bidirectional=True, iterations=100)
    count = bench.progress.round(bench.options, parts=2)
    for _ in range(100):
        count(1)
    bench.clock += 10
    count(0)
    assert bench.told == ["verbena: 50% is done, about 10 s left"]


def test_a_side_that_neither_sends_nor_receives_has_nothing_to_tell():
    bench = Bench("write_bw")
    bench.progress.round(bench.options, parts=0)
    assert bench.told == []


def test_a_duration_passes_by_itself():
    bench = Bench("write_bw", duration=4.0)
    count = bench.progress.round(bench.options)
    bench.context.now, bench.clock = 1_000_000_000, bench.clock + 600
    count(1)
    assert bench.told == ["verbena: 25% is done, about 30 min left"]


def test_nobody_waits_for_a_device_of_true_time():
    kind = KINDS["write_bw"]
    assert Progress.of(kind, Options().resolved(kind), Context(None)) is None
    assert isinstance(Progress.of(kind, Options().resolved(kind), Context()), Progress)
    begin(None, Options())(1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")]
)
def test_spans(seconds, text):
    assert span(seconds) == text
