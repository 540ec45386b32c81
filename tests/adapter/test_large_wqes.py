"""WQEs of 256 and 512 bytes between two adapters: many scatter/gather entries, and much inline data."""

import pytest
from ends import (
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
    connect,
    fill,
    quiet,
    recv,
    send,
    sge,
    world,
)
from shared import ends_with
from streams import make_rng
from verbena.sim.ports import Faults
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type, ibv_send_flags
from verbena.sw.verbs.wr import RecvWR

SIZE = 1 << 16
INLINE = SIGNALED | ibv_send_flags.IBV_SEND_INLINE


@pytest.fixture(params=[(14, 224), (16, 480)], ids=["256", "512"])
def pair(request):
    sges, inline = request.param
    sizes = {"depth": 16, "sge": sges, "inline": inline, "qps": 3}
    with End("sim0", SIZE, **sizes) as a, End("sim1", SIZE, **sizes) as b:
        yield a, b


def pieces(rng, end, count, size):
    """``count`` entries of ``size`` bytes in sum, in places that do not overlap: the entries, and (offset, length)."""
    cuts = sorted(rng.randrange(size + 1) for _ in range(count - 1))
    lengths = [high - low for low, high in zip([0, *cuts], [*cuts, size])]
    room = SIZE // count
    places = [(room * k + rng.randrange(room - length), length) for k, length in enumerate(lengths)]
    rng.shuffle(places)
    return [sge(end, *place) for place in places], places


def gathered(memory, places):
    return b"".join(memory[at : at + length] for at, length in places)


def scattered(memory, places, data):
    for at, length in places:
        memory[at : at + length], data = data[:length], data[length:]


def exchange(rng, a, b, expected, *, count=30):
    """Random operations of all QPs, one after the other; memory is compared after each."""
    here, there = expected
    most = a.qp._cap
    for _ in range(count):
        qp = rng.randrange(len(a.qps))
        opcode = rng.choice([SEND, SEND_IMM, WRITE, WRITE_IMM, READ])
        size = rng.choice([rng.randrange(300), rng.randrange(2000)])
        flags = SIGNALED
        if opcode != READ and rng.random() < 0.5:
            flags, size = INLINE, rng.choice([rng.randrange(most.max_inline_data + 1), most.max_inline_data])
        entries, own = pieces(rng, a, rng.randint(1, most.max_send_sge), size)
        if opcode in (SEND, SEND_IMM):
            receives, peers = pieces(rng, b, rng.randint(1, b.qp._cap.max_recv_sge), size)
            recv(b, receives, qp=b.qps[qp])
        else:
            peers = [(rng.randrange(SIZE - size), size)]
            if opcode == WRITE_IMM:
                recv(b, [], qp=b.qps[qp])
        send(a, opcode, entries, remote=(b, peers[0][0]), flags=flags, imm=5, qp=a.qps[qp])
        assert completion(a.cq).status == 0
        if opcode not in (READ, WRITE):
            got = completion(b.cq)
            assert (got.status, got.byte_len) == (0, size)
        if opcode == READ:
            scattered(here, own, gathered(there, peers))
        else:
            scattered(there, peers, gathered(here, own))
        assert (a.mr.read(SIZE, 0), b.mr.read(SIZE, 0)) == (here, there)


@pytest.mark.every_width
def test_every_operation(pair):
    """With a path MTU that is smaller than the inline data, too, and a READ whose WQE is read once more."""
    a, b = pair
    rng = make_rng()
    connect(a, b, mtu=rng.choice([256, 1024]), timeout=7)
    exchange(rng, a, b, (bytearray(fill(a, 1)), bytearray(fill(b, 2))))


def test_on_a_wire_that_loses(pair):
    """What is sent again comes out of the same entries, and out of the middle of inline data."""
    a, b = pair
    rng = make_rng()
    connect(a, b, mtu=256, timeout=3, retry_cnt=7)
    expected = bytearray(fill(a, 1)), bytearray(fill(b, 2))
    world().set_faults(Faults(lose=0.03))
    try:
        exchange(rng, a, b, expected, count=20)
    finally:
        world().set_faults(Faults())


def test_atomics_stand_where_they_always_do(pair):
    a, b = pair
    connect(a, b)
    before = int.from_bytes(fill(b, 2)[64:72], "little")
    atomic(a, FETCH_ADD, [sge(a, 8, 8)], (b, 64), 5)
    assert completion(a.cq).status == 0
    assert int.from_bytes(a.mr.read(8, 8), "little") == before
    assert int.from_bytes(b.mr.read(8, 64), "little") == (before + 5) % (1 << 64)
    quiet(a.cq)


@pytest.mark.every_width
def test_a_shared_receive_queue():
    """A receive of 15 entries."""
    rng = make_rng()
    with ends_with(ibv_qp_type.IBV_QPT_RC, max_sge=15) as (a, b):
        connect(a, b)
        here, there = fill(a, 1), bytearray(fill(b, 2))
        for qp in range(4):
            receives, peers = pieces(rng, b, 15, 900)
            b.srq.post_recv(RecvWR(qp, 15, receives))
            send(a, SEND, [sge(a, 100 * qp, 900)], qp=a.qps[qp])
            assert completion(a.cq).status == completion(b.cq).status == 0
            scattered(there, peers, here[100 * qp :][:900])
            assert b.mr.read(len(there), 0) == there
