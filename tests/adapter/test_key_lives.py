"""No key outlives what it stands for: windows of regions that change or go, tables of fast regions, keys used again."""

import ctypes
import errno
import gc
import mmap

import pytest
from ends import completion, completions, world
from key_ends import (
    ALL,
    LOCAL_WRITE,
    OP,
    REMOTE_READ,
    SIZE,
    A,
    S,
    W,
    bind,
    bind_2,
    entry_of,
    invalidate,
    refused,
    register,
    reset,
    reset_pairs,
    success,
    two_ends,
    write,
)
from verbena.sim.pair import join
from verbena.sw.verbs import libibverbs_enums as e
from verbena.sw.verbs.base import inc_rkey
from verbena.sw.verbs.fast_region import FastMR
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_rereg_mr_flags
from verbena.sw.verbs.mr import MR, MW, Buf, BufMR, MREx, MWBindInfo
from verbena.sw.verbs.pd import PD, ParentDomain, ParentDomainInitAttr
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from verbena.sw.verbs.wr import SendWR

PAGE = 4096
R = ibv_rereg_mr_flags
BINDABLE = ALL | A.IBV_ACCESS_MW_BIND


def pages(end, count):
    """So much memory, each page with its number, and its address."""
    memory = mmap.mmap(-1, count * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for number in range(count):
        memory[number * PAGE] = number + 1
    return memory, address


def dead(a, b, key, address):
    """The peer's key opens nothing."""
    write(a, key, address, 8)
    assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
    reset(a, b)


# -- Fast regions.


@pytest.mark.every_width
def test_a_fast_region_has_no_page_that_was_not_mapped():
    """Whatever length a program claims: behind its own pages there are none, and not those of another region."""
    with two_ends() as (a, b):
        memory, address = pages(b, 1)
        region = FastMR(b.pd, 16)
        region.map(address, PAGE)
        secret = MR(b.pd, SIZE, LOCAL_WRITE)
        secret.write(b"s" * SIZE, SIZE)
        region.length = 16 * PAGE
        register(b, region)
        assert completion(b.cq).status == W.IBV_WC_LOC_QP_OP_ERR
        reset(a, b)
        dead(a, b, region.rkey, address + 8 * PAGE)
        region.length = PAGE
        register(b, region)
        success(b.cq)
        write(a, region.rkey, address, 8, opcode=OP.IBV_WR_RDMA_READ)
        success(a.cq)
        dead(a, b, region.rkey, address + PAGE)
        assert secret.read(1, 0) == b"s"
        del memory


def test_a_fast_region_whose_registration_is_posted_is_not_mapped():
    """It would be valid at any time; when it was flushed, or its queue pair is gone or new, it may be."""
    with two_ends(qps=2) as (a, b):
        memory, address = pages(b, 4)
        region = FastMR(b.pd, 4)
        region.map(address, PAGE)
        register(b, region)
        refused(errno.EBUSY, region.map, address, 2 * PAGE)
        success(b.cq)
        refused(errno.EBUSY, region.map, address, 2 * PAGE)
        invalidate(b, region.rkey)
        success(b.cq)
        region.map(address, 2 * PAGE)

        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
        register(b, region)
        refused(errno.EBUSY, region.map, address, PAGE)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
        assert completion(b.cq).status == W.IBV_WC_WR_FLUSH_ERR
        region.map(address, PAGE)

        reset_pairs(a, b)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
        register(b, region)
        reset_pairs(a, b)
        region.map(address, 2 * PAGE)

        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
        register(b, region)
        refused(errno.EBUSY, region.map, address, PAGE)
        b.qps[0].close()
        region.map(address, PAGE)
        del memory


def test_what_is_mapped_for_reading_is_not_written():
    """A REG_MR with LOCAL_WRITE is refused, and changes nothing."""
    with two_ends() as (a, b):
        memory, address = pages(b, 2)
        region = FastMR(b.pd, 2)
        region.map(address, 2 * PAGE, access=0)
        refused(errno.EINVAL, register, b, region, ALL)
        assert region.access == 0
        register(b, region, REMOTE_READ)
        success(b.cq)
        assert region.access == REMOTE_READ
        dead(a, b, region.rkey, address)
        write(a, region.rkey, address, 8, opcode=OP.IBV_WR_RDMA_READ)
        success(a.cq)
        del memory


# -- Windows of a region that changes.


def test_a_region_with_bound_windows_is_not_registered_anew():
    with two_ends() as (a, b):
        window, other = MW(b.pd, 1), PD(b.context)
        bind(b, window, 0, PAGE)
        success(b.cq)
        for flags, more in (
            (R.IBV_REREG_MR_CHANGE_TRANSLATION, {"addr": bytearray(PAGE)}),
            (R.IBV_REREG_MR_CHANGE_ACCESS, {"access": 0}),
            (R.IBV_REREG_MR_CHANGE_PD, {"pd": other}),
        ):
            refused(errno.EBUSY, b.mr.rereg, flags, **more)
        write(a, window.rkey, b.mr.buf)
        success(a.cq)
        bind(b, window, 0, 0)
        success(b.cq)
        b.mr.rereg(R.IBV_REREG_MR_CHANGE_ACCESS, access=LOCAL_WRITE)


def test_a_fast_region_with_bound_windows_is_not_mapped_anew():
    with two_ends() as (a, b):
        memory, address = pages(b, 4)
        region, window = FastMR(b.pd, 4), MW(b.pd, 2)
        region.map(address, PAGE)
        register(b, region, BINDABLE)
        key = bind_2(b, window, 0, 8, mr=region)
        invalidate(b, region.rkey)
        completions(b.cq, 3)
        refused(errno.EBUSY, region.map, address, 2 * PAGE)
        write(a, key, address, 8)
        success(a.cq)
        invalidate(b, key)
        success(b.cq)
        region.map(address, 2 * PAGE)
        dead(a, b, key, address)
        del memory


# -- Windows of a region that goes without being asked.


def forgotten(b):
    """Nobody has it any more."""
    region = MR(b.pd, PAGE, BINDABLE)

    def go(regions):
        regions.clear()
        gc.collect()
        b.cq.poll()

    return region, go


def of_a_buffer(b):
    buffer = Buf(b.pd, PAGE)
    return BufMR(b.pd, buffer, PAGE, BINDABLE), lambda _: buffer.close()


def of_a_parent_domain(b):
    domain = ParentDomain(b.context, ParentDomainInitAttr(b.pd))
    return MR(domain, PAGE, BINDABLE), lambda _: domain.close()


@pytest.mark.parametrize("make", [forgotten, of_a_buffer, of_a_parent_domain])
@pytest.mark.parametrize("kind", [1, 2])
def test_a_window_goes_with_its_region(make, kind):
    """Its key is dead before the memory is somebody else's; and it can be bound to another region."""
    with two_ends() as (a, b):
        regions = []
        region, go = make(b)
        regions.append(region)
        window, address = MW(b.pd, kind), region.buf
        (bind if kind == 1 else bind_2)(b, window, 0, PAGE, mr=region)
        success(b.cq)
        key = window.rkey
        write(a, key, address, 8)
        success(a.cq)
        del region
        go(regions)
        assert not entry_of(b, window)["valid"]
        heir = MR(b.pd, PAGE, LOCAL_WRITE)
        dead(a, b, key, address)
        assert heir.read(PAGE, 0) == bytes(PAGE)
        (bind if kind == 1 else bind_2)(b, window, 8, 8)
        success(b.cq)
        assert window.rkey != key
        write(a, window.rkey, b.mr.buf + 8, 8)
        success(a.cq)
        dead(a, b, key, address)


def test_a_window_goes_with_its_fast_region():
    with two_ends() as (a, b):
        memory, address = pages(b, 1)
        region, window = FastMR(b.pd, 1), MW(b.pd, 2)
        region.map(address, PAGE)
        register(b, region, BINDABLE)
        key = bind_2(b, window, 0, 8, mr=region)
        completions(b.cq, 2)
        refused(errno.EBUSY, region.close)
        del region
        gc.collect()
        b.cq.poll()
        dead(a, b, key, address)
        del memory


# -- Keys that come again.


@pytest.mark.parametrize("kind", ["window", "fast"])
def test_the_key_of_what_was_closed_is_not_the_next_one_of_its_index(kind, monkeypatch):
    """Work requests have changed it since it was made."""
    with two_ends() as (a, b):
        memory, address = pages(b, 1)
        if kind == "window":
            old = MW(b.pd, 1)
            bind(b, old, 0, PAGE)
        else:
            old = FastMR(b.pd, 1)
            old.map(address, PAGE)
            register(b, old)
        success(b.cq)
        key, index = old.rkey, old.handle
        old.close()
        monkeypatch.setattr(b.context._adapter.regions.random, "randrange", lambda *_: index)
        new = MR(b.pd, PAGE, ALL)
        monkeypatch.undo()
        assert new.handle == index
        assert new.rkey not in (key, key & ~0xFF)
        dead(a, b, key, new.buf)
        del memory


def test_a_key_that_comes_again_stands_for_the_last_binding():
    """After 255 further ones, all to another region: the first can be closed, the other cannot."""
    with two_ends() as (_, b):
        first, window = MR(b.pd, PAGE, BINDABLE), MW(b.pd, 1)
        bind(b, window, 0, 8, mr=first)
        success(b.cq)
        key = window.rkey
        for _ in range(256):
            bind(b, window, 0, 8)
            success(b.cq)
        assert window.rkey == key
        first.close()
        refused(errno.EBUSY, b.mr.close)


@pytest.mark.parametrize("kind", [1, 2])
def test_a_binding_that_was_flushed_leaves_the_window_as_it_was(kind):
    with two_ends() as (a, b):
        window = MW(b.pd, kind)
        (bind if kind == 1 else bind_2)(b, window, 0, 8)
        success(b.cq)
        old = window.rkey
        if kind == 2:
            invalidate(b, old)
            success(b.cq)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
        (bind if kind == 1 else bind_2)(b, window, 8, 8)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
        assert completion(b.cq).status == W.IBV_WC_WR_FLUSH_ERR
        reset(a, b)
        (bind if kind == 1 else bind_2)(b, window, 16, 8)
        success(b.cq)
        write(a, window.rkey, b.mr.buf + 16, 8)
        success(a.cq)
        dead(a, b, old, b.mr.buf)


@pytest.mark.parametrize("go", ["close", "rereg"])
def test_a_binding_that_never_came_hides_none_that_stands(go):
    """One that fails, and one by the window's own key behind it that is flushed."""
    with two_ends(qps=2) as (a, b):
        first, second, window = MR(b.pd, PAGE, BINDABLE), MR(b.pd, PAGE, BINDABLE), MW(b.pd, 2)
        key = bind_2(b, window, 0, 8, mr=first, qp=b.qps[0])
        success(b.cq)
        bind_2(b, window, 0, 8, mr=second, qp=b.qps[1])
        wr = SendWR(1, OP.IBV_WR_BIND_MW)
        wr.set_bind_wr(window, MWBindInfo(second, second.buf, 8, 6))
        wr.rkey = key
        b.qps[1].post_send(wr)
        statuses = [wc.status for wc in completions(b.cq, 2)]
        assert statuses == [W.IBV_WC_MW_BIND_ERR, W.IBV_WC_WR_FLUSH_ERR]
        if go == "close":
            refused(errno.EBUSY, first.close)
        else:
            refused(errno.EBUSY, first.rereg, R.IBV_REREG_MR_CHANGE_ACCESS, access=0)
        write(a, key, first.buf, 8)
        success(a.cq)
        second.close()
        window.close()
        first.close()


@pytest.mark.parametrize("cycles", [0, 8, 12, 16, 20, 24, 32, 40, 80])
@pytest.mark.parametrize("change", ["memory", "access"])
def test_a_region_that_changes_while_a_window_is_being_bound(cycles, change):
    """Either the window is bound and the region is as it was, or it is not bound by what was."""
    with two_ends() as (a, b):
        window, region = MW(b.pd, 1), MR(b.pd, PAGE, BINDABLE)
        address, fresh, before = region.buf, bytearray(PAGE), MW(b.pd, 1)
        for length in (8, 0):  # then the device need not read the region's entry
            bind(b, before, 0, length, mr=region)
            success(b.cq)
        bind(b, window, 0, 8, mr=region)
        world().advance(cycles)
        how = (
            (R.IBV_REREG_MR_CHANGE_TRANSLATION, {"addr": fresh})
            if change == "memory"
            else (R.IBV_REREG_MR_CHANGE_ACCESS, {"access": LOCAL_WRITE})
        )
        code = 0
        try:
            region.rereg(how[0], **how[1])
        except PyverbsRDMAError as error:
            code = error.error_code
        assert code in (0, errno.EBUSY)
        if code:
            success(b.cq)
            write(a, window.rkey, address, 8)
            success(a.cq)
        else:
            assert completion(b.cq).status == W.IBV_WC_MW_BIND_ERR
            reset(a, b)
            dead(a, b, window.rkey, address)


@pytest.mark.parametrize("cycles", [0, 6, 10, 14, 20, 40])
def test_a_binding_to_another_region_outlives_the_first_one(cycles):
    with two_ends() as (a, b):
        window, region = MW(b.pd, 1), MR(b.pd, PAGE, BINDABLE)
        bind(b, window, 0, 8, mr=region)
        success(b.cq)
        bind(b, window, 8, 8)
        world().advance(cycles)
        del region
        gc.collect()
        success(b.cq)
        write(a, window.rkey, b.mr.buf + 8, 8)
        success(a.cq)


# -- What is refused at the call.


def test_a_window_is_bound_to_a_region_by_its_iova():
    with two_ends() as (a, b):
        region, window = MREx(b.pd, SIZE, BINDABLE, iova=7 << 60), MW(b.pd, 1)
        refused(errno.EINVAL, bind, b, window, 0, 8, mr=region)  # its address
        bind(b, window, (7 << 60) + 8 - region.buf, 8, mr=region)
        success(b.cq)
        write(a, window.rkey, (7 << 60) + 8, 8)
        success(a.cq)
        refused(errno.EINVAL, bind, b, window, (7 << 60) + SIZE - region.buf, 1, mr=region)


def test_a_binding_of_nothing_by_nobody_is_refused():
    with two_ends() as (_, b):
        refused(errno.EINVAL, b.qp.bind_mw, None, None)
        refused(errno.EINVAL, b.qp.bind_mw, MW(b.pd, 1), None)


def test_a_key_that_the_window_has_had_in_the_same_list_is_refused():
    """As it is when the requests are posted one by one; what stands before is posted."""
    with two_ends() as (_, b):
        window = MW(b.pd, 2)
        key = inc_rkey(window.rkey)

        def binding(next_wr=None):
            wr = SendWR(1, OP.IBV_WR_BIND_MW, next_wr=next_wr)
            wr.set_bind_wr(window, MWBindInfo(b.mr, b.mr.buf, 8, 6))
            wr.rkey = key
            return wr

        bad = SendWR(0, OP.IBV_WR_LOCAL_INV)
        second = SendWR(2, OP.IBV_WR_LOCAL_INV, imm_data=key, next_wr=binding())
        refused(errno.EINVAL, b.qp.post_send, binding(second), bad)
        assert bad.opcode == OP.IBV_WR_BIND_MW
        assert [wc.status for wc in completions(b.cq, 2)] == [W.IBV_WC_SUCCESS] * 2


def test_a_batch_that_is_refused_leaves_keys_as_they_were():
    """All of it is posted, or nothing."""
    with two_ends() as (_, b):
        given = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
        ops = {"comp_mask": given, "send_ops_flags": e.IBV_QP_EX_WITH_BIND_MW}
        init = QPInitAttrEx(e.IBV_QPT_RC, scq=b.cq, rcq=b.cq, cap=QPCap(4, 4), pd=b.pd, **ops)
        window = MW(b.pd, 2)
        key = window.rkey
        with QPEx(b.context, init) as qp:
            join(qp, qp, b.gid)
            qp.wr_start()
            qp.wr_bind_mw(window, inc_rkey(key), MWBindInfo(b.mr, b.mr.buf, 8, 6))
            qp.wr_bind_mw(window, inc_rkey(inc_rkey(key)), MWBindInfo(b.mr, b.mr.buf, SIZE + 1, 6))
            refused(errno.EINVAL, qp.wr_complete)
            assert window.rkey == key
            assert b.cq.poll(1)[0] == 0
            b.mr.rereg(R.IBV_REREG_MR_CHANGE_ACCESS, access=LOCAL_WRITE)
