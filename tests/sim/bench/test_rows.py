"""Rows, measured on the compiled engine: the same ones come out each time, and measure what they say."""

import pytest
from verbena.sim.bench.batch import data_width
from verbena.sim.bench.crowd import crowd
from verbena.sim.bench.events import events
from verbena.sim.bench.keys import key_life
from verbena.sim.bench.loss import one_loss
from verbena.sim.bench.misses import PAGES, hits_beside, random_pages, small_pages
from verbena.sim.bench.rows import pace, scattered, throughput, wide_wqe, words_apart
from verbena.sim.devices import world
from verbena.sim.pair import End

pytestmark = pytest.mark.verilator


@pytest.fixture(autouse=True, scope="module")
def fresh_world():
    """Nothing is under way that tests of other files have left, and nothing of theirs is in a cache."""
    world().close()


@pytest.fixture(autouse=True)
def usual_memory():
    yield
    for adapter in world().adapters:
        adapter.set_memory(read_latency=128, write_latency=32)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [(throughput, ("WRITE", 8, 1)), (wide_wqe, (8, 1)), (words_apart, ("FETCH_ADD", 16))],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_row_is_the_same_when_it_is_run_twice(function, arguments):
    """But for where a batch of it stands among the turns of the timers."""
    one, other = function(*arguments), function(*arguments)
    shares = [row.pop("wire_fraction", None) for row in (one, other)]
    assert one == other
    assert shares[0] == pytest.approx(shares[1], rel=0.001)


@pytest.mark.parametrize("what", ["fast region", "window"])
def test_the_life_of_a_key(what):
    row = key_life(what)
    steps = [row[f"{step}_cycles"] for step in ("valid", "use", "invalid")]
    assert sum(steps) == row["cycles_per_message"]
    # In the usual memory: each writes a word of its entry; that of a fast region is read before it is made valid.
    assert min(steps) > 32
    assert what == "window" or steps[0] > 128 + 32
    assert max(steps) < 1200


@pytest.mark.parametrize("what", ["fast region", "window"])
def test_keys_of_many_queue_pairs(what):
    """What several change at once goes side by side, but for the writes of their entries."""
    row = key_life(what, 8)
    assert row["qps"] == 8
    assert row["cycles_per_message"] < key_life(what)["cycles_per_message"] * 2 / 3
    assert ("use_cycles" in row) == (what == "window")


def test_events_of_a_burst():
    """Moderated ones come for 16 completions, but for those behind the last 16; others far more often."""
    plain, moderated = events(0, 0), events(16, 100)
    assert moderated["events_per_completion"] <= 1 / 16
    assert plain["events_per_completion"] > 2 * moderated["events_per_completion"]
    assert plain["messages"] == moderated["messages"] == 256


def test_a_row_holds_what_it_says():
    row = throughput("SEND", 1024, 1, 1024)
    assert (row["op"], row["size"], row["mtu"], row["qps"], row["direction"]) == ("SEND", 1024, 1024, 1, "one way")
    assert row["wire_cycles"] == (58 + 1024 + 24) * 8 / data_width()
    assert row["wire_fraction"] == pytest.approx(row["wire_cycles"] / row["cycles_per_message"], abs=1e-3)
    assert row["cycles_per_message"] >= row["wire_cycles"] * 0.99
    assert (row["retries"], row["timeouts"], row["drop_overflow"]) == (0, 0, 0)


def test_a_crowd():
    """Each row says beside how many that wait for nobody; one of these has asked again before it is measured."""
    rows = crowd(8, 40, silent=4, sizes=(8,), timeout=10)
    kinds = [(row["qps"], row["size"], row["direction"], row["silent"]) for row in rows]
    assert kinds == [(8, 8, "one way", 0), (8, 8, "both ways", 0), (8, 8, "one way", 4)]
    alone, both, beside = rows
    assert both["wire_cycles"] > alone["wire_cycles"]
    assert both["cycles_per_message"] > 0.9 * both["wire_cycles"]
    for row in rows:
        assert row["ratio_to_one_slot"] == pytest.approx(row["cycles_per_message"] / row["one_slot_cycles"], rel=0.01)
    assert beside["ratio_to_answering"] == pytest.approx(
        beside["cycles_per_message"] / alone["cycles_per_message"], rel=0.01
    )
    assert alone["timeouts"] == 0


@pytest.mark.slow
def test_slower_memory_shows():
    before, _ = pace("WRITE", 8, 1)
    for adapter in world().adapters:
        adapter.set_memory(read_latency=1024, write_latency=1024)
    after, _ = pace("WRITE", 8, 1)
    assert after > 1.5 * before


@pytest.mark.slow
def test_misses_are_misses():
    """Nearly all of the random pages are not in the cache, and nothing is lost."""
    with End("sim1", 4096) as b:
        region = small_pages(b.pd)
        assert region._region.entry["log_page_size"] == 12
        assert region.length == PAGES * 4096
        before = b.context.query_counters()
    row = random_pages(4)
    with End("sim1", 4096) as b:
        after = b.context.query_counters()
    assert after["mtt_misses"] - before["mtt_misses"] > row["messages"]
    # Between two batches, of which one is half as long: what the caches hold before is worth a percent or two.
    assert row["cycles_per_message"] >= 0.98 * row["wire_cycles"]
    # Another table of translations, at another place, shares other sets with what hits.
    assert random_pages(4)["cycles_per_message"] == pytest.approx(row["cycles_per_message"], rel=0.05)


@pytest.mark.slow
def test_a_hit_is_measured_beside_others():
    row = hits_beside()
    assert row["alone_cycles"] <= row["beside_hits_cycles"]
    assert row["slowdown"] == pytest.approx(row["cycles_per_message"] / row["beside_hits_cycles"], abs=2e-3)


@pytest.mark.slow
def test_entries_count():
    row = scattered(64, 1)
    assert row["entries"] == 2
    assert row["ratio_to_one_entry"] == pytest.approx(row["cycles_per_message"] / row["one_entry_cycles"], abs=2e-3)


def test_a_loss_costs_what_an_ideal_one_does_or_more():
    before = world().adapters[0].fault_counters["lose"]
    row = one_loss()
    assert world().adapters[0].fault_counters["lose"] - before == 4  # three that are measured, one of the round trip
    assert row["cost_cycles"] > row["wire_cycles"]
    assert row["ideal_cost_cycles"] == round(2 * row["wire_cycles"] + row["round_trip"])
