"""RC SEND and WRITE between two adapters, every byte checked."""

import itertools
import math
import random
import socket

import pytest
from ends import (
    SEND,
    SEND_IMM,
    SIGNALED,
    WRITE,
    WRITE_IMM,
    End,
    completion,
    connect,
    data_width,
    fill,
    quiet,
    recv,
    send,
    settle,
    sge,
)
from streams import make_rng
from verbena.hdl.config import Config
from verbena.sim.bench.latency import latency, mixed
from verbena.sim.wire_limit import wire_cycles
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wc_flags, ibv_wc_opcode
from verbena.sw.verbs.wr import SGE, SendWR

SIZE = 1 << 17


@pytest.fixture
def pair():
    with End("sim0", SIZE, sge=6, inline=96, depth=64) as a, End("sim1", SIZE, sge=4, depth=64) as b:
        yield a, b


def boundaries(mtu):
    return [0, 1, 3, 4, 7, 8, 9, 63, 64, 65, mtu - 1, mtu, mtu + 1, 2 * mtu, 5000, 65536]


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
@pytest.mark.parametrize("opcode", [WRITE, WRITE_IMM, SEND, SEND_IMM])
def test_every_boundary_of_length_at_every_alignment(pair, opcode, mtu):
    a, b = pair
    connect(a, b, mtu=mtu, psn=0xFFFFF0)
    source = fill(a, 1)
    expected = bytearray(fill(b, 2))
    receives = opcode != WRITE
    for number, size in enumerate(boundaries(mtu)):
        here, there = 17 * number % 64, 4096 + 13 * number % 71
        if receives:
            recv(b, [sge(b, there, 70000)], wr_id=number)
        send(a, opcode, [sge(a, here, size)], wr_id=1000 + number, remote=(b, there), imm=number)
        sent = completion(a.cq)
        assert (sent.wr_id, sent.status) == (1000 + number, 0)
        expected[there : there + size] = source[here : here + size]
        if receives:
            got = completion(b.cq)
            assert (got.wr_id, got.status, got.byte_len, got.src_qp) == (number, 0, size, a.qp.qp_num)
            imm = opcode in (SEND_IMM, WRITE_IMM)
            assert got.wc_flags == (ibv_wc_flags.IBV_WC_WITH_IMM if imm else 0)
            assert not imm or got.imm_data == number
            kind = ibv_wc_opcode.IBV_WC_RECV_RDMA_WITH_IMM if opcode == WRITE_IMM else ibv_wc_opcode.IBV_WC_RECV
            assert got.opcode == kind
        assert b.mr.read(SIZE, 0) == expected


def test_immediate_reaches_the_wire_in_network_order(pair):
    a, b = pair
    connect(a, b)
    recv(b, [sge(b, 0, 8)])
    send(a, SEND_IMM, [sge(a, 0, 8)], imm=socket.htonl(0x01020304))
    assert socket.ntohl(completion(b.cq).imm_data) == 0x01020304


@pytest.mark.every_width
def test_scatter_and_gather(pair):
    a, b = pair
    connect(a, b, mtu=256)
    rng = make_rng()
    source = fill(a, 3)
    expected = bytearray(fill(b, 4))
    for number in range(30):
        cuts = [rng.choice([0, 1, 2, 5, 64, 255, 256, 700]) for _ in range(rng.randint(1, 6))]
        total = sum(cuts)
        at, sges, gathered = 0, [], b""
        for length in cuts:
            at += rng.randrange(1, 40)
            sges.append(sge(a, at, length))
            gathered += source[at : at + length]
            at += length
        targets, place, left = [], 8000 + rng.randrange(50), total
        for index in range(4):
            length = left if index == 3 else rng.randint(0, left)
            targets.append(sge(b, place, length))
            expected[place : place + length] = gathered[total - left : total - left + length]
            left -= length
            place += length + rng.randrange(1, 9)
        recv(b, targets, wr_id=number)
        send(a, SEND, sges, wr_id=number)
        assert completion(a.cq).status == 0
        got = completion(b.cq)
        assert (got.status, got.wr_id, got.byte_len) == (0, number, total)
        assert b.mr.read(SIZE, 0) == expected


@pytest.mark.every_width
@pytest.mark.parametrize("size", [0, 1, 8, 33, 96])
@pytest.mark.parametrize("opcode", [WRITE_IMM, SEND])
def test_inline_data_is_taken_at_the_post(pair, opcode, size):
    a, b = pair
    connect(a, b)
    source = fill(a, 5)
    recv(b, [sge(b, 64, 200)])
    first, second = size // 3, size - size // 3
    flags = SIGNALED | ibv_send_flags.IBV_SEND_INLINE
    send(a, opcode, [sge(a, 10, first), sge(a, 500, second)], remote=(b, 64), flags=flags)
    a.mr.write(bytes(1000), 1000)
    assert completion(b.cq).byte_len == size
    assert b.mr.read(size, 64) == source[10 : 10 + first] + source[500 : 500 + second]
    assert completion(a.cq).status == 0


@pytest.mark.every_width
def test_a_message_longer_than_any_buffer_on_the_way(pair):
    a, b = pair
    connect(a, b, mtu=4096)
    size = 1 << 19
    with End("sim0", size) as big, End("sim1", size) as sink:
        connect(big, sink, mtu=4096)
        content = fill(big, 6)
        send(big, WRITE, [sge(big, 0, size)], remote=(sink, 0))
        assert completion(big.cq).status == 0
        assert sink.mr.read(size, 0) == content


@pytest.mark.every_width
@pytest.mark.parametrize("count", [400, pytest.param(1500, marks=pytest.mark.slow)])
def test_rings_wrap_and_both_directions_run_at_once(pair, count):
    a, b = pair
    connect(a, b)
    rng = make_rng()
    for start in range(0, count, 50):
        contents = []
        for near, far, side in ((a, b, 0), (b, a, 1)):
            base = side * 65536
            data = rng.randbytes(50 * 100)
            near.mr.write(data, len(data), base)
            contents.append(data)
            for i in range(50):
                recv(far, [sge(far, 32768 + base + 100 * i, 100)], wr_id=start + i)
        for i in range(50):
            for near, side in ((a, 0), (b, 1)):
                send(near, SEND, [sge(near, side * 65536 + 100 * i, 100)], wr_id=5000 + start + i)
        for near in (a, b):
            wcs = completion(near.cq, 100)
            assert all(wc.status == 0 for wc in wcs)
            assert [wc.wr_id for wc in wcs if wc.wr_id < 5000] == list(range(start, start + 50))
            assert [wc.wr_id for wc in wcs if wc.wr_id >= 5000] == list(range(5000 + start, 5050 + start))
        assert b.mr.read(5000, 32768) == contents[0]
        assert a.mr.read(5000, 32768 + 65536) == contents[1]


def test_unsignaled_sends_complete_nothing_but_free_their_slots(pair):
    a, b = pair
    connect(a, b)
    for i in range(200):
        last = i % 20 == 19
        send(a, WRITE, [sge(a, 0, 8)], wr_id=i, remote=(b, 0), flags=SIGNALED if last else 0)
        if last:
            assert completion(a.cq).wr_id == i
    quiet(a.cq)


def test_all_queue_pairs_at_once():
    rng = make_rng()
    with End("sim0", SIZE, qps=64, depth=8) as a, End("sim1", SIZE, qps=64, depth=8) as b:
        connect(a, b, mtu=512)
        source = fill(a, 7)
        expected = bytearray(fill(b, 8))
        order = list(range(64)) * 2
        rng.shuffle(order)
        places = itertools.count(0, 512)
        for index in order:
            at, size = next(places) % (SIZE - 1024), rng.randrange(1, 512)
            send(a, WRITE, [sge(a, at, size)], wr_id=index, remote=(b, at), qp=a.qps[index])
            expected[at : at + size] = source[at : at + size]
        wcs = completion(a.cq, len(order))
        assert sorted(wc.wr_id for wc in wcs) == sorted(order)
        assert all(wc.status == 0 and wc.qp_num == a.qps[wc.wr_id].qp_num for wc in wcs)
        assert b.mr.read(SIZE, 0) == expected


@pytest.mark.exact
def test_a_send_beside_writes_waits_for_few_of_their_packets():
    """For the one on the wire, and four that have their turn before it: or, where that is more, those that are read
    ahead, of which the last is read whole, and three.
    """
    alone, packet = (
        latency("SEND", 8, inline=False, push=True)["latency_cycles"],
        wire_cycles(WRITE, 4096, 4096, data_width()),
    )
    waits = mixed("WRITE", "own")["latency_cycles"] - alone
    ahead = math.ceil(Config().run_ahead / packet)
    assert waits <= (1 + max(4, ahead + 3)) * packet


@pytest.mark.every_width
def test_a_long_message_does_not_starve_a_short_one():
    size = data_width() << 11  # which takes 16,384 cycles
    with End("sim0", size, qps=2) as a, End("sim1", size, qps=2) as b:
        connect(a, b, mtu=1024)
        send(a, WRITE, [sge(a, 0, size)], wr_id=1, remote=(b, 0), qp=a.qps[0])
        settle(1000)
        send(a, WRITE, [sge(a, 0, 8)], wr_id=2, remote=(b, 0), qp=a.qps[1])
        assert [wc.wr_id for wc in completion(a.cq, 2)] == [2, 1]


def test_loopback_to_oneself():
    with End("sim0", SIZE) as a, End("sim0", SIZE) as b:
        connect(a, b, mtu=4096)
        source = fill(a, 9)
        for i in range(16):
            send(a, WRITE, [sge(a, 4096 * i, 4096)], wr_id=i, remote=(b, 4096 * i))
            send(b, WRITE, [sge(b, 65536 + 4096 * i, 4096)], wr_id=i, remote=(a, 65536 + 4096 * i))
        assert all(wc.status == 0 for wc in completion(a.cq, 16) + completion(b.cq, 16))
        assert b.mr.read(65536, 0) == source[:65536]


@pytest.mark.parametrize("count", [15, pytest.param(40, marks=pytest.mark.slow)])
def test_pages_of_every_registration_are_found(pair, count):
    """Scattered pages: each region's bus addresses differ from its virtual ones, page by page."""
    a, b = pair
    connect(a, b, mtu=4096)
    rng = random.Random(10)
    source = fill(a, 11)
    expected = bytearray(fill(b, 12))
    for _ in range(count):
        size = rng.randrange(1, 20000)
        here, there = rng.randrange(SIZE - size), rng.randrange(SIZE - size)
        send(a, WRITE, [sge(a, here, size)], remote=(b, there))
        assert completion(a.cq).status == 0
        expected[there : there + size] = source[here : here + size]
    assert b.mr.read(SIZE, 0) == expected


def test_list_of_work_requests_with_one_doorbell(pair):
    a, b = pair
    connect(a, b)
    wrs = [SendWR(i, WRITE, num_sge=1, sg=[SGE(a.mr.buf, 8, a.mr.lkey)]) for i in range(64)]
    for wr, following in zip(wrs, [*wrs[1:], None]):
        wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
        wr.next_wr = following
    a.qp.post_send(wrs[0])
    assert [wc.wr_id for wc in completion(a.cq, 64)] == list(range(64))
