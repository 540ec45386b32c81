"""Work requests."""

import ctypes

import pytest
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.mem_alloc import free, posix_memalign, write
from verbena.sw.verbs.pyverbs_error import PyverbsUserError
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR, send_flags_to_str


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


WIDTHS = {
    "wr_id": 64,
    "imm_data": 32,
    "rkey": 32,
    "remote_addr": 64,
    "compare_add": 64,
    "swap": 64,
    "addr": 64,
    "length": 32,
    "lkey": 32,
}


@pytest.mark.parametrize("name", WIDTHS)
def test_numbers_that_do_not_fit_raise_where_they_are_set(name):
    sge = SGE(1, 1, 1)
    holders = [holder for holder in (sge, RecvWR(1), SendWR(1, num_sge=1, sg=[sge])) if hasattr(holder, name)]
    assert holders
    top = (1 << WIDTHS[name]) - 1
    for holder in holders:
        setattr(holder, name, top)
        for bad in (top + 1, -1, 1.0, "7", None):
            with pytest.raises(PyverbsUserError) as caught:
                setattr(holder, name, bad)
            assert repr(bad) in str(caught.value)
            assert getattr(holder, name) == top
        setattr(holder, name, True)
        assert getattr(holder, name) == 1


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SGE(-1, 1, 0), "SGE.addr must be an integer from 0 to 0xffffffffffffffff, not -1"),
        (lambda: SGE(0, 1 << 32, 0), "SGE.length must be an integer from 0 to 0xffffffff, not 4294967296"),
        (lambda: SGE(0, 1, 1 << 32), "SGE.lkey"),
        (lambda: RecvWR(-1), "WR.wr_id must be an integer from 0 to 0xffffffffffffffff, not -1"),
        (lambda: SendWR(1 << 64, num_sge=1, sg=[SGE(0, 0, 0)]), "WR.wr_id"),
        (lambda: SendWR(num_sge=1, sg=[SGE(0, 0, 0)], imm_data=1 << 32), "SendWR.imm_data"),
        (lambda: SendWR(num_sge=1, sg=[SGE(0, 0, 0)]).set_wr_rdma(1 << 32, 0), "SendWR.rkey"),
        (lambda: SendWR(num_sge=1, sg=[SGE(0, 0, 0)]).set_wr_rdma(0, -1), "SendWR.remote_addr"),
        (lambda: SendWR(num_sge=1, sg=[SGE(0, 0, 0)]).set_wr_atomic(0, 0, 1 << 64), "SendWR.compare_add"),
        (lambda: SendWR(num_sge=1, sg=[SGE(0, 0, 0)]).set_wr_atomic(0, 0, 0, -5), "SendWR.swap"),
    ],
)
def test_so_does_creation(make, text):
    with pytest.raises(PyverbsUserError, match=text):
        make()


def test_an_entry_of_a_buffer():
    buffer = bytearray(b"0123456789")
    sge = SGE(memoryview(buffer)[2:], 3, 0)
    assert sge.addr == ctypes.addressof(ctypes.c_char.from_buffer(buffer)) + 2
    assert sge.read(2, 1) == b"34"


def test_more_entries_than_there_are():
    with pytest.raises(PyverbsUserError, match="only 1 SGEs"):
        SendWR(num_sge=2, sg=[SGE(0, 0, 0)])
    with pytest.raises(PyverbsUserError, match="only 0 SGEs"):
        RecvWR(num_sge=1)


def test_names_of_c():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)])
    wr.rdma_remote_addr, wr.rdma_rkey = 5, 6
    assert (wr.remote_addr, wr.rkey, wr.rdma_remote_addr, wr.rdma_rkey) == (5, 6, 5, 6)
    wr.set_wr_rdma(7, 8)
    assert (wr.rdma_rkey, wr.rdma_remote_addr) == (7, 8)


class Window:
    rkey = 0x1234FF


def test_requests_of_other_queues():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)])
    wr.set_wr_ud("ah", 0x123456, 0x80000000)
    assert (wr.ah, wr.remote_qpn, wr.remote_qkey) == ("ah", 0x123456, 0x80000000)
    wr.set_bind_wr(Window, "info")
    assert (wr.mw, wr.bind_info, wr.rkey) == (Window, "info", 0x123400)
    wr.set_qp_type_xrc(5)
    assert wr.remote_srqn == 5


def test_repr():
    wr = SendWR(1, 0, 1, sg=[SGE(0x10, 2, 3)], send_flags=3)
    wr.set_wr_rdma(0xAB, 0xCD)
    assert repr(wr) == (
        "SendWR(wr_id=1, opcode=IBV_WR_RDMA_WRITE, send_flags=IBV_SEND_FENCE|IBV_SEND_SIGNALED, "
        "sg_list=[SGE(0x10, 2, 0x3)], rkey=0xab, remote_addr=0xcd)"
    )
    assert repr(RecvWR(2, 1, [SGE(0x10, 2, 3)])) == "RecvWR(wr_id=2, sg_list=[SGE(0x10, 2, 0x3)])"
    assert send_flags_to_str(6) == "IBV_SEND_SIGNALED IBV_SEND_SOLICITED "


def test_entries_that_are_set():
    """One or several, of which copies are taken; fewer of them, but not more."""
    wr = RecvWR(1, 1, [SGE(1, 2, 3)])
    wr.sg_list = SGE(4, 5, 6)
    assert [sge.addr for sge in wr.sg_list] == [4]
    given = [SGE(7, 8, 9), SGE(10, 11, 12)]
    wr.sg_list = given
    given[0].addr = 0
    assert [sge.addr for sge in wr.sg_list] == [7, 10]
    wr.num_sge = 1
    assert [sge.addr for sge in wr.sg_list] == [7]
    for count in (2, -1, None):
        with pytest.raises(PyverbsUserError, match="num_sge is"):
            wr.num_sge = count


def test_what_holds_nothing_can_be_closed():
    with SGE(1, 2, 3) as sge, RecvWR(1, 1, [sge]) as wr, SendWR(1, 0, 1, sg=[sge]) as send:
        assert (wr.num_sge, send.num_sge) == (1, 1)
    for each in (sge, wr, send):
        each.close()
    assert sge.addr == 1
