"""Regions that are given back, moved or barred while all that uses them is in flight."""

import pytest
from bus import record
from ends import FETCH_ADD, READ, SEND, SIGNALED, WRITE, End, connect, data_width, fill, recv, send, settle, sge, world
from streams import make_rng
from verbena.sim.pair import ALL_ACCESS
from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_access_flags, ibv_rereg_mr_flags
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.wr import SGE, SendWR

SIZE = 1 << 15
DEFAULT = {"read_latency": 128, "write_latency": 32, "outstanding": 64, "stall": 0.0, "shuffle": False}
MEMORIES = {
    "usual": {},
    "slow": {"read_latency": 2000, "write_latency": 2000},
    "jittery": {"read_latency": 1000, "write_latency": 500, "outstanding": 1, "stall": 0.2, "shuffle": True},
}
CHANGE_TRANSLATION = ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_TRANSLATION
CHANGE_ACCESS = ibv_rereg_mr_flags.IBV_REREG_MR_CHANGE_ACCESS


@pytest.fixture
def memory():
    """Sets the host memory of both adapters to one of :data:`MEMORIES`."""

    def choose(name):
        for adapter in world().adapters:
            adapter.set_memory(**DEFAULT | MEMORIES[name])

    yield choose
    choose("usual")


@pytest.fixture
def buffers():
    """Two pieces of memory for the region that is changed; they outlive it."""
    places = [host_memory.alloc(SIZE, 4096) for _ in range(2)]
    yield places
    for place in places:
        host_memory.free(place)


def write_target(a, b, mr):
    """The peer writes the region."""
    for i in range(4):
        post(a, WRITE, a.mr, 8192 * i, 8192, (mr, 8192 * i))


def read_target(a, b, mr):
    """The peer reads the region."""
    for i in range(4):
        post(a, READ, a.mr, 8192 * i, 8192, (mr, 8192 * i))


def send_target(a, b, mr):
    """The peer's SENDs go to the region."""
    for i in range(8):
        recv(b, [SGE(mr.buf + 4096 * i, 1500, mr.lkey), SGE(mr.buf + 4096 * i + 1700, 2300, mr.lkey)])
    for i in range(8):
        post(a, SEND, a.mr, 4096 * i, 3700)


def atomic_target(a, b, mr):
    """The peer adds to words of the region."""
    for i in range(24):
        wr = SendWR(i, FETCH_ADD, num_sge=1, sg=[SGE(a.mr.buf + 8 * i, 8, a.mr.lkey)], send_flags=SIGNALED)
        wr.set_wr_atomic(mr.rkey, mr.buf + 1000 * i, 1, 0)
        a.qp.post_send(wr)


def write_source(a, b, mr):
    """The region is sent."""
    for i in range(4):
        post(b, WRITE, mr, 8192 * i, 8192, (a.mr, 8192 * i))


def read_sink(a, b, mr):
    """What is read from the peer goes to the region."""
    for i in range(4):
        post(b, READ, mr, 8192 * i, 8192, (a.mr, 8192 * i))


def atomic_sink(a, b, mr):
    """The old values of words of the peer go to the region."""
    for i in range(24):
        wr = SendWR(i, FETCH_ADD, num_sge=1, sg=[SGE(mr.buf + 1000 * i, 8, mr.lkey)], send_flags=SIGNALED)
        wr.set_wr_atomic(a.mr.rkey, a.mr.buf + 8 * i, 1, 0)
        b.qp.post_send(wr)


REMOTE = [write_target, read_target, atomic_target]
TRAFFIC = [*REMOTE, send_target, write_source, read_sink, atomic_sink]


def post(end, opcode, mr, offset, length, remote=None):
    wr = SendWR(offset, opcode, num_sge=1, sg=[SGE(mr.buf + offset, length, mr.lkey)], send_flags=SIGNALED)
    if remote is not None:
        there, at = remote
        wr.set_wr_rdma(there.rkey, there.buf + at)
    end.qp.post_send(wr)


def close(mr, place):
    mr.close()


def move(mr, place):
    mr.rereg(CHANGE_TRANSLATION, addr=place, length=SIZE)


def bar(mr, place):
    mr.rereg(CHANGE_ACCESS, access=ibv_access_flags.IBV_ACCESS_LOCAL_WRITE)


def settings(name):
    return DEFAULT | MEMORIES[name]


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_nothing_touches_what_a_region_has_left(traffic, name, memory, buffers, tmp_path):
    """A region is deregistered, gets other memory, or other rights, at a random moment of its traffic: from then on
    nothing of its old memory is written, and no read or write of it begins.
    """
    rng = make_rng()
    memory(name)
    place = buffers[0]
    pages = set(host_memory.bus_pages(place, SIZE))
    latency = settings(name)["read_latency"] + settings(name)["write_latency"]
    wanted = {atomic_target: 24, atomic_sink: 24, send_target: 16}.get(traffic, 4)
    duration = 0
    for change in [None, close, move, bar if traffic in REMOTE else close]:
        with End("sim0", SIZE, sge=2) as a, End("sim1", SIZE, sge=2) as b:
            connect(a, b, mtu=4096 if name == "jittery" else rng.choice([1024, 4096]))
            mr = MR(b.pd, SIZE, ALL_ACCESS, address=place)
            begin = world().cycles
            traffic(a, b, mr)
            if change is None:  # how long it takes
                with record(tmp_path / "bus.pcapng") as transactions:
                    while wanted > 0:
                        wanted -= sum(len(end.cq.poll(100)[1]) for end in (a, b))
                duration = world().cycles - begin
                assert any(transaction.within(pages) for transaction in transactions)
                continue
            settle(rng.randrange(duration // 8, duration * 3 // 4))
            change(mr, buffers[1])
            pattern = rng.randbytes(SIZE)
            host_memory.write(place, pattern)
            with record(tmp_path / "bus.pcapng") as transactions:
                settle(6000 + 2 * latency)
            touched = [number for number, byte in enumerate(host_memory.read(place, SIZE)) if byte != pattern[number]]
            assert not touched, f"{len(touched)} bytes, from {touched[0]} on, are written afterwards"
            late = [transaction for transaction in transactions if transaction.within(pages)]
            assert not late, f"{len(late)} accesses begin afterwards"


LOSSES = ("drop_overflow", "drop_sequence", "retries")


def stream(mtu, part, rounds, change=None, *, size=1 << 18):
    """262,144 beats of WRITEs of ``size`` bytes, or one in ``part`` of them, between two adapters; meanwhile ``change``
    is called so many times, with both ends. Returns the cycles that the WRITEs take, and what the adapters counted of
    losses.
    """
    count = (1 << 18) // size * data_width() // 8 // part
    with End("sim0", size) as a, End("sim1", size) as b:
        connect(a, b, mtu=mtu)
        content = fill(a, 1)
        before = [end.context._adapter.control.counters() for end in (a, b)]
        begin = world().cycles
        for i in range(count):
            send(a, WRITE, [sge(a, 0, size)], wr_id=i, remote=(b, 0))
        done = []
        while len(done) < count:
            settle(100)
            if rounds:
                change(a, b)
                rounds -= 1
            done += a.cq.poll(count)[1]
        cycles = world().cycles - begin
        assert not rounds, "there were as many as wanted"
        assert [wc.status for wc in done] == [0] * count
        assert b.mr.read(size, 0) == content
        after = [end.context._adapter.control.counters() for end in (a, b)]
    return cycles, [{name: new[name] - old[name] for name in LOSSES} for old, new in zip(before, after)]


def drop_tables(a, b):
    """The receiver drops all translations."""
    b.context._adapter._drop_tables()


@pytest.mark.parametrize("part", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_regions_that_come_and_go_cost_the_others_nothing(buffers, part):
    """100 deregistrations at the receiver, and as many at the sender, of a stream at full speed: nothing is lost, and
    it takes less than 1 % longer. The same when the receiver drops all translations, 20 times: the misses of the pages
    that follow overlap, so that it keeps up at any width. At 64 bits a quarter of all that shows it, too.
    """
    part = part if data_width() == 64 else 1

    def at_both(a, b):
        for end in (a, b):
            MR(end.pd, 4096, ALL_ACCESS, address=buffers[0]).close()

    none = [dict.fromkeys(LOSSES, 0)] * 2
    alone, lost = stream(1024, part, 0)
    assert lost == none
    for rounds, change in ((100, at_both), (20, drop_tables)):
        cycles, lost = stream(1024, part, rounds // part, change)
        assert lost == none
        assert cycles < 1.01 * alone


@pytest.mark.exact
@pytest.mark.every_width
@pytest.mark.parametrize("part", [8, pytest.param(4, marks=pytest.mark.slow)])
def test_translations_go_while_packets_wait_for_them(part):
    """The receiver drops all translations time and again, before it has caught up with what it missed the last time:
    what waits has found its pages, and has to find them once more, again with misses that overlap. Nothing is lost, and
    a WRITE of few pages takes no longer than without: the stream takes less than 1 % longer.
    """
    alone, lost = stream(1024, part, 0, size=1 << 16)
    none = [dict.fromkeys(LOSSES, 0)] * 2
    assert lost == none
    for rounds in (5, 20):
        cycles, lost = stream(1024, part, rounds, drop_tables, size=1 << 16)
        assert lost == none
        assert cycles < 1.01 * alone
