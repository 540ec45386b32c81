"""P_Keys of the table, on queue pairs of two adapters."""

import pytest
from ends import SEND, WRITE, End, completion, fill, quiet, recv, send, settle, sge
from verbena.sim.pair import join
from verbena.sw.verbs.libibverbs_enums import ibv_wc_status

SIZE = 4096
FULL, LIMITED, OTHER = 0x8123, 0x0123, 0x8124


@pytest.fixture
def pair():
    """Rows 1 to 3 are full and limited members of a partition, and a member of another one."""
    with End("sim0", SIZE) as a, End("sim1", SIZE) as b:
        before = [list(end.context._adapter.pkeys) for end in (a, b)]
        for end in (a, b):
            end.context._adapter.pkeys[1:4] = [FULL, LIMITED, OTHER]
        yield a, b
        for end, pkeys in zip((a, b), before):
            end.context._adapter.pkeys[:] = pkeys


def connect(a, b, indices, **attributes):
    for (near, far), index in zip(((a, b), (b, a)), indices):
        join(near.qp, far.qp, far.gid, pkey_index=index, **attributes)


@pytest.mark.parametrize("indices", [(1, 1), (1, 2), (2, 1)])
def test_of_one_partition(pair, indices):
    """Both are full members, or one of them is (IBA 10.9.3)."""
    a, b = pair
    assert [end.context.query_pkey(1, 1) for end in pair] == [FULL, FULL]
    assert a.context.get_pkey_index(1, LIMITED) == 2
    connect(a, b, indices)
    source = fill(a, 1)
    recv(b, [sge(b, 0, 100)])
    send(a, SEND, [sge(a, 7, 100)])
    assert completion(b.cq).byte_len == 100
    assert completion(a.cq).status == 0
    assert b.mr.read(100, 0) == source[7:107]


@pytest.mark.parametrize("indices", [(1, 3), (2, 2), (0, 1)])
def test_of_different_partitions(pair, indices):
    """Also two limited members hear nothing of each other: dropped, counted, and nobody answers."""
    a, b = pair
    connect(a, b, indices, timeout=8, retry_cnt=1)
    before = b.context.query_counters("drop_qp")["drop_qp"]
    content = fill(b, 2)
    send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
    settle(2000)
    assert b.context.query_counters("drop_qp")["drop_qp"] > before
    assert completion(a.cq).status == ibv_wc_status.IBV_WC_RETRY_EXC_ERR
    assert b.mr.read(SIZE, 0) == content
    quiet(b.cq)
