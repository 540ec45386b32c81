"""Pushed WQEs between two adapters: what they move, what is counted, and that the ring in memory has the last word."""

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    WRITE_IMM,
    End,
    atomic,
    completion,
    completions,
    connect,
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
from verbena.hdl.abi.registers import PAGE, QP_PAGES, QP_PUSH, QpDoorbell
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags

pytestmark = pytest.mark.exact

SIZE = 1 << 14
INLINE = SIGNALED | ibv_send_flags.IBV_SEND_INLINE


@pytest.fixture(params=[(1, 32), (6, 96)], ids=["64", "128"])
def pair(request):
    """Whose WQEs have 64 or 128 bytes."""
    sges, inline = request.param
    sizes = {"depth": 8, "sge": sges, "inline": inline, "qps": 3}
    with End("sim0", SIZE, **sizes) as a, End("sim1", SIZE, **sizes) as b:
        connect(a, b, mtu=1024, timeout=7)
        yield a, b


class Counts:
    """Of an end, from now on: WQEs taken from what was pushed, WQEs fetched all the same, rings that went back."""

    def __init__(self, end):
        self.end = end
        self.before = self.now()

    def now(self):
        settle(200)
        counters = self.end.context.query_counters()
        return [counters[name] for name in ("pushes", "push_fetches", "retries")]

    def __call__(self):
        return tuple(now - before for now, before in zip(self.now(), self.before))


def test_every_operation(pair):
    a, b = pair
    rng = make_rng()
    source, expected = bytearray(fill(a, 1)), bytearray(fill(b, 2))
    counts = Counts(a)
    most = 96 if a.qp._cap.max_inline_data == 96 else 32
    for number in range(24):
        qp = rng.randrange(3)
        opcode = rng.choice([SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWP])
        here, there, size = 8 * rng.randrange(512), 8 * rng.randrange(512), rng.randrange(1500)
        flags = SIGNALED
        if opcode in (FETCH_ADD, CMP_SWP):
            old = int.from_bytes(expected[there : there + 8], "little")
            operands = (old, number) if opcode == CMP_SWP else (number,)
            atomic(a, opcode, [sge(a, here, 8)], (b, there), *operands, qp=a.qps[qp])
            source[here : here + 8] = expected[there : there + 8]
            new = number if opcode == CMP_SWP else (old + number) % (1 << 64)
            expected[there : there + 8] = new.to_bytes(8, "little")
        else:
            if opcode != READ and rng.random() < 0.5:
                flags, size = INLINE, rng.randrange(most + 1)
            if opcode not in (READ, WRITE):
                recv(b, [sge(b, there, 2000)], qp=b.qps[qp])
            send(a, opcode, [sge(a, here, size)], remote=(b, there), flags=flags, imm=7, qp=a.qps[qp])
            if opcode == READ:
                source[here : here + size] = expected[there : there + size]
            else:
                expected[there : there + size] = source[here : here + size]
        assert completion(a.cq).status == 0
        if opcode not in (READ, WRITE, FETCH_ADD, CMP_SWP):
            assert completion(b.cq).status == 0
        assert (a.mr.read(SIZE, 0), b.mr.read(SIZE, 0)) == (source, expected)
    assert counts() == (24, 0, 0)


def test_who_does_not_push():
    with End("sim0", SIZE, push=False) as a, End("sim1", SIZE) as b:
        connect(a, b)
        counts = Counts(a)
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
        assert completion(a.cq).status == 0
        assert counts() == (0, 0, 0)


def test_a_pushed_wqe_saves_a_read():
    bursts = []
    for push in (True, False):
        with End("sim0", SIZE, push=push, inline=32) as a, End("sim1", SIZE) as b:
            connect(a, b)
            before = world().adapters[0].bus_counters["read_bursts"]
            for _ in range(5):
                send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0), flags=INLINE)
                assert completion(a.cq).status == 0
            bursts.append(world().adapters[0].bus_counters["read_bursts"] - before)
    assert bursts[1] - bursts[0] == 5


@pytest.mark.parametrize("opcode", [SEND, FETCH_ADD, READ])
@pytest.mark.parametrize("side", [0, 1])
def test_a_loss_is_repaired_from_the_ring(pair, opcode, side):
    """The request or its answer is lost: the second time the WQE is read from the ring, and works once."""
    a, b = pair
    source, target = fill(a, 3), fill(b, 4)
    counts = Counts(a)
    port = world().adapters[side]
    port.fault_at(port.counters["sent_frames"], "lose")
    if opcode == SEND:
        recv(b, [sge(b, 64, 100)])
        send(a, SEND, [sge(a, 0, 100)])
    elif opcode == READ:
        send(a, READ, [sge(a, 0, 100)], remote=(b, 64))
    else:
        atomic(a, FETCH_ADD, [sge(a, 0, 8)], (b, 64), 5)
    assert completion(a.cq).status == 0
    assert counts() == (1, 0, 1)
    if opcode == SEND:
        assert completion(b.cq).status == 0
        assert b.mr.read(100, 64) == source[:100]
    elif opcode == READ:
        assert a.mr.read(100, 0) == target[64:164]
    else:
        assert word(b, 64) == (int.from_bytes(target[64:72], "little") + 5) % (1 << 64)
        assert a.mr.read(8, 0) == target[64:72]
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    assert completion(a.cq).status == 0
    assert counts() == (2, 0, 1)


def test_pages_that_push_at_once(pair):
    """Another page's words in the midst: its WQE is not disturbed, and the first one is read from the ring."""
    a, b = pair
    source = fill(a, 5)
    counts = Counts(a)
    adapter = a.context._adapter
    entries = []
    for number, qp in enumerate(a.qps[:2]):
        a.context._push = False
        ring = adapter.ring_qp
        adapter.ring_qp = lambda *rung: None
        send(a, WRITE, [sge(a, 64 * number, 64)], remote=(b, 64 * number), qp=qp, wr_id=number)
        adapter.ring_qp = ring
        entries.append((qp.qp_num % adapter.control.max_qp, qp._sq.entry(0)))

    def push(number, words):
        page, entry = entries[number]
        for n in words:
            value = int.from_bytes(entry[4 * n : 4 * n + 4], "little")
            adapter.port.write32(QP_PAGES + PAGE * page + QP_PUSH + 4 * n, value)

    push(0, range(6))
    push(1, range(9))
    push(0, range(6, 16))
    push(1, range(9, 16))
    for page, _ in entries:
        adapter.port.write32(QP_PAGES + PAGE * page + QpDoorbell.SQ_PUSH, 1)
    assert sorted(done.wr_id for done in completions(a.cq, 2)) == [0, 1]
    assert b.mr.read(128, 0) == source[:128]
    assert counts() == (1, 1, 0)


def test_lists_and_what_is_posted_fast(pair):
    """Only the first of what is posted before anything completes is pushed."""
    a, b = pair
    source = fill(a, 6)
    counts = Counts(a)
    for number in range(8):
        send(a, WRITE, [sge(a, 512 * number, 512)], remote=(b, 512 * number), wr_id=number)
    assert [done.wr_id for done in completions(a.cq, 8)] == list(range(8))
    assert b.mr.read(4096, 0) == source[:4096]
    assert counts() == (1, 0, 0)
    quiet(a.cq)
