"""Work requests that change keys: fast registration, local invalidation, SEND with invalidate, memory windows."""

import errno

import pytest
from ends import End, completion, completions, connect, fill, quiet, recv, send, settle, sge, world
from key_ends import (
    ALL,
    OP,
    REG_MR,
    REMOTE_READ,
    SIZE,
    A,
    S,
    W,
    bind,
    entry_of,
    invalidate,
    refused,
    register,
    reset,
    reset_pairs,
    send_inv,
    success,
    two_ends,
    write,
)
from streams import make_rng
from verbena.hdl.abi.cqe import Syndrome
from verbena.hdl.memory.key_operations import KEPT
from verbena.sim.model import rnic
from verbena.sim.ports import Faults
from verbena.sim.world import World
from verbena.sw.verbs.base import inc_rkey
from verbena.sw.verbs.fast_region import FastMR
from verbena.sw.verbs.libibverbs_enums import (
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_type,
    ibv_send_flags,
    ibv_wc_flags,
    ibv_wc_opcode,
)
from verbena.sw.verbs.mr import MR, MW, MWBind, MWBindInfo
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QP, QPAttr
from verbena.sw.verbs.wr import SGE, SendWR

# -- Beside others.


@pytest.mark.exact  # who leaves meanwhile waits for that memory, too
@pytest.mark.parametrize("operations", [1, 3])
def test_others_go_on_while_keys_are_changed(operations):
    """What other queue pairs send passes operations that wait for host memory, of several queue pairs; these are
    complete later, all of them, and what is behind each behind it."""
    with two_ends(qps=operations + 1) as (a, b):
        fill(b, 2)
        windows = [MW(b.pd, 1) for _ in range(operations)]
        inline = ibv_send_flags.IBV_SEND_SIGNALED | ibv_send_flags.IBV_SEND_INLINE
        send(b, OP.IBV_WR_RDMA_WRITE, [sge(b, 0, 8)], remote=(a, 0), flags=inline, qp=b.qps[-1])
        success(b.cq)
        port = world().adapters[1]
        port.set_memory(read_latency=8000, write_latency=32)
        try:
            for number, window in enumerate(windows):
                bind(b, window, 0, 4096, wr_id=number, qp=b.qps[number])
                send(b, OP.IBV_WR_RDMA_WRITE, [sge(b, 0, 8)], remote=(a, 8), wr_id=9, flags=inline, qp=b.qps[number])
            settle(1000)
            for _ in range(5):
                start = world().cycles
                send(b, OP.IBV_WR_RDMA_WRITE, [sge(b, 0, 8)], remote=(a, 0), flags=inline, wr_id=5, qp=b.qps[-1])
                assert success(b.cq).wr_id == 5
                assert world().cycles - start < 4000
            done = completions(b.cq, 2 * operations)
        finally:
            port.set_memory(read_latency=128, write_latency=32)
        assert [wc.status for wc in done] == [W.IBV_WC_SUCCESS] * len(done)
        for number in range(operations):
            own = [wc.wr_id for wc in done if wc.qp_num == b.qps[number].qp_num]
            assert own == [number, 9]
        for window in windows:
            write(a, window.rkey, b.mr.buf + 100, 50)
            success(a.cq)


@pytest.mark.exact  # who leaves meanwhile waits for that memory, too
def test_others_are_received_while_a_key_is_invalidated():
    """A SEND takes away a key whose entry has to be read, which takes long: what comes for another queue pair is
    answered meanwhile, and what comes behind the SEND later."""
    with two_ends(qps=2) as (a, b):
        fill(a, 1)
        region, others = FastMR(b.pd, 1), []
        region.map(b.mr.buf, 4096)
        register(b, region)
        success(b.cq)
        while not others or others[-1].handle % KEPT != region.handle % KEPT:
            others.append(FastMR(b.pd, 1))
        others[-1].map(b.mr.buf, 4096)
        register(b, others[-1])  # it has the other one's place among those that are kept
        success(b.cq)
        write(a, b.mr.rkey, b.mr.buf, 8, qp=a.qps[1])
        success(a.cq)
        recv(b, [sge(b, 100, 8)])
        settle(2000)
        port = world().adapters[1]
        port.set_memory(read_latency=8000, write_latency=32)
        try:
            send_inv(a, region.rkey, [sge(a, 0, 8)], wr_id=1, qp=a.qps[0])
            settle(1500)
            for _ in range(3):
                start = world().cycles
                write(a, b.mr.rkey, b.mr.buf, 8, wr_id=5, qp=a.qps[1])
                assert success(a.cq).wr_id == 5
                assert world().cycles - start < 2000
            assert entry_of(b, region)["valid"]
            write(a, b.mr.rkey, b.mr.buf, 8, wr_id=2, qp=a.qps[0])
            assert [wc.wr_id for wc in completions(a.cq, 2)] == [1, 2]
        finally:
            port.set_memory(read_latency=128, write_latency=32)
        assert not entry_of(b, region)["valid"]
        assert success(b.cq).imm_data == region.rkey


# -- Regions.


@pytest.mark.every_width
def test_a_region_is_valid_from_its_request_to_its_invalidation():
    """Each time another part of the memory, by another key; what is posted behind a request finds it done."""
    with two_ends() as (a, b):
        source, target = bytearray(fill(a, 1)), bytearray(fill(b, 2))
        region = FastMR(b.pd, 9)
        keys = set()
        for number, (offset, length) in enumerate(((0, 4096), (100, 30000), (8191, 2), (4097, 9 * 4096 - 1))):
            region.map(b.mr.buf + offset, length, iova=(number << 20) + offset % 4096)
            register(b, region, flags=0)
            # The region's own side uses it at once, locally.
            recv_wr = SGE(region.buf, min(length, 200), region.lkey)
            wr = SendWR(1, OP.IBV_WR_SEND, num_sge=1, sg=[recv_wr])
            recv(a, [sge(a, 32768, 200)])
            b.qp.post_send(wr)
            success(b.cq, ibv_wc_opcode.IBV_WC_SEND)
            success(a.cq)
            size = min(length, 200)
            assert a.mr.read(size, 32768) == target[offset : offset + size]
            source[32768 : 32768 + size] = target[offset : offset + size]
            assert region.rkey not in keys
            keys.add(region.rkey)
            last = min(length, 1000)
            write(a, region.rkey, region.buf + length - last, last)
            success(a.cq)
            target[offset + length - last : offset + length] = source[:last]
            assert b.mr.read(SIZE, 0) == target
            refused(errno.EBUSY, region.map, b.mr.buf, 4096)
            invalidate(b, region.rkey, wr_id=9)
            assert success(b.cq, ibv_wc_opcode.IBV_WC_LOCAL_INV).wr_id == 9
            assert not entry_of(b, region)["valid"]
        write(a, region.rkey, region.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
        assert b.mr.read(SIZE, 0) == target


@pytest.mark.every_width
def test_a_send_invalidates_before_its_receive_completes():
    with two_ends() as (a, b):
        source = fill(a, 1)
        region = FastMR(b.pd, 16)
        for number, length in enumerate((0, 1, 256, 257, 2000)):
            region.map(b.mr.buf, 8192)
            register(b, region)
            success(b.cq, REG_MR)
            recv(b, [sge(b, 10000, 3000)], wr_id=number)
            write(a, region.rkey, region.buf + 17, 500, flags=0)
            send_inv(a, region.rkey, [sge(a, 5, length)], wr_id=50 + number)
            assert success(a.cq, ibv_wc_opcode.IBV_WC_SEND).wr_id == 50 + number
            got = success(b.cq, ibv_wc_opcode.IBV_WC_RECV)
            assert not entry_of(b, region)["valid"]
            assert (got.wr_id, got.byte_len, got.wc_flags) == (number, length, ibv_wc_flags.IBV_WC_WITH_INV)
            assert got.imm_data == region.rkey
            assert b.mr.read(length, 10000) == source[5 : 5 + length]
            assert b.mr.read(500, 17) == source[:500]
        write(a, region.rkey, region.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR


def test_a_send_that_invalidates_in_vain_is_a_remote_access_error():
    """A region that was registered for good, no key at all, one that is not valid, one of another domain."""
    with two_ends() as (a, b):
        fill(a, 1), fill(b, 2)
        region, other = FastMR(b.pd, 4), FastMR(PD(b.context), 4)
        region.map(b.mr.buf, 4096)
        with End("sim1", 4096, access=31) as c, End("sim0", 4096, access=31) as d:
            pd_qp = c.qp
            connect(c, d)
            foreign = FastMR(c.pd, 4)
            foreign.map(c.mr.buf, 4096)
            register(c, foreign, qp=pd_qp)
            success(c.cq, REG_MR)
            for key in (b.mr.rkey, 0xFFFFFF00, region.rkey, foreign.rkey):
                recv(b, [sge(b, 0, 64)], wr_id=7)
                recv(b, [sge(b, 0, 64)], wr_id=8)
                send_inv(a, key, [sge(a, 0, 8)])
                assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
                first, second = completions(b.cq, 2)
                assert (first.wr_id, first.status) == (7, W.IBV_WC_LOC_ACCESS_ERR)
                assert (second.wr_id, second.status) == (8, W.IBV_WC_WR_FLUSH_ERR)
                assert b.context.get_async_event().event_type == ibv_event_type.IBV_EVENT_QP_ACCESS_ERR
                b.qp._unacked_events = 0
                reset(a, b)
            assert entry_of(c, foreign)["valid"]
        assert entry_of(b, b.mr)["valid"]
        del other


LOCAL_ERRORS = {
    "a region for good": lambda b, region: invalidate(b, b.mr.lkey),
    "no entry": lambda b, region: invalidate(b, 0xFFFF_FF01),
    "beyond the table": lambda b, region: invalidate(b, 0x7FFF_FF01),
    "not valid": lambda b, region: invalidate(b, region.lkey),
    "another variant": lambda b, region: (register(b, region, flags=0), invalidate(b, inc_rkey(region.lkey))),
    "twice registered": lambda b, region: (register(b, region, flags=0), register(b, region)),
}


@pytest.mark.parametrize("case", LOCAL_ERRORS)
def test_local_errors_end_the_queue_pair(case):
    """With a completion, signaled or not; what is posted behind is flushed; the entry stays as it was."""
    with two_ends() as (a, b):
        region = FastMR(b.pd, 4)
        region.map(b.mr.buf, 4096)
        LOCAL_ERRORS[case](b, region)
        send(b, OP.IBV_WR_RDMA_WRITE, [sge(b, 0, 8)], remote=(a, 0), wr_id=44)
        failed, flushed = completions(b.cq, 2)
        assert failed.status == W.IBV_WC_LOC_QP_OP_ERR
        assert failed.vendor_err == (Syndrome.RIGHTS if case == "a region for good" else Syndrome.KEY)
        assert (flushed.wr_id, flushed.status) == (44, W.IBV_WC_WR_FLUSH_ERR)
        assert b.qp.query()[0].qp_state == S.IBV_QPS_ERR
        assert entry_of(b, b.mr)["valid"]
        assert entry_of(b, region)["valid"] == (case in ("another variant", "twice registered"))


def test_a_request_waits_for_all_before_it_and_all_behind_wait_for_it():
    """A WRITE by the key, its invalidation by SEND, and a WRITE by it again, posted at once: the first lands, the last
    does not. On the other side: READs that are under way are done before what they read with becomes invalid.
    """
    with two_ends() as (a, b):
        fill(a, 1)
        target = fill(b, 2)
        region = FastMR(a.pd, 16)
        region.map(a.mr.buf + 4096, 30000)
        register(a, region, flags=0)
        for number in range(8):
            wr = SendWR(number, OP.IBV_WR_RDMA_READ, num_sge=1, sg=[SGE(region.buf + 2000 * number, 2000, region.lkey)])
            wr.set_wr_rdma(b.mr.rkey, b.mr.buf + 3000 * number)
            a.qp.post_send(wr)
        invalidate(a, region.lkey, wr_id=8)
        wr = SendWR(9, OP.IBV_WR_SEND, num_sge=1, sg=[SGE(region.buf, 8, region.lkey)])
        a.qp.post_send(wr)
        done = completions(a.cq, 10)
        assert [wc.wr_id for wc in done] == list(range(10))
        assert [wc.status for wc in done] == [W.IBV_WC_SUCCESS] * 9 + [W.IBV_WC_LOC_PROT_ERR]
        for number in range(8):
            assert a.mr.read(2000, 4096 + 2000 * number) == target[3000 * number :][:2000]


# -- Windows.


@pytest.mark.every_width
def test_a_window_is_a_part_of_its_region_with_rights_of_its_own():
    with two_ends() as (a, b):
        source, target = bytearray(fill(a, 1)), bytearray(fill(b, 2))
        window = MW(b.pd, 1)
        for number, (offset, length) in enumerate(((0, 4096), (4097, 10000), (12287, 2), (SIZE - 1, 1))):
            old = window.rkey
            bind(b, window, offset, length, wr_id=number)
            assert window.rkey == inc_rkey(old)
            assert success(b.cq, ibv_wc_opcode.IBV_WC_BIND_MW).wr_id == number
            size = min(length, 700)
            write(a, window.rkey, b.mr.buf + offset + length - size, size)
            success(a.cq)
            target[offset + length - size : offset + length] = source[:size]
            assert b.mr.read(SIZE, 0) == target
        for address, length, key in (
            (b.mr.buf + SIZE - 1, 2, window.rkey),
            (b.mr.buf + SIZE - 2, 1, window.rkey),
            (b.mr.buf + SIZE - 1, 1, old),
        ):
            write(a, key, address, length)
            assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
            reset(a, b)
        bind(b, window, 0, 4096, REMOTE_READ, flags=0)
        settle()
        write(a, window.rkey, b.mr.buf, opcode=OP.IBV_WR_RDMA_READ, offset=8192)
        success(a.cq)
        write(a, window.rkey, b.mr.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
        assert b.mr.read(SIZE, 0) == target


def test_a_region_with_bound_windows_cannot_be_closed():
    with two_ends() as (a, b):
        mr = MR(b.pd, 8192, 31)
        windows = [MW(b.pd, 1) for _ in range(3)]
        for window in windows:
            bind(b, window, 0, 4096, mr=mr)
            success(b.cq)
        refused(errno.EBUSY, mr.close)
        windows[0].close()
        bind(b, windows[1], 0, 0, mr=mr)
        success(b.cq)
        refused(errno.EBUSY, mr.close)
        bind(b, windows[2], 0, 4096)
        success(b.cq)
        mr.close()
        refused(errno.EBUSY, b.mr.close)
        windows[2].close()
        write(a, windows[2].rkey, b.mr.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR


def test_a_window_that_may_not_be_bound_is_refused_at_the_call():
    with two_ends() as (_, b):
        window, foreign = MW(b.pd, 1), MW(PD(b.context), 1)
        plain, readonly = MR(b.pd, 4096, ALL), MR(b.pd, 4096, A.IBV_ACCESS_MW_BIND)
        theirs = MR(foreign.pd, 4096, 31)
        refused(errno.EINVAL, bind, b, window, 0, 1, mr=plain)
        refused(errno.EINVAL, bind, b, window, 0, 1, 2, mr=readonly)
        refused(errno.EINVAL, bind, b, window, 1, SIZE)
        refused(errno.EINVAL, bind, b, window, -1, 2)
        refused(errno.EINVAL, bind, b, window, 0, 8, 1)
        refused(errno.EINVAL, bind, b, window, 0, 8, flags=8)
        refused(errno.EPERM, bind, b, window, 0, 8, mr=theirs)
        refused(errno.EPERM, bind, b, foreign, 0, 8)
        refused(errno.EINVAL, MW, b.pd, 3)
        bind(b, window, 0, 8, 4, mr=readonly)
        success(b.cq)


def test_what_a_program_writes_into_its_ring_is_checked_by_the_device():
    """Requests that the driver refuses, as a program could write them: each fails, and changes nothing."""
    with two_ends() as (_, b):
        window, foreign = MW(b.pd, 1), MR(PD(b.context), 4096, 31)
        plain, readonly = MR(b.pd, 4096, ALL), MR(b.pd, 4096, A.IBV_ACCESS_MW_BIND | 4)

        class Claim:
            """A region that claims to have what the driver looks for."""

            access, buf, length = 31, 0, 1 << 62

            def __init__(self, mr):
                self.mr, self.pd, self.lkey, self.handle = mr, b.pd, mr.lkey, mr.handle
                self._start, self._region = 0, mr._region

            def _check_open(self):
                pass

        for mr, address, length, access, why in (
            (plain, plain.buf, 8, 2, Syndrome.RIGHTS),
            (readonly, readonly.buf, 8, 2, Syndrome.RIGHTS),
            (foreign, foreign.buf, 8, 2, Syndrome.PD),
            (b.mr, b.mr.buf, SIZE + 1, 2, Syndrome.RANGE),
            (b.mr, b.mr.buf - 1, 2, 2, Syndrome.RANGE),
            (b.mr, b.mr.buf + SIZE, 1, 2, Syndrome.RANGE),
            (b.mr, 0, 1, 2, Syndrome.RANGE),
            (b.mr, b.mr.buf, (1 << 48) + 8, 2, Syndrome.RANGE),
            (b.mr, b.mr.buf, 1 << 48, 2, Syndrome.RANGE),
            (b.mr, b.mr.buf, 1 << 61, 2, Syndrome.RANGE),
        ):
            before, key = entry_of(b, window), window.rkey
            b.qp.bind_mw(window, MWBind(MWBindInfo(Claim(mr), address, length, access), 0))
            failed = completion(b.cq)
            assert (failed.status, failed.vendor_err) == (W.IBV_WC_MW_BIND_ERR, why)
            assert entry_of(b, window) == before
            window.rkey = key
            b.qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
            with End("sim0", 4096) as a:
                connect(a, b)


def test_a_program_of_an_unreliable_connection_sends_no_invalidation(monkeypatch):
    """The driver refuses it, and so does the device: its packets are those of RC alone."""
    monkeypatch.setattr(QP, "_sends_invalidate", True)
    options = {"access": 31, "qp_type": ibv_qp_type.IBV_QPT_UC}
    with End("sim0", SIZE, **options) as a, End("sim1", SIZE, **options) as b:
        connect(a, b)
        sent = a.context.query_counters("tx_packets")
        send_inv(a, b.mr.rkey, [sge(a, 0, 8)])
        failed = completion(a.cq)
        assert (failed.status, failed.vendor_err) == (W.IBV_WC_LOC_QP_OP_ERR, Syndrome.OPCODE)
        assert a.context.query_counters("tx_packets") == sent
        assert a.qp.qp_state == S.IBV_QPS_SQE


def test_bad_calls():
    with two_ends() as (_, b):
        region = FastMR(b.pd, 2)
        refused(errno.EINVAL, register, b, region)
        refused(errno.EINVAL, region.map, b.mr.buf + 1, 8192)
        refused(errno.EINVAL, region.map, b.mr.buf, 4096, iova=1)
        refused(errno.EINVAL, FastMR, b.pd, 0)
        region.map(b.mr.buf, 8192)
        refused(errno.EINVAL, register, b, region, 2)
        refused(errno.EINVAL, register, b, region, key=region.lkey + 256)
        refused(errno.EINVAL, invalidate, b, 1, flags=8)
        foreign = FastMR(PD(b.context), 1)
        foreign.map(b.mr.buf, 10)
        refused(errno.EPERM, register, b, foreign)


# -- What comes between.


def test_unreliable_connections_change_keys_too():
    with (
        End("sim0", SIZE, access=31, qp_type=ibv_qp_type.IBV_QPT_UC) as a,
        End("sim1", SIZE, access=31, qp_type=ibv_qp_type.IBV_QPT_UC) as b,
    ):
        connect(a, b)
        source = fill(a, 1)
        window = MW(b.pd, 1)
        bind(b, window, 0, 4096)
        success(b.cq)
        write(a, window.rkey, b.mr.buf + 5)
        success(a.cq)
        settle()
        assert b.mr.read(300, 5) == source[:300]
        bind(b, window, 0, 0)
        success(b.cq)
        fill(a, 3)
        write(a, window.rkey, b.mr.buf + 5)
        success(a.cq)
        settle()
        assert b.mr.read(300, 5) == source[:300]
        refused(errno.EOPNOTSUPP, send_inv, a, 1, [sge(a, 0, 8)])


@pytest.mark.parametrize("cycles", [0, 20, 60, 150, 250, 400])
def test_reset_in_the_midst_of_it(cycles):
    """Whatever has come of it, the region can be closed and its key is dead, and the queue pair begins anew."""
    with two_ends() as (a, b):
        fill(a, 1)
        window = MW(b.pd, 1)
        for number in range(4):
            bind(b, window, 0, 4096, wr_id=number)
        settle(cycles)
        reset(a, b)
        window.close()
        b.mr.rereg(4, access=31)
        write(a, window.rkey, b.mr.buf)
        assert completion(a.cq).status == W.IBV_WC_REM_ACCESS_ERR
        reset(a, b)
        other = MW(b.pd, 1)
        bind(b, other, 0, 4096)
        success(b.cq)
        write(a, other.rkey, b.mr.buf)
        success(a.cq)


@pytest.mark.parametrize("cycles", [0, 60, 200, 400])
def test_error_in_the_midst_of_it_flushes(cycles):
    with two_ends() as (_, b):
        window = MW(b.pd, 1)
        for number in range(6):
            bind(b, window, 0, 4096, wr_id=number)
        settle(cycles)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
        done = completions(b.cq, 6)
        assert [wc.wr_id for wc in done] == list(range(6))
        states = [wc.status for wc in done]
        good = states.count(W.IBV_WC_SUCCESS)
        assert states == [W.IBV_WC_SUCCESS] * good + [W.IBV_WC_WR_FLUSH_ERR] * (6 - good)
        quiet(b.cq)


def test_a_queue_that_is_drained_begins_nothing():
    with two_ends() as (a, b):
        window = MW(b.pd, 1)
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_SQD), ibv_qp_attr_mask.IBV_QP_STATE)
        bind(b, window, 0, 4096)
        quiet(b.cq)
        assert not entry_of(b, window)["valid"]
        b.qp.modify(QPAttr(qp_state=S.IBV_QPS_RTS), ibv_qp_attr_mask.IBV_QP_STATE)
        success(b.cq)
        fill(a, 1)
        write(a, window.rkey, b.mr.buf)
        success(a.cq)


def test_what_changes_keys_takes_no_credits():
    """Credits are counted from the MSN, which counts messages alone."""
    with two_ends() as (a, b):
        window = MW(a.pd, 1)
        for _ in range(24):
            recv(b, [sge(b, 0, 8)])

        def cycles():
            start = world().cycles
            for _ in range(8):
                send(a, OP.IBV_WR_SEND, [sge(a, 0, 8)])
            assert [wc.status for wc in completions(a.cq, 8)] == [W.IBV_WC_SUCCESS] * 8
            return world().cycles - start

        cycles()  # with cold caches, and without a credit known
        before, naks = cycles(), a.context.query_counters("rx_naks")
        for number in range(30):
            bind(a, window, 0, 4096 - number)
            success(a.cq)
        assert cycles() < 1.5 * before
        assert a.context.query_counters("rx_naks") == naks


@pytest.mark.slow
def test_queue_pairs_that_leave_their_slots():
    """Binds, writes and unbinds in turns, on four queue pairs, while they come and go."""
    rng = make_rng()
    with World(2, rnic(swap_every=1024), seed=5) as restless:
        sizes = {"qps": 4, "access": 31, "world": restless}
        with End("sim0", SIZE, **sizes) as a, End("sim1", SIZE, **sizes) as b:
            connect(a, b, mtu=256)
            run_traffic(a, b, rng, 40)


@pytest.mark.every_width
@pytest.mark.parametrize("rounds", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_traffic(rounds):
    """Windows are bound, used and bound anew under the traffic of other queue pairs."""
    with two_ends(qps=4) as (a, b):
        run_traffic(a, b, make_rng(), rounds)


def run_traffic(a, b, rng, rounds):
    def wait(cq, count):
        found = []
        for _ in range(4000):
            found += cq.poll(count - len(found))[1]
            if len(found) == count:
                return found
        raise AssertionError(f"{count} wanted: {found}")

    source, target = bytearray(fill(a, 1)), bytearray(fill(b, 2))
    windows = [MW(b.pd, 1) for _ in range(4)]
    for _ in range(rounds):
        slots = rng.sample(range(4), rng.randrange(1, 5))
        places = {slot: (16384 * slot + rng.randrange(5000), rng.randrange(1, 9000)) for slot in slots}
        for slot in slots:
            offset, length = places[slot]
            if rng.random() < 0.5:
                bind(b, windows[slot], 0, 0, qp=b.qps[slot], flags=0)
            bind(b, windows[slot], offset, length, qp=b.qps[slot])
        assert all(wc.status == W.IBV_WC_SUCCESS for wc in wait(b.cq, len(slots)))
        for slot in slots:
            offset, length = places[slot]
            here = rng.randrange(30000)
            wr = SendWR(slot, OP.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(a.mr.buf + here, length, a.mr.lkey)])
            wr.set_wr_rdma(windows[slot].rkey, b.mr.buf + offset)
            a.qps[slot].post_send(wr)
            target[offset : offset + length] = source[here : here + length]
        assert all(wc.status == W.IBV_WC_SUCCESS for wc in wait(a.cq, len(slots)))
        assert b.mr.read(SIZE, 0) == target


@pytest.mark.every_width
@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_a_wire_that_loses_frames(rounds):
    """A region is registered, written to by the peer, and taken away by a SEND; beside it, on each side, one is
    registered and invalidated behind WRITEs that read from it. Queues go back all the time. Each request takes effect
    once, and where it stands: so all WRITEs succeed, and each registration finds the region not valid.
    """
    rng = make_rng()
    with two_ends(qps=2, sge=1) as (a, b):
        reset_pairs(a, b, timeout=6, min_rnr_timer=1)
        source, target = fill(a, 1), bytearray(fill(b, 2))
        far, near = FastMR(b.pd, 8), FastMR(a.pd, 8)
        world().set_faults(Faults(lose=0.03, corrupt=0.02, damage=0.02, duplicate=0.03, reorder=0.03))
        for number in range(rounds):
            far.map(b.mr.buf, 16384)
            register(b, far)
            success(b.cq, REG_MR)
            recv(b, [sge(b, 60000, 100)], wr_id=number)
            near.map(a.mr.buf, 32768)
            register(a, near, flags=0, qp=a.qps[1])
            for _ in range(rng.randrange(1, 4)):
                length, here, there = rng.randrange(1, 2000), rng.randrange(30000), rng.randrange(14000)
                write(a, far.rkey, far.buf + there, length, flags=0, offset=here)
                target[there : there + length] = source[here : here + length]
                length, here, there = rng.randrange(1, 2000), rng.randrange(30000), 20000 + rng.randrange(14000)
                sg = [SGE(near.buf + here, length, near.lkey)]
                wr = SendWR(0, OP.IBV_WR_RDMA_WRITE, num_sge=1, sg=sg, send_flags=0)
                wr.set_wr_rdma(b.mr.rkey, b.mr.buf + there)
                a.qps[1].post_send(wr)
                target[there : there + length] = source[here : here + length]
            invalidate(a, near.lkey, qp=a.qps[1], wr_id=2)
            send_inv(a, far.rkey, [sge(a, 0, 50)], wr_id=1)
            done = completions(a.cq, 2)
            assert [wc.status for wc in done] == [W.IBV_WC_SUCCESS] * 2
            assert {wc.wr_id for wc in done} == {1, 2}
            got = success(b.cq)
            assert (got.wr_id, got.imm_data) == (number, far.rkey)
            target[60000:60050] = source[:50]
            assert b.mr.read(SIZE, 0) == target
            assert not entry_of(b, far)["valid"]
            assert not entry_of(a, near)["valid"]
        world().set_faults(Faults())
