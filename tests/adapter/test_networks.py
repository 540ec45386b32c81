"""What must be the same by every network: RoCEv2 and RoCEv1, IPv4 and IPv6; between two adapters."""

import random

import pytest
from ends import (
    CMP_SWP,
    FETCH_ADD,
    READ,
    SEND,
    SEND_IMM,
    WRITE,
    WRITE_IMM,
    atomic,
    completion,
    completions,
    connect,
    fill,
    recv,
    send,
    sge,
    word,
)
from networks import ALL, V1_IPV4, V1_IPV6, V2_IPV6, ends
from verbena.sim.pair import join
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type

LENGTHS = (0, 1, 37, 1024, 5000)


@pytest.mark.every_width
@pytest.mark.parametrize("index", [V2_IPV6, V1_IPV4, V1_IPV6])
def test_all_operations(index):
    a, b = ends(index=index)
    with a, b:
        connect(a, b, mtu=1024, psn=0xFFFFF0)
        source, target = fill(a, 1), fill(b, 2)
        for length in LENGTHS:
            part = [sge(a, 3, length)]
            send(a, WRITE, part, remote=(b, 4096))
            recv(b, [sge(b, 16384, 8192)])
            send(a, SEND_IMM, part, imm=0x11223344)
            recv(b, [])
            send(a, WRITE_IMM, part, remote=(b, 32768), imm=7)
            assert [wc.byte_len for wc in completion(b.cq, 2)] == [length, length]
            send(a, READ, [sge(a, 40000, length)], remote=(b, 50000))
            assert [wc.status for wc in completion(a.cq, 4)] == [0] * 4
            for at in (4096, 16384, 32768):
                assert b.mr.read(length, at) == source[3 : 3 + length]
            assert a.mr.read(length, 40000) == target[50000 : 50000 + length]
        b.mr.write((41).to_bytes(8, "little"), 8, 64)
        atomic(a, FETCH_ADD, [sge(a, 0, 8)], (b, 64), 1)
        atomic(a, CMP_SWP, [sge(a, 8, 8)], (b, 64), 42, 1 << 40)
        assert [wc.status for wc in completion(a.cq, 2)] == [0, 0]
        assert (word(a, 0), word(a, 8), word(b, 64)) == (41, 42, 1 << 40)


@pytest.mark.parametrize("index", [V2_IPV6, V1_IPV6])
def test_unreliable_connection(index):
    a, b = ends(ibv_qp_type.IBV_QPT_UC, index=index)
    with a, b:
        connect(a, b)
        source = fill(a, 5)
        for number, length in enumerate((1, 1024, 3000)):
            recv(b, [sge(b, 4096 * number, 4096)])
            send(a, SEND, [sge(a, 7, length)])
        assert [wc.byte_len for wc in completion(b.cq, 3)] == [1, 1024, 3000]
        assert b.mr.read(3000, 8192) == source[7:3007]


def test_connections_of_all_networks():
    """The same adapters by each of them, with traffic of all in flight at once."""
    rng = random.Random(8)
    a, b = ends(index=V2_IPV6, qps=len(ALL))
    with a, b:
        for index, here, there in zip(ALL, a.qps, b.qps):
            gids = [end.context.query_gid(1, index) for end in (a, b)]
            join(here, there, gids[1], sgid_index=index)
            join(there, here, gids[0], sgid_index=index)
        source = fill(a, 9)
        places = [(1500 * number, rng.randrange(1500)) for number in range(40)]
        for number, (at, length) in enumerate(places):
            send(a, WRITE, [sge(a, at, length)], remote=(b, at), qp=a.qps[number % len(ALL)])
        assert {wc.status for wc in completions(a.cq, len(places))} == {0}
        for at, length in places:
            assert b.mr.read(length, at) == source[at : at + length]
