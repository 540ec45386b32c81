"""Memory windows of type 2: bound for one queue pair, and free again by an invalidation of either side."""

import errno
from itertools import pairwise

import pytest
from ends import FETCH_ADD, atomic, completion, completions, connect, fill, quiet, recv, sge, word, world
from key_ends import (
    LOCAL_WRITE,
    OP,
    REMOTE_READ,
    REMOTE_WRITE,
    SIZE,
    A,
    S,
    W,
    bind,
    bind_2,
    entry_of,
    invalidate,
    refused,
    reset,
    reset_pairs,
    send_inv,
    success,
    two_ends,
    write,
)
from verbena.hdl.abi.cqe import Syndrome
from verbena.hdl.abi.wqe import KEY_WQE, SendOpcode
from verbena.sim.ports import Faults
from verbena.sim.soak.granting import KINDS as KINDS_OF_GRANTS
from verbena.sim.soak.granting import Granting
from verbena.sim.soak.host import Host
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.base import inc_rkey
from verbena.sw.verbs.libibverbs_enums import ibv_device_cap_flags, ibv_qp_attr_mask, ibv_wc_flags, ibv_wc_opcode
from verbena.sw.verbs.mr import MR, MW, MWBindInfo
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from verbena.sw.verbs.wr import SGE, SendWR

KINDS = ("WRITE", "READ", "atomic")
RIGHTS = REMOTE_WRITE | REMOTE_READ | A.IBV_ACCESS_REMOTE_ATOMIC


def use(a, b, key, kind, qp):
    """8 bytes of the peer's memory are used by a key."""
    if kind == "atomic":
        atomic(a, FETCH_ADD, [sge(a, 32768, 8)], (b, 8), 1, rkey=key, qp=qp)
    else:
        opcode = OP.IBV_WR_RDMA_READ if kind == "READ" else OP.IBV_WR_RDMA_WRITE
        write(a, key, b.mr.buf + 8, 8, opcode=opcode, offset=32768, qp=qp)


@pytest.mark.every_width
def test_a_window_is_bound_used_invalidated_and_bound_anew():
    """Locally invalidated and by a SEND in turns; each time another part, by the next key, and the last key is dead."""
    with two_ends() as (a, b):
        assert b.context.query_device().device_cap_flags & ibv_device_cap_flags.IBV_DEVICE_MEM_WINDOW_TYPE_2B
        source, target = bytearray(fill(a, 1)), bytearray(fill(b, 2))
        window = MW(b.pd, 2)
        for number, (offset, length) in enumerate(((0, 4096), (4097, 10000), (12287, 2), (SIZE - 1, 1))):
            old = window.rkey
            key = bind_2(b, window, offset, length, wr_id=number)
            assert key == window.rkey == inc_rkey(old)
            assert success(b.cq, ibv_wc_opcode.IBV_WC_BIND_MW).wr_id == number
            size = min(length, 700)
            write(a, key, b.mr.buf + offset + length - size, size)
            success(a.cq)
            target[offset + length - size : offset + length] = source[:size]
            assert b.mr.read(SIZE, 0) == target
            if number % 2:
                invalidate(b, key)
                success(b.cq, ibv_wc_opcode.IBV_WC_LOCAL_INV)
            else:
                recv(b, [sge(b, 60000, 8)])
                send_inv(a, key, [sge(a, 0, 8)])
                success(a.cq)
                got = success(b.cq, ibv_wc_opcode.IBV_WC_RECV)
                assert (got.wc_flags, got.imm_data) == (ibv_wc_flags.IBV_WC_WITH_INV, key)
                target[60000:60008] = source[:8]
            assert not entry_of(b, window)["valid"]
            write(a, key, b.mr.buf + offset, 1)
            assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
            reset(a, b)
            assert b.mr.read(SIZE, 0) == target


@pytest.mark.every_width
@pytest.mark.parametrize("kind", KINDS)
def test_a_window_is_for_its_queue_pair_alone(kind):
    """The same key by another queue pair of the domain is refused, before and after its own one has used it; a window
    of type 1 is for both."""
    with two_ends(qps=2) as (a, b):
        fill(a, 1), fill(b, 2)
        value = word(b, 8)
        window, shared = MW(b.pd, 2), MW(b.pd, 1)
        key = bind_2(b, window, 0, 4096, RIGHTS, qp=b.qps[1])
        bind(b, shared, 0, 4096, RIGHTS)
        assert [wc.status for wc in completions(b.cq, 2)] == [W.IBV_WC_SUCCESS] * 2
        assert entry_of(b, window)["pages_or_qpn"] == b.qps[1].qp_num
        for qp in a.qps:
            use(a, b, shared.rkey, kind, qp)
            success(a.cq)
        use(a, b, key, kind, a.qps[1])
        success(a.cq)
        if kind == "atomic":
            assert word(b, 8) == value + 3
        before = b.mr.read(SIZE, 0)
        use(a, b, key, kind, a.qps[0])
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
        assert b.mr.read(SIZE, 0) == before
        use(a, b, key, kind, a.qps[1])
        success(a.cq)


def test_what_is_not_its_own_cannot_invalidate_it():
    """Another queue pair of the domain, on this side and on the other, and with a window of type 1 nobody."""
    with two_ends(qps=2) as (a, b):
        window, shared = MW(b.pd, 2), MW(b.pd, 1)
        key = bind_2(b, window, 0, 4096, qp=b.qps[1])
        bind(b, shared, 0, 4096)
        assert [wc.status for wc in completions(b.cq, 2)] == [W.IBV_WC_SUCCESS] * 2
        for wrong, why in ((key, Syndrome.PD), (shared.rkey, Syndrome.RIGHTS)):
            invalidate(b, wrong)
            failed = completion(b.cq)
            assert (failed.status, failed.vendor_err) == (W.IBV_WC_LOC_QP_OP_ERR, why)
            reset_pairs(a, b)
            recv(b, [sge(b, 0, 64)])
            send_inv(a, wrong, [sge(a, 0, 8)])
            assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
            assert completion(b.cq).status == W.IBV_WC_LOC_ACCESS_ERR
            b.context.get_async_event()
            b.qp._unacked_events = 0
            reset_pairs(a, b)
        for region in (window, shared):
            assert entry_of(b, region)["valid"]
        write(a, key, b.mr.buf, qp=a.qps[1])
        success(a.cq)
        invalidate(b, key, qp=b.qps[1])
        success(b.cq)


def test_a_window_that_is_bound_is_not_bound_again():
    with two_ends() as (a, b):
        window = MW(b.pd, 2)
        first = bind_2(b, window, 0, 4096)
        success(b.cq)
        bind_2(b, window, 8, 16)
        failed = completion(b.cq)
        assert (failed.status, failed.vendor_err) == (W.IBV_WC_MW_BIND_ERR, Syndrome.KEY)
        reset(a, b)
        write(a, first, b.mr.buf + 1000)
        success(a.cq)
        invalidate(b, first)
        success(b.cq)
        key = bind_2(b, window, 8, 16)
        success(b.cq)
        write(a, key, b.mr.buf + 8, 16)
        success(a.cq)


def test_a_region_with_bound_windows_cannot_be_closed():
    with two_ends() as (a, b):
        mr = MR(b.pd, 8192, 31)
        windows = [MW(b.pd, 2) for _ in range(2)]
        keys = [bind_2(b, window, 0, 4096, mr=mr) for window in windows]
        completions(b.cq, 2)
        refused(errno.EBUSY, mr.close)
        invalidate(b, keys[0])
        success(b.cq)
        refused(errno.EBUSY, mr.close)
        windows[1].close()
        mr.close()
        write(a, keys[1], b.mr.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR


def test_the_next_queue_pair_does_not_inherit_a_window():
    """Its queue pair is gone, and one of the same domain connected in its place; RESET alone leaves it bound."""
    with two_ends() as (a, b):
        window = MW(b.pd, 2)
        key = bind_2(b, window, 0, 4096)
        success(b.cq)
        reset(a, b)
        write(a, key, b.mr.buf)
        success(a.cq)
        old, slot = b.qp, b.qps.index(b.qp)
        init = old.query(0)[1]
        number = old.qp_num
        old.close()
        b.qps[slot] = type(old)(b.pd, init, QPAttr())
        assert b.qps[slot].qp_num != number
        a.qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        connect(a, b, mtu=256)
        write(a, key, b.mr.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
        window.close()


def test_requests_in_a_list_and_in_a_batch_find_each_other_done():
    """Bind, invalidate and bind, posted at once; a list that breaks off gives no key that was not posted."""
    with two_ends(qps=0) as (a, b):
        ops = e.IBV_QP_EX_WITH_BIND_MW | e.IBV_QP_EX_WITH_LOCAL_INV
        for end in (a, b):
            mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            more = {"cap": QPCap(4, 4), "comp_mask": mask, "pd": end.pd, "send_ops_flags": ops}
            end.qps = [QPEx(end.context, QPInitAttrEx(e.IBV_QPT_RC, scq=end.cq, rcq=end.cq, **more))]
        connect(a, b)
        source = fill(a, 1)
        window = MW(b.pd, 2)
        first, second = inc_rkey(window.rkey), inc_rkey(inc_rkey(window.rkey))
        requests = [SendWR(0, OP.IBV_WR_BIND_MW), SendWR(1, OP.IBV_WR_LOCAL_INV, imm_data=first)]
        requests += [SendWR(2, OP.IBV_WR_BIND_MW), SendWR(3, OP.IBV_WR_LOCAL_INV, imm_data=second)]
        for number, key in ((0, first), (2, second)):
            requests[number].set_bind_wr(window, MWBindInfo(b.mr, b.mr.buf + number, 4096, RIGHTS))
            requests[number].rkey = key
        for wr, after in pairwise(requests):
            wr.next_wr = after
        b.qp.post_send(requests[0])
        assert [(wc.wr_id, wc.status) for wc in completions(b.cq, 4)] == [(number, 0) for number in range(4)]
        assert window.rkey == second

        key = inc_rkey(second)
        free = SendWR(1, OP.IBV_WR_LOCAL_INV, imm_data=key)
        bound, again = SendWR(0, OP.IBV_WR_BIND_MW), SendWR(2, OP.IBV_WR_BIND_MW)
        bound.set_bind_wr(window, MWBindInfo(b.mr, b.mr.buf, 4096, RIGHTS))
        again.set_bind_wr(window, MWBindInfo(b.mr, b.mr.buf, SIZE + 1, RIGHTS))
        bound.next_wr, free.next_wr = free, again
        refused(errno.EINVAL, b.qp.post_send, bound)
        assert window.rkey == key
        completions(b.cq, 2)

        b.qp.wr_start()
        b.qp.wr_flags = 2
        b.qp.wr_bind_mw(window, inc_rkey(key), MWBindInfo(b.mr, b.mr.buf, 4096, RIGHTS))
        b.qp.wr_local_inv(inc_rkey(key))
        key = inc_rkey(inc_rkey(key))
        b.qp.wr_bind_mw(window, key, MWBindInfo(b.mr, b.mr.buf + 8, 4096, RIGHTS))
        b.qp.wr_complete()
        assert all(wc.status == W.IBV_WC_SUCCESS for wc in completions(b.cq, 3))
        assert window.rkey == key
        write(a, key, b.mr.buf + 8, 300)
        success(a.cq)
        assert b.mr.read(300, 8) == source[:300]


@pytest.mark.parametrize("kind", [1, 2])
def test_a_window_is_not_for_local_use(kind):
    """Its key as that of a local buffer, which is read or written to: the queue pair ends, and nothing is touched. Nor
    if a program asks for local rights in its ring: a region that it may only read stays so."""
    with two_ends() as (a, b):
        fill(a, 1)
        region = MR(b.pd, 4096, A.IBV_ACCESS_MW_BIND | REMOTE_READ)
        window = MW(b.pd, kind)
        key = inc_rkey(window.rkey)
        fields = {"key": key, "old_key": window.rkey, "region": region.lkey, "address": region.buf, "length": 4096}
        wqe = KEY_WQE.pack(opcode=SendOpcode.BIND_MW, flags=2, access=LOCAL_WRITE | REMOTE_READ, **fields)
        b.qp._sq.put(0, wqe)
        b.qp._ring_send(0)
        success(b.cq)
        for opcode in (OP.IBV_WR_RDMA_WRITE, OP.IBV_WR_RDMA_READ):
            wr = SendWR(0, opcode, num_sge=1, sg=[SGE(region.buf, 8, key)])
            wr.set_wr_rdma(a.mr.rkey, a.mr.buf)
            b.qp.post_send(wr)
            assert completion(b.cq).status == W.IBV_WC_LOC_PROT_ERR
            reset(a, b)
        recv(b, [SGE(region.buf, 8, key)])
        write(a, 0, 0, 8, opcode=OP.IBV_WR_SEND)
        assert completion(a.cq).status == W.IBV_WC_REM_OP_ERR
        assert completion(b.cq).status == W.IBV_WC_LOC_PROT_ERR
        assert not any(region.read(4096, 0))


def test_what_the_driver_refuses():
    with two_ends() as (a, b):
        window, first, foreign = MW(b.pd, 2), MW(b.pd, 1), MW(PD(b.context), 2)
        plain, readonly = MR(b.pd, 4096, 15), MR(b.pd, 4096, A.IBV_ACCESS_MW_BIND)
        refused(errno.EINVAL, bind_2, b, first, 0, 8)  # of type 1: QP.bind_mw
        refused(errno.EINVAL, bind, b, window, 0, 8)
        refused(errno.EINVAL, bind_2, b, window, 0, 0)
        refused(errno.EINVAL, bind_2, b, window, 1, SIZE)
        refused(errno.EINVAL, bind_2, b, window, 0, 8, LOCAL_WRITE)
        refused(errno.EINVAL, bind_2, b, window, 0, 8, mr=plain)
        refused(errno.EINVAL, bind_2, b, window, 0, 8, 2, mr=readonly)
        refused(errno.EPERM, bind_2, b, foreign, 0, 8)
        wr = SendWR(0, OP.IBV_WR_BIND_MW)
        refused(errno.EINVAL, b.qp.post_send, wr)
        wr.set_bind_wr(window, MWBindInfo(b.mr, b.mr.buf, 8, 2))
        for key in (window.rkey, b.mr.rkey, inc_rkey(b.mr.rkey)):
            wr.rkey = key
            refused(errno.EINVAL, b.qp.post_send, wr)
        key = window.rkey
        assert bind_2(b, window, 0, 8) == inc_rkey(key)
        success(b.cq)
        quiet(a.cq)


@pytest.mark.every_width
def test_keys_come_and_go_under_loss():
    """All kinds are granted, used, taken away from both sides, and refused then; nothing else is written."""
    granting = Granting(5, [Host(world(), index, 64) for index in (0, 1)], 10, 4)
    world().set_faults(Faults(lose=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02))
    while sum(granting.counts[kind] for kind in KINDS_OF_GRANTS) < 20 or not granting.counts["taken by the peer"]:
        _run(granting)
    world().set_faults(Faults())
    while not granting.end():
        _run(granting, posting=False)
    granting.check()


def _run(granting, posting=True):
    granting.step(posting)
    world().advance(300, stop=0)
    for event in granting.hosts[1].take_events():
        assert granting.event(event)
