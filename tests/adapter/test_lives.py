"""The lives of drivers: one is killed at any moment, the next finds an adapter as new; two at once there are not."""

import errno
import gc
import os

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    WRITE,
    End,
    atomic,
    completion,
    completions,
    connect,
    data_width,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
    word,
    world,
)
from streams import make_rng
from verbena.hdl.abi import registers as reg
from verbena.hdl.control.device_reset import PATIENCE
from verbena.sw import host_memory
from verbena.sw.adapter import Adapter, AdapterError
from verbena.sw.port import open_port
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_event_type, ibv_qp_attr_mask, ibv_qp_state, ibv_wc_status
from verbena.sw.verbs.mr import MR, MW, MWBind, MWBindInfo
from verbena.sw.verbs.qp_attr import QPAttr

S = ibv_wc_status
SIZE = 1 << 16
QPS = 3
BIND = "bind"
REMOTE = 2 | 4 | 8
ACCESS = 1 | REMOTE | 16
RECEIVE = 1
"""wr_id of all receives; that of sends is 0."""
SWEEP = 64 * 128
"""Cycles that 64 QPs and CQs take at most to be destroyed."""

KILLS = int(os.environ.get("VERBENA_KILLS") or 30)

ORDINARY = {"read_latency": 128, "write_latency": 32, "outstanding": 64, "shuffle": False} | dict.fromkeys(
    ("silent_reads", "silent_writes"), False
)
ONE_WAY = {"timeout": 3, "retry_cnt": 1, "rnr_retry": 1, "min_rnr_timer": 1}


def kill(end):
    """What a SIGKILL does to the process of ``end``: nobody says a word to the adapter any more, and the system lets go
    of the lock. The objects stay, so that their memory does.
    """
    adapter = end.context._adapter
    adapter.port._driver = None
    adapter.forget()


def old_memory(end):
    """Addresses and lengths of all that the adapter of ``end`` was given."""
    adapter = end.context._adapter
    found = [(end.mr.buf, end.mr.length), (adapter.regions.address, 4096)]
    found += [(ring.address, 1 << 12) for ring in adapter.event_rings]
    arena = host_memory._get()
    return found + [
        (arena.base + at, size) for at, size in arena.sizes.items() if at >= host_memory.SCATTERED and size <= 1 << 16
    ]


def work(here, there, rng, count):
    """Posts a random mix of everything on all QPs of ``here``, and binds a window of each."""
    if not hasattr(here, "windows"):
        here.windows = {qp: MW(here.pd, 1) for qp in here.qps}
    for qp in here.qps:
        for _ in range(count):
            kind = rng.choice([WRITE, READ, SEND, CMP_SWP, FETCH_ADD, BIND])
            if kind == BIND:
                at = rng.randrange(SIZE)
                info = MWBindInfo(here.mr, here.mr.buf + at, rng.choice([0, SIZE - at]), REMOTE)
                qp.bind_mw(here.windows[qp], MWBind(info, 2))
                continue
            if kind in (CMP_SWP, FETCH_ADD):
                operands = (rng.getrandbits(64), rng.getrandbits(64)) if kind == CMP_SWP else (rng.getrandbits(64),)
                place = (there, 8 * rng.randrange(SIZE // 8))
                atomic(here, kind, [sge(here, 8 * rng.randrange(SIZE // 8), 8)], place, *operands, qp=qp)
                continue
            length = rng.choice([8, 100, 1024, 5000])
            at, to = rng.randrange(SIZE - length), rng.randrange(SIZE - length)
            send(here, kind, [sge(here, at, length)], remote=None if kind == SEND else (there, to), qp=qp)


def write(here, there):
    """Posts one WRITE on each QP of ``here``, as all that was posted before may have come to its end."""
    for qp in here.qps:
        send(here, WRITE, [sge(here, 0, 1024)], remote=(there, 1024), qp=qp)


def begin(rng, a=None, **attributes):
    """Both ends, with traffic of all kinds both ways; ``a`` may be there."""
    a, b = a or End("sim0", SIZE, qps=QPS, depth=32, access=ACCESS), End("sim1", SIZE, qps=QPS, depth=32, access=ACCESS)
    connect(a, b, mtu=1024, psn=rng.getrandbits(24), **ONE_WAY | attributes)
    for end in (a, b):
        for qp in end.qps:
            for _ in range(32):
                recv(end, [sge(end, rng.randrange(SIZE - 5000), 5000)], wr_id=RECEIVE, qp=qp)
    for here, there in ((a, b), (b, a)):
        work(here, there, rng, 30)
    return a, b


def drain(cq, qps, cycles=60_000):
    """The first error of each send queue, once all have one; a flushed receive may come before it. All completions are
    printed."""
    errors = {}
    limit = world().cycles + cycles
    while len(errors) < qps:
        assert world().cycles < limit, f"only {errors}"
        for wc in cq.poll(64)[1]:
            print(wc.qp_num, wc.wr_id, wc.opcode, wc.status, wc.vendor_err)
            if wc.status != S.IBV_WC_SUCCESS and wc.wr_id != RECEIVE:
                errors.setdefault(wc.qp_num, wc.status)
        settle(200)
    return errors


def reset_cycles(adapter):
    before = world().cycles
    adapter.control.reset()
    return world().cycles - before


@pytest.fixture(autouse=True)
def as_it_was():
    """Whatever a test leaves behind, the next one finds both adapters brought up, and memory that answers."""
    yield
    for adapter in world().adapters:
        adapter.set_memory(**ORDINARY)
        adapter.answer_silent()
    settle(2000)
    for name in ("sim0", "sim1"):
        port = open_port(name)
        if port._driver is not None:
            port._driver.forget()
            port._driver = None
    gc.collect()


def life(rng, a):
    """What is left of the life of driver ``a``, that of its successor, and what the old peer has of it."""
    world().adapters[0].set_memory(**ORDINARY)
    _, b = begin(rng, a)
    world().adapters[0].set_memory(
        read_latency=rng.choice([20, 128, 700]), write_latency=rng.choice([5, 32, 500]), shuffle=True
    )
    settle(rng.randrange(1, 5000))
    old_key, ranges = a.mr.rkey, old_memory(a)
    kill(a)

    new = End("sim0", SIZE, qps=QPS, depth=32, access=ACCESS)  # begins with DEVICE_RESET
    fresh = fill(new, rng.getrandbits(32))
    theirs = {(at, size) for at, size in old_memory(new)}
    for at, size in ranges:
        if (at, size) not in theirs or (at, size) == (a.mr.buf, a.mr.length):
            host_memory.write(at, b"\xa5" * size)
    mine = [(at, size) for at, size in ranges if (at, size) not in theirs or at == a.mr.buf]
    # The old peer finds nobody, and gives up: each of its QPs has something to say.
    write(b, a)
    errors = drain(b.cq, QPS)
    assert set(errors.values()) <= {S.IBV_WC_RETRY_EXC_ERR, S.IBV_WC_RNR_RETRY_EXC_ERR}, errors
    assert S.IBV_WC_RETRY_EXC_ERR in errors.values()
    quiet(new.cq, 100)
    assert new.mr.read(SIZE, 0) == fresh
    for at, size in mine:
        assert host_memory.read(at, size) == b"\xa5" * size, f"{size} bytes at {at:#x}"
    return b, new, old_key


@pytest.mark.parametrize("part", ["short", *range(-(-KILLS // 5))])
def test_a_driver_is_killed(part):
    """5 times in each part but the first; there, and at other widths than 64 bits, 2 times."""
    rng = make_rng()
    # The far adapter is brought up once; it is the near one whose drivers die.
    far = Context(name="sim1")
    a = End("sim0", SIZE, qps=QPS, depth=32, access=ACCESS)
    for number in range(5 if data_width() == 64 and part != "short" else 2):
        b, new, old_key = life(rng, a)
        if number == 0:
            # All QPs of the adapter work as new, and no old key does.
            dummy = MR(new.pd, 4096, 7)
            dummy.close()
            with End("sim1", SIZE, qps=QPS, depth=32) as peer:
                connect(new, peer, psn=rng.getrandbits(24), timeout=12)
                content = fill(peer, 1)
                send(peer, WRITE, [sge(peer, 0, 5000)], remote=(new, 16))
                send(new, READ, [sge(new, 20_000, 3000)], remote=(peer, 100))
                assert completion(peer.cq).status == completion(new.cq).status == S.IBV_WC_SUCCESS
                assert new.mr.read(5000, 16) == content[:5000]
                assert new.mr.read(3000, 20_000) == content[100:3100]
                if old_key != new.mr.rkey:
                    send(peer, WRITE, [sge(peer, 0, 8)], remote=(new, 0), rkey=old_key)
                    assert completion(peer.cq).status == S.IBV_WC_REM_ACCESS_ERR
                for qp in new.qps:
                    qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        b.close()
        a = new
        del b, new
        gc.collect()
    kill(a)
    far.close()


@pytest.mark.every_width
def test_a_reset_is_bounded(record_property):
    """With a bus that answers, and with one that never does again."""
    rng = make_rng()
    a, b = begin(rng)
    settle(2000)
    took = reset_cycles(a.context._adapter)
    assert took < 1024 + SWEEP
    port = world().adapters[0]
    kill(a)
    b.close()

    a, b = begin(rng)
    settle(1500)
    port.set_memory(silent_reads=True, silent_writes=True)
    write(a, b)
    settle(1000)
    silent = reset_cycles(a.context._adapter)
    assert PATIENCE < silent < 2 * PATIENCE + 32 + 1024 + SWEEP
    record_property("cycles", (took, silent))
    kill(a)
    b.close()


def test_without_enable_nothing_moves():
    """Neither a frame nor a burst begins, and what comes is not taken; with it, everything goes on to its end."""
    rng = make_rng()
    a, b = begin(rng, timeout=10, retry_cnt=7, rnr_retry=7)
    adapter, port = a.context._adapter, world().adapters[0]
    total = 30 * QPS
    left = [total, total]
    for _ in range(4):
        settle(rng.randrange(100, 1500))
        adapter.control.write("control", 2)
        settle(2500)  # what was begun comes to its end
        before = port.counters["sent_frames"], port.bus_counters, a.context.query_counters("rx_packets")["rx_packets"]
        settle(5000)
        assert (
            port.counters["sent_frames"],
            port.bus_counters,
            a.context.query_counters("rx_packets")["rx_packets"],
        ) == before
        adapter.control.write("control", 3)
    for number, end in enumerate((a, b)):
        sends = [wc for wc in completions(end.cq, left[number]) if not wc.opcode & 128]
        while len(sends) < total:
            sends += [wc for wc in completions(end.cq, 1) if not wc.opcode & 128]
        assert {wc.status for wc in sends} == {S.IBV_WC_SUCCESS}
    a.close()
    b.close()


def wedge(a, b, what):
    """Traffic of which the adapter's memory leaves one kind of burst without an answer, soon noticed."""
    adapter = a.context._adapter
    adapter.control.write("control", 2)
    adapter.control.write("bus_timeout", 8)
    adapter.control.write("control", 3)
    settle(1500)
    assert not adapter.control.read("status") & reg.FATAL
    world().adapters[0].set_memory(**{f"silent_{kind}": True for kind in what})
    for here, there in ((a, b), (b, a)):
        write(here, there)
    settle(1000)


@pytest.mark.every_width
@pytest.mark.parametrize("what", [("reads",), ("writes",), ("reads", "writes")], ids="+".join)
def test_memory_that_never_answers(what):
    """The host is told, by an event if memory still takes one; DEVICE_RESET brings the adapter back; and answers that
    come in the new life mean nothing.
    """
    rng = make_rng()
    port = world().adapters[0]
    a, b = begin(rng, timeout=20, retry_cnt=7, rnr_retry=7)
    wedge(a, b, what)
    port.set_memory(silent_writes=False)
    limit = world().cycles + 20 * 1024
    while not a.context._adapter.control.read("status") & reg.FATAL:
        settle(256)
        assert world().cycles < limit
    if what == ("reads",):
        assert a.context.get_async_event().event_type == ibv_event_type.IBV_EVENT_DEVICE_FATAL
        a.context._adapter.process_events()
        assert not a.context._events, "once"
    kill(a)
    port.set_memory(silent_reads=False)

    late = rng.randrange(3)  # before, amid or behind the new life's own
    with End("sim0", SIZE, depth=32) as new, End("sim1", SIZE, depth=32) as peer:
        assert not new.context._adapter.control.read("status") & reg.FATAL
        connect(new, peer, psn=5)
        content, theirs = fill(new, 1), fill(peer, 2)
        for number in range(3):
            if number == late:
                port.answer_silent()
            place = 20_000 * number
            send(new, WRITE, [sge(new, place, 4000)], remote=(peer, place))
            send(new, READ, [sge(new, place + 8000, 4000)], remote=(peer, place + 8000))
            send(peer, WRITE, [sge(peer, place + 12_000, 4000)], remote=(new, place + 12_000))
            atomic(new, FETCH_ADD, [sge(new, place + 18_000, 8)], (peer, place + 18_000), 1)
        found = completions(new.cq, 9) + completions(peer.cq, 3)
        assert {wc.status for wc in found} == {S.IBV_WC_SUCCESS}
        for place in (0, 20_000, 40_000):
            assert peer.mr.read(4000, place) == content[place : place + 4000]
            assert new.mr.read(4000, place + 8000) == theirs[place + 8000 : place + 12_000]
            assert new.mr.read(4000, place + 12_000) == theirs[place + 12_000 : place + 16_000]
            assert new.mr.read(8, place + 18_000) == theirs[place + 18_000 : place + 18_008]
            assert word(peer, place + 18_000) == int.from_bytes(theirs[place + 18_000 : place + 18_008], "little") + 1
    b.close()


def test_a_slow_memory_is_none_that_never_answers():
    """Each answer takes most of the bound, under constant traffic."""
    rng = make_rng()
    a, b = begin(rng, timeout=20, retry_cnt=7, rnr_retry=7)
    adapter = a.context._adapter
    for name, value in (("control", 2), ("bus_timeout", 4), ("control", 3)):
        adapter.control.write(name, value)
    world().adapters[0].set_memory(read_latency=3500, write_latency=3500, outstanding=1024)
    settle(60_000)
    assert not adapter.control.read("status") & reg.FATAL
    kill(a)
    b.close()


def test_two_drivers():
    """The second is refused and changes nothing, also while the first works."""
    with End("sim0", SIZE, depth=32) as a, End("sim1", SIZE, depth=32) as b:
        connect(a, b, psn=7)
        content = fill(a, 3)
        send(a, WRITE, [sge(a, 0, 30_000)], remote=(b, 0))
        settle(300)
        with pytest.raises(AdapterError) as caught:
            Adapter(open_port("sim0"))
        assert caught.value.errno == errno.EBUSY
        assert completion(a.cq).status == S.IBV_WC_SUCCESS
        assert b.mr.read(30_000, 0) == content[:30_000]
