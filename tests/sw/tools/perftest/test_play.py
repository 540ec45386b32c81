"""Whole tests: both sides on two simulated adapters, byte by byte in memory, and exchange by exchange on TCP."""

import random
import socket
from collections import defaultdict
from types import SimpleNamespace

import pytest
from conversations import CONVERSATIONS
from verbena.sw.tools import session
from verbena.sw.tools.endpoint import open_device
from verbena.sw.tools.exchange.channel import Channel
from verbena.sw.tools.exchange.perftest import DONE, KEY_SIZE, Key
from verbena.sw.tools.perftest.kinds import KINDS, Verb
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.perftest.play import play
from verbena.sw.tools.session import ToolError, run

SEEDS = (11, 22)  # of server and client
WIRE = 10e9 / 8 / (1 << 20)  # MiB/s


class Recorder(Channel):
    """A channel that notes down what is said through it."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.said = []

    def send(self, data):
        self.said.append(data)
        yield from super().send(data)


class Memory:
    """What a side's region holds at the end, cut as the layout has it."""

    def __init__(self, side):
        self.layout = side.layout
        self.header = side.end.header
        self.content = side.end.mr.read(side.layout.size, 0)

    def source(self, index, turn, size):
        at = self.layout.source(index) + turn
        return self.content[at : at + size]

    def target(self, index, turn, size):
        at = self.layout.target(index) + turn + self.header
        return self.content[at : at + size]


class Result:
    """What came of a test: outcomes, lines, words and memories of the server (0) and the client (1)."""

    def __init__(self, name, options, contexts):
        self.kind = KINDS[name]
        self.options = options.resolved(self.kind)
        self.lines = ([], [])
        self.memories = [None, None]
        self.channels = [
            Recorder(sock, context.advance, 60) for sock, context in zip(socket.socketpair(), contexts, strict=True)
        ]
        self.sessions = [
            play(
                contexts[i],
                self.kind,
                options,
                self.channels[i],
                server=i == 0,
                tell=self.lines[i].append,
                rng=random.Random(SEEDS[i]),
                inspect=lambda side, i=i: self.memories.__setitem__(i, Memory(side)),
            )
            for i in (0, 1)
        ]

    def run(self):
        self.outcomes = run(*self.sessions)
        return self

    def turns(self):
        """Of each queue pair and place in its buffer, how many messages went there."""
        counts = defaultdict(int)
        for index in range(self.options.qps):
            for number in range(self.options.iterations):
                turn = 0 if self.kind.latency else self.memories[0].layout.turn(number)
                counts[index, turn] += 1
        return counts


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b


@pytest.fixture
def start(contexts):
    return lambda name, **given: Result(name, Options(**given), contexts)


SHAPES = [
    {"iterations": 30, "size": 3000},
    {"iterations": 70, "size": 8, "qps": 3, "tx_depth": 16, "cq_mod": 5},
    {"iterations": 40, "size": 100, "bidirectional": True, "mtu": 256, "inline": 64},
    {"iterations": 20, "size": 5000, "qps": 2, "bidirectional": True, "rx_depth": 3},
]


def from_to(result):
    """Which side's memory the content comes from, and which it goes to, in one or both directions."""
    return [(1, 0), (0, 1)] if result.options.bidirectional or result.kind.symmetric else [(1, 0)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["write_bw", "send_bw", "read_bw"])
def test_every_byte_arrives(start, name, shape):
    result = start(name, **shape).run()
    size = result.options.size
    for here, there in from_to(result):
        mine, theirs = result.memories[here], result.memories[there]
        for index, turn in result.turns():
            assert mine.source(index, turn, size) == theirs.target(index, turn, size), (here, index, turn)
    assert len({memory.content for memory in result.memories}) == 2
    check_reports(result)


@pytest.mark.parametrize(
    "shape",
    [
        {"iterations": 30, "mtu": 1024},
        {"iterations": 40, "size": 100, "qps": 3, "bidirectional": True, "inline": 80},
    ],
)
def test_datagrams_arrive(start, shape):
    result = start("send_bw", connection="UD", **shape).run()
    assert {outcome.size for outcome in result.outcomes} == {shape.get("size", shape.get("mtu"))}
    size = result.outcomes[0].size
    for here, there in from_to(result):
        mine, theirs = result.memories[here], result.memories[there]
        for index, turn in result.turns():
            assert mine.source(index, turn, size) == theirs.target(index, turn, size), (here, index, turn)
    for side in result.lines:
        assert " Connection type : UD\t\tUsing SRQ      : OFF" in side


def test_all_sizes_of_datagrams_end_with_the_mtu(start):
    result = start("send_bw", connection="UD", iterations=5, mtu=256, all_sizes=True).run()
    for outcomes in result.outcomes:
        assert [outcome.size for outcome in outcomes] == [2, 4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("both", [False, True])
def test_messages_to_a_shared_queue_arrive(start, both):
    size = 200
    result = start(
        "send_bw", size=size, qps=3, iterations=5, use_srq=True, rx_depth=4, tx_depth=2, bidirectional=both
    ).run()
    for here, there in from_to(result):
        mine, theirs = result.memories[here], result.memories[there]
        turns = result.turns()
        # Which queue pair's message comes first, and so where it goes, is open.
        assert sorted(mine.source(i, turn, size) for i, turn in turns) == sorted(
            theirs.target(i, turn, size) for i, turn in turns
        )
    assert " Connection type : RC\t\tUsing SRQ      : ON" in result.lines[0]
    check_reports(result)


@pytest.mark.parametrize("given", [{"connection": "UD", "size": 1000}, {"use_srq": True, "size": 3000}])
def test_latency_of_other_queues(start, given):
    result = start("send_lat", iterations=9, rx_depth=3, **given).run()
    size = given["size"]
    for here, there in from_to(result):
        assert result.memories[here].source(0, 0, size) == result.memories[there].target(0, 0, size)
    check_latencies(result)


def check_reports(result):
    options = result.options
    both = options.bidirectional
    for report in result.outcomes:
        assert (report.size, report.iterations) == (options.size, options.iterations * options.qps)
        # A receiver sees its first completion when it polls, a little late.
        assert 0 < report.average < WIRE * (2 if both else 1.1)
        assert report.message_rate == pytest.approx(report.average * (1 << 20) / options.size / 1e6)
    if both or result.kind.verb is not Verb.SEND:  # then the server tells what the client has measured
        assert result.outcomes[0].average == pytest.approx(result.outcomes[1].average)


def test_long_messages_fill_the_wire(start):
    for name in ("write_bw", "read_bw", "send_bw"):
        result = start(name, iterations=5, size=32768, mtu=4096).run()
        assert result.outcomes[1].average > 0.8 * WIRE
        assert result.outcomes[1].peak >= result.outcomes[1].average * 0.999


@pytest.mark.parametrize("shape", [{"iterations": 70}, {"iterations": 70, "qps": 2, "bidirectional": True}])
def test_atomics_count(start, shape):
    result = start("atomic_bw", **shape).run()
    for here, there in from_to(result):
        before = initial(SEEDS[there], result)
        for (index, turn), count in result.turns().items():
            at = result.memories[there].layout.target(index) + turn
            first = int.from_bytes(before[at : at + 8], "little")
            found = int.from_bytes(result.memories[there].target(index, turn, 8), "little")
            assert found == (first + count) % (1 << 64)
            last = int.from_bytes(result.memories[here].source(index, turn, 8), "little")
            assert last == (first + count - 1) % (1 << 64)
    check_reports(result)


def initial(seed, result):
    """What a side's region holds at the beginning."""
    rng = random.Random(seed)
    for _ in range(result.options.qps):
        rng.randrange(1 << 24)  # its PSN
    return rng.randbytes(result.memories[0].layout.size)


def test_compare_and_swap(start):
    result = start("atomic_lat", iterations=5, compare_and_swap=True).run()
    before = initial(SEEDS[0], result)
    target = result.memories[0].layout.target(0)
    assert result.memories[0].content == before  # nothing there is 0
    assert result.memories[1].source(0, 0, 8) == before[target : target + 8]


@pytest.mark.parametrize("size", [1, 96, 97, 5000])
def test_write_latency(start, size):
    result = start("write_lat", iterations=9, size=size).run()
    for here, there in from_to(result):
        content = bytes(size - 1) + bytes([9])
        assert result.memories[here].source(0, 0, size) == content
        assert result.memories[there].target(0, 0, size) == content
    check_latencies(result)


def test_the_byte_that_counts_goes_around(start):
    result = start("write_lat", iterations=260, size=2).run()
    assert result.memories[0].target(0, 0, 2) == bytes([0, 260 % 256])


@pytest.mark.parametrize("name", ["send_lat", "read_lat"])
@pytest.mark.parametrize("size", [2, 5000])
def test_latency(start, name, size):
    result = start(name, iterations=9, size=size, rx_depth=3).run()
    for here, there in from_to(result):
        assert result.memories[here].source(0, 0, size) == result.memories[there].target(0, 0, size)
    check_latencies(result)


def test_atomic_latency(start):
    result = start("atomic_lat", iterations=9).run()
    found = int.from_bytes(result.memories[0].target(0, 0, 8), "little")
    assert found == int.from_bytes(result.memories[1].source(0, 0, 8), "little") + 1
    check_latencies(result)


def check_latencies(result):
    for latency in result.outcomes:
        if latency is None:
            assert result.kind.reading
            continue
        # A simulated world has no noise, and memory alone takes 0.8 us.
        least, average, most = (round(us, 9) for us in (latency.least, latency.average, latency.most))
        assert 0.8 < least <= average <= most < least * 1.1
        assert latency.most < 2.5 + result.options.size * 0.002 + (2.5 if result.kind.reading else 0)


@pytest.mark.parametrize("label", [label for label in CONVERSATIONS if label != "rc_pingpong"])
def test_the_sides_say_as_much_as_the_programs(start, label):
    name, *more = label.split()
    size = None if name.startswith("atomic") else 64
    result = start(name, iterations=5, size=size, qps=2 if "-q" in more else 1, bidirectional="-b" in more).run()
    recorded = CONVERSATIONS[label]
    for side, channel in ((1, result.channels[0]), (0, result.channels[1])):
        words = [exchange[side] for exchange in recorded]
        assert [len(said) for said in channel.said] == [len(said) for said in words]
        for mine, theirs in zip(channel.said, words):
            if len(theirs) == KEY_SIZE:
                mine, theirs = Key.unpack(mine), Key.unpack(theirs)
                # rxe can do more at a time, and has no key for who may do nothing.
                assert (mine.lid, mine.srqn) == (theirs.lid, theirs.srqn)
                assert (mine.out_reads == 1) == (theirs.out_reads == 1)
            elif len(theirs) in (16, 4, 2, len(DONE)):
                assert mine == theirs
        queue_pairs = [Key.unpack(said).qpn for said in channel.said if len(said) == KEY_SIZE]
        expected = [Key.unpack(said).qpn for said in words if len(said) == KEY_SIZE]
        assert _pattern(queue_pairs) == _pattern(expected)


def _pattern(numbers):
    """Numbers by the order of their first appearance."""
    seen = list(dict.fromkeys(numbers))
    return [seen.index(number) for number in numbers]


def test_the_sides_print_each_others_addresses(start):
    result = start("read_bw", iterations=5, size=64, qps=2).run()
    server, client = result.lines
    for mine, theirs in ((server, client), (client, server)):
        local = [line for line in mine if line.startswith(" local address")]
        remote = [line for line in theirs if line.startswith(" remote address")]
        assert len(local) == 2
        assert [line.split(":")[1] for line in local] == [line.split(":")[1] for line in remote]


def dying(result, which, enough):
    """The session of one side, which ends as soon as ``enough()``."""
    others = None
    try:
        while not enough():
            others = yield result.sessions[which].send(others)
    finally:
        result.sessions[which].close()


@pytest.mark.parametrize(("name", "said"), [("write_bw", 7), ("send_bw", 8), ("read_lat", 8), ("atomic_bw", 7)])
def test_when_the_server_dies_the_client_ends_with_the_completions_status(start, name, said):
    size = None if name == "atomic_bw" else 64
    result = start(name, iterations=1000, timeout=5, size=size)
    server = dying(result, 0, lambda: len(result.channels[0].said) >= said)
    with pytest.raises(ToolError, match=r"IBV_WC_RETRY_EXC_ERR \(12\), vendor error"):
        run(server, result.sessions[1])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", KINDS)
def test_who_dies_while_the_sides_get_to_know_each_other_is_missed(start, name, which):
    result = start(name, iterations=1000)
    turns = iter(range(6))
    sessions = list(result.sessions)
    sessions[which] = dying(result, which, lambda: next(turns, None) is None)
    with pytest.raises(ToolError, match=r"the peer closed the connection after \d+ of \d+ bytes of |does not take"):
        run(*sessions)


@pytest.mark.parametrize("name", ["send_lat", "write_lat"])
def test_when_the_server_dies_the_client_does_not_wait_for_ever(start, name):
    result = start(name, iterations=1000, timeout=5, size=64)
    turns = iter(range(60))

    def enough():
        return any("remote address" in line for line in result.lines[0]) and next(turns, None) is None

    with pytest.raises(ToolError, match=r"IBV_WC_RETRY_EXC_ERR|the peer closed the connection in the midst"):
        run(dying(result, 0, enough), result.sessions[1])


@pytest.mark.parametrize("name", ["write_lat", "send_bw"])
def test_who_dies_long_before_a_duration_is_over_is_missed(start, name):
    result = start(name, duration=1.0, timeout=5, size=64, bidirectional=name == "send_bw")
    turns = iter(range(60))

    def enough():
        return any("remote address" in line for line in result.lines[1]) and next(turns, None) is None

    with pytest.raises(ToolError, match=r"IBV_WC_RETRY_EXC_ERR|the peer closed the connection in the midst"):
        run(result.sessions[0], dying(result, 1, enough))


@pytest.mark.parametrize("name", ["write_bw", "read_bw", "atomic_lat", "read_lat"])
def test_when_the_client_dies_a_server_without_messages_of_its_own_ends(start, name):
    result = start(name, iterations=1000, timeout=5)
    turns = iter(range(20))

    def enough():
        return any("remote address" in line for line in result.lines[1]) and next(turns, None) is None

    with pytest.raises(ToolError, match=r"the peer closed the connection after 0 of 108 bytes of a key message"):
        run(result.sessions[0], dying(result, 1, enough))


@pytest.mark.parametrize("name", ["send_bw", "send_lat", "write_lat"])
def test_when_the_client_dies_the_server_does_not_wait_for_ever(start, name):
    result = start(name, iterations=1000, timeout=5, size=64)
    turns = iter(range(60))

    def enough():
        return any("remote address" in line for line in result.lines[1]) and next(turns, None) is None

    with pytest.raises(ToolError, match=r"IBV_WC_RETRY_EXC_ERR|the peer closed the connection in the midst"):
        run(result.sessions[0], dying(result, 1, enough))


@pytest.fixture
def simulated_patience(contexts, monkeypatch):
    """Patience counts simulated time, and a microsecond of that as a millisecond: so a busy machine changes nothing."""
    clock = SimpleNamespace(monotonic=lambda: contexts[0].time_ns() * 1e-6)
    monkeypatch.setattr(session, "time", clock)


@pytest.mark.usefixtures("simulated_patience")
@pytest.mark.parametrize(
    ("servers", "complaint"),
    [
        ({"size": 400}, "message 0 of 400 bytes should be here"),
        ({"size": 100}, "IBV_WC_LOC_LEN_ERR|IBV_WC_REM_INV_REQ_ERR"),
        ({"qps": 2}, "waited 0.5 s in vain"),
    ],
)
def test_sides_that_were_told_different_things(contexts, servers, complaint):
    near, far = socket.socketpair()
    given = {"iterations": 5, "size": 200, "patience": 0.5}
    server = play(
        contexts[0],
        KINDS["send_bw"],
        Options(**given | servers),
        Channel(near, contexts[0].advance, 0.5),
        server=True,
        tell=lambda line: None,
    )
    client = play(
        contexts[1],
        KINDS["send_bw"],
        Options(**given),
        Channel(far, contexts[1].advance, 0.5),
        server=False,
        tell=lambda line: None,
    )
    with pytest.raises(ToolError, match=complaint):
        run(server, client)


def test_an_address_that_is_no_ipv4_one(contexts):
    """A client as recorded, but with a link-local address."""
    said = [exchange[0] for exchange in CONVERSATIONS["write_bw"]]
    local = b"fe:80:00:00:00:00:00:00:50:56:ff:fe:00:00:00:f0"
    near, far = socket.socketpair()
    near.send(b"".join(said).replace(b"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:f0", local))
    channel = Channel(far, contexts[0].advance)
    with near, pytest.raises(ToolError, match=r"the peer's address fe80:.* is not an IPv4 one"):
        run(play(contexts[0], KINDS["write_bw"], Options(), channel, server=True, tell=lambda line: None))
