"""Responses of large READs: they hold up nobody else, and when one is lost the others do not stand in the way."""

import pytest
from ends import READ, SEND, End, completions, connect, fill, recv, send, settle, sge, world
from verbena.sim.ports import Faults
from verbena.sim.wire_limit import go_back_n, wire_cycles

LARGE = 65536
SLOTS = 15
DEPTH = 16
ROUND_TRIP = 751
"""Of a READ that is asked for again, as ``sim.bench.loss.round_trip("READ")`` measures it."""


def reads(a, b, number, count, size=LARGE):
    """Posts READs of so many bytes."""
    for n in range(number, number + count):
        send(a, READ, [sge(a, size * (n % SLOTS), size)], wr_id=n, remote=(b, size * (n % SLOTS)))


def cycles_of(a, b, count, size=LARGE):
    """Cycles of READs, all of which succeed, 16 of them outstanding."""
    start, posted, done = world().cycles, 0, 0
    while done < count:
        more = min(count - posted, DEPTH - posted + done)
        reads(a, b, posted, more, size)
        posted += more
        for wc in completions(a.cq, 1):
            assert (wc.wr_id, wc.status) == (done, 0)
            done += 1
    return world().cycles - start


@pytest.fixture
def pair():
    with End("sim0", LARGE * SLOTS, depth=DEPTH) as a, End("sim1", LARGE * SLOTS, depth=DEPTH) as b:
        yield a, b
        world().set_faults(Faults())


@pytest.mark.exact
@pytest.mark.parametrize(("mtu", "most"), [(4096, 2000), (1024, 1000), (256, 1000)])
def test_a_small_message_under_the_peers_large_reads(pair, mtu, most):
    """The adapter that sends it answers READs meanwhile, as fast as the wire takes it."""
    a, b = pair
    with End("sim0", 64, depth=32) as c, End("sim1", 64, depth=32) as d:
        connect(a, b, mtu=mtu)
        connect(c, d, mtu=mtu)
        for _ in range(9):
            recv(d, [sge(d, 0, 8)])
        send(c, SEND, [sge(c, 0, 8)])  # with cold caches
        completions(d.cq, 1)
        completions(c.cq, 1)
        reads(b, a, 0, DEPTH)
        before = 0
        while not before:
            settle(1000)
            before = b.cq.poll(DEPTH)[0]
        for number in range(8):
            start = world().cycles
            send(c, SEND, [sge(c, 0, 8)])
            completions(d.cq, 1)
            assert world().cycles - start <= most, number
            completions(c.cq, 1)
            settle(1009)
        assert before + b.cq.poll(DEPTH)[0] < DEPTH, "nothing was answered meanwhile"


@pytest.mark.every_width
def test_new_pages_do_not_slow_down_who_receives(pair):
    """Each page of 16 packets is translated while those of the page before it are on their way."""
    a, b = pair
    connect(a, b, mtu=256)

    def cycles_to(slots):
        for n in slots:
            send(b, READ, [sge(b, LARGE * n, LARGE)], wr_id=n, remote=(a, 0))
        completions(b.cq, 1)
        start = world().cycles
        completions(b.cq, len(slots) - 1)
        return world().cycles - start

    cycles_to(range(2))  # the pages of the sender, and both keys
    new, known = cycles_to(range(2, 10)), cycles_to(range(2, 10))
    assert new <= 1.02 * known, f"{new / known:.3f}"


@pytest.mark.exact
@pytest.mark.every_width
@pytest.mark.parametrize("mtu", [4096, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_lost_response_costs_little(pair, mtu):
    """16 READs are outstanding, so the responder has a megabyte to send when the first is asked for again."""
    a, b = pair
    connect(a, b, mtu=mtu, timeout=8)
    source = fill(b, 1)
    world().set_faults(Faults(lose=1e-9))  # such a wire forwards whole frames
    cycles = [cycles_of(a, b, DEPTH) for _ in range(2)]
    port = world().adapters[1]
    for nth in (3, 5 + LARGE // mtu):
        port.fault_at(port.counters["sent_frames"] + nth, "lose")
        before = a.context.query_counters()
        cycles.append(cycles_of(a, b, DEPTH))
        after = a.context.query_counters()
        assert [after[name] - before[name] for name in ("retries", "timeouts")] == [1, 0]
    assert max(cycles[2:]) - cycles[1] <= 3000
    assert a.mr.read(len(source), 0) == source


@pytest.mark.exact
@pytest.mark.every_width
@pytest.mark.parametrize("size", [8192, *(pytest.param(size, marks=pytest.mark.slow) for size in (4096, 32768))])
def test_a_lost_response_of_a_shorter_read_costs_one_retry(pair, size):
    """Responses that cannot be recalled any more are on their way when 16 READs are asked for again: so many at once
    are never unanswered, and the last ones wait."""
    a, b = pair
    connect(a, b, mtu=4096, timeout=10)
    source = fill(b, 3)
    world().set_faults(Faults(lose=1e-9))
    cycles_of(a, b, DEPTH, size)  # with cold caches
    port = world().adapters[1]
    for nth in (3, 4, 9):
        port.fault_at(port.counters["sent_frames"] + nth, "lose")
        before = a.context.query_counters()
        cycles_of(a, b, 2 * DEPTH, size)
        after = a.context.query_counters()
        assert [after[name] - before[name] for name in ("retries", "timeouts")] == [1, 0]
    assert a.mr.read(size * SLOTS, 0) == source[: size * SLOTS]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("loss", "count"),
    [(0.01, 24), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.01, 48), (0.05, 160)))],
)
def test_reads_over_a_bad_wire(pair, loss, count):
    """Within 10 % of what an ideal go-back-N reaches, with the round trip of a READ that is asked for again."""
    a, b = pair
    connect(a, b, mtu=4096, timeout=8)
    source = fill(b, 2)
    world().seed(1)
    world().set_faults(Faults(lose=1e-9))
    cycles_of(a, b, DEPTH)  # with cold caches
    world().set_faults(Faults(lose=loss))
    cycles = cycles_of(a, b, count) / count
    packet = wire_cycles(READ, 4096, 4096, 64)
    reached = wire_cycles(READ, LARGE, 4096, 64) / cycles
    assert reached >= 0.9 * go_back_n(loss, packet, ROUND_TRIP)
    assert a.mr.read(len(source), 0) == source
