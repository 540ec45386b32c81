"""Work requests."""

import pytest
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mem_alloc import free, posix_memalign, write
from verbena.sw.verbs.pyverbs_error import PyverbsUserError
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR


def test_sge():
    at = posix_memalign(16)
    write(at, "0123456789")
    sge = SGE(at, 8, 0xAB)
    assert (sge.addr, sge.length, sge.lkey) == (at, 8, 0xAB)
    assert sge.read(3, 2) == b"234"
    assert "lkey 0xab" in str(sge)
    sge.addr += 5
    assert sge.read(2, 0) == b"56"
    free(at)


def test_entries_are_copied():
    sges = [SGE(1, 2, 3), SGE(4, 5, 6), SGE(7, 8, 9)]
    for wr in (SendWR(1, num_sge=2, sg=sges), RecvWR(1, 2, sges)):
        sges[0].addr = 99
        assert [(s.addr, s.length, s.lkey) for s in wr.sg_list] == [(1, 2, 3), (4, 5, 6)]
        assert wr.num_sge == 2
        sges[0].addr = 1
        assert "2 SGEs" in str(wr)


def test_defaults():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)])
    assert (wr.wr_id, wr.opcode, wr.send_flags) == (0, ibv_wr_opcode.IBV_WR_SEND, ibv_send_flags.IBV_SEND_SIGNALED)
    assert (wr.imm_data, wr.rkey, wr.remote_addr, wr.next_wr) == (0, 0, 0, None)
    assert RecvWR().num_sge == 0


def test_lists():
    last = RecvWR(2)
    assert RecvWR(1, next_wr=last).next_wr is last
    last = SendWR(2, num_sge=1, sg=[SGE(0, 0, 0)])
    assert SendWR(1, num_sge=1, sg=[SGE(0, 0, 0)], next_wr=last).next_wr is last


def test_operands():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)])
    wr.set_wr_rdma(1, 2)
    assert (wr.rkey, wr.remote_addr) == (1, 2)
    wr.set_wr_atomic(3, 4, 5, 6)
    assert (wr.rkey, wr.remote_addr, wr.compare_add, wr.swap) == (3, 4, 5, 6)


@pytest.mark.parametrize("kwargs", [{}, {"num_sge": 1}, {"sg": [SGE(0, 0, 0)]}, {"num_sge": 1, "sg": []}])
def test_a_send_needs_an_entry(kwargs):
    with pytest.raises(PyverbsUserError, match="at least one SGE"):
        SendWR(**kwargs)
    assert SendWR(opcode=ibv_wr_opcode.IBV_WR_LOCAL_INV).num_sge == 0


def test_more_entries_than_there_are():
    with pytest.raises(PyverbsUserError, match="only 1 SGEs"):
        SendWR(num_sge=2, sg=[SGE(0, 0, 0)])
    with pytest.raises(PyverbsUserError, match="only 0 SGEs"):
        RecvWR(num_sge=1)
