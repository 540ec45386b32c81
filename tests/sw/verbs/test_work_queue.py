"""Rings and their entries."""

import errno
import struct

import pytest
from verbena.sw import host_memory
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp_attr import QPCap
from verbena.sw.verbs.work_queue import WorkQueue, recv_wqe, send_wqe
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR


@pytest.mark.parametrize(("size", "log_size"), [(1, 0), (2, 1), (3, 2), (1024, 10), (16384, 14)])
def test_a_ring_is_contiguous_and_on_a_page(size, log_size):
    ring = WorkQueue(host_memory, size, 6)
    assert (ring.log_size, ring.size, ring.free) == (log_size, 1 << log_size, 1 << log_size)
    assert ring.bus % 4096 == 0
    pages = host_memory.bus_pages(ring.address, ring.size << 6)
    assert pages == [ring.bus + 4096 * i for i in range(len(pages))]
    ring.close()
    with pytest.raises(ValueError, match="not allocated"):
        ring.close()


def test_entries_and_ids_go_round():
    ring = WorkQueue(host_memory, 4, 4)
    for i in range(70_000):
        ring.put(i, struct.pack("<I", i))
        if i >= 65_530 and i < 65_540:
            assert host_memory.read(ring.address + 16 * (i & 3), 16) == struct.pack("<IIII", i, 0, 0, 0)
        if i % 2:
            assert ring.free == 2
            assert ring.complete(i & 0xFFFF) == i
            assert ring.free == 4
    ring.put(1, b"")
    ring.reset()
    assert (ring.free, ring.producer, ring.wr_ids) == (4, 0, [0] * 4)
    ring.close()


RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
CAP = QPCap(max_send_sge=2, max_recv_sge=2, max_inline_data=32)


def test_send_entry():
    wr = SendWR(9, 1, 2, imm_data=0xAABBCCDD, sg=[SGE(1, 2, 3), SGE((1 << 64) - 1, 5, 6)], send_flags=1)
    wr.set_wr_rdma(0xFFFFFFFF, (1 << 64) - 1)
    entry = send_wqe(wr, RC, CAP, False, host_memory)
    assert entry[:32] == struct.pack("<BBBBIQII", 1, 1, 2, 0, 0xAABBCCDD, (1 << 64) - 1, 0xFFFFFFFF, 7) + bytes(8)
    assert entry[32:] == struct.pack("<QIIQII", 1, 2, 3, (1 << 64) - 1, 5, 6)
    assert send_wqe(wr, RC, CAP, True, host_memory)[1] == 3


def test_read_entry():
    wr = SendWR(9, 4, 2, sg=[SGE(1, 2, 3), SGE(4, 5, 6)], send_flags=1)
    wr.set_wr_rdma(7, 8)
    entry = send_wqe(wr, RC, CAP, False, host_memory)
    assert entry[:32] == struct.pack("<BBBBIQII", 4, 1, 2, 0, 0, 8, 7, 7) + bytes(8)
    assert entry[32:] == struct.pack("<QIIQII", 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("opcode", [5, 6])
def test_atomic_entry(opcode):
    wr = SendWR(9, opcode, 1, sg=[SGE(1, 8, 3)], send_flags=2)
    wr.set_wr_atomic(7, 16, (1 << 64) - 2, 5)
    entry = send_wqe(wr, RC, CAP, False, host_memory)
    assert entry[:32] == struct.pack("<BBBBIQII", opcode, 2, 1, 0, 0, 16, 7, 8) + bytes(8)
    assert entry[32:] == struct.pack("<QIIQQ", 1, 8, 3, (1 << 64) - 2, 5)


@pytest.mark.parametrize(
    ("opcode", "lengths", "address", "flags"),
    [(5, [7], 16, 2), (5, [9], 16, 2), (6, [4, 4], 16, 2), (6, [8], 12, 2), (6, [8], 16, 8), (4, [8], 16, 8)],
)
def test_what_no_read_or_atomic_is(opcode, lengths, address, flags):
    wr = SendWR(9, opcode, len(lengths), sg=[SGE(0, length, 3) for length in lengths], send_flags=flags)
    wr.set_wr_atomic(7, address, 1, 2)
    with pytest.raises(PyverbsRDMAError) as caught:
        send_wqe(wr, RC, CAP, False, host_memory)
    assert caught.value.error_code == errno.EINVAL


# LOCAL_INV 7 and BIND_MW 8 have WQEs of another kind; SEND_WITH_INV 9 is of both types; TSO 10 of neither.
@pytest.mark.parametrize(
    ("opcode", "of_rc", "of_uc", "of_ud"),
    [
        *[(opcode, None, None, errno.EINVAL) for opcode in (0, 1)],
        *[(opcode, None, None, None) for opcode in (2, 3)],
        *[(opcode, None, errno.EINVAL, errno.EINVAL) for opcode in (4, 5, 6)],
        *[(opcode, errno.EOPNOTSUPP, errno.EOPNOTSUPP, errno.EINVAL) for opcode in (7, 8)],
        (9, None, None, errno.EINVAL),
        *[(opcode, errno.EOPNOTSUPP, errno.EINVAL, errno.EINVAL) for opcode in (14, 15)],
        *[(opcode, errno.EINVAL, errno.EINVAL, errno.EINVAL) for opcode in (10, 99)],
    ],
)
def test_which_operations_a_type_has(opcode, of_rc, of_uc, of_ud):
    for qp_type, code in ((RC, of_rc), (UC, of_uc), (UD, of_ud)):
        wr = SendWR(9, opcode, 1, sg=[SGE(0, 8, 3)], send_flags=2)
        if code is None:
            assert send_wqe(wr, qp_type, CAP, False, host_memory)[0] == opcode
        else:
            with pytest.raises(PyverbsRDMAError, match="opcode") as caught:
                send_wqe(wr, qp_type, CAP, False, host_memory)
            assert caught.value.error_code == code


def test_the_entry_of_a_datagram():
    """Where it goes stands where a connected one has the remote address and key, and in bytes that this leaves free."""
    wr = SendWR(9, 3, 1, imm_data=0xAABBCCDD, sg=[SGE(1, 2, 3)], send_flags=2)
    way = {"traffic_class": 0x20, "remote_address": 5 << 32 | 64 << 24 | 77, "rkey": 0x0A000002}
    entry = send_wqe(wr, UD, CAP, False, host_memory, way=way | {"dest_mac": 0x020304050607, "source_port": 0xC123})
    assert entry[:24] == struct.pack("<BBBBIIIII", 3, 2, 1, 0x20, 0xAABBCCDD, 64 << 24 | 77, 5, 0x0A000002, 2)
    assert entry[24:32] == struct.pack("<Q", 0xC123 << 48 | 0x020304050607)


def test_limits():
    sges = [SGE(0, 0, 0)] * 3
    for function in (
        lambda: send_wqe(SendWR(1, 2, 3, sg=sges), RC, CAP, False, host_memory),
        lambda: send_wqe(SendWR(1, 2, 3, sg=sges, send_flags=8), RC, CAP, False, host_memory),
        lambda: recv_wqe(RecvWR(1, 3, sges), CAP),
    ):
        with pytest.raises(PyverbsRDMAError, match="3 SGEs") as caught:
            function()
        assert caught.value.error_code == errno.EINVAL
    assert recv_wqe(RecvWR(1), CAP) == b""
    assert len(send_wqe(SendWR(1, 2, 1, sg=[SGE(0, 1 << 31, 0)]), RC, CAP, False, host_memory)) == 48


def test_an_id_is_read_before_its_slot_is_free():
    """As soon as an entry is complete another thread may post into its slot."""

    class Contended(WorkQueue):
        @property
        def completed(self):
            return self._completed

        @completed.setter
        def completed(self, value):
            self._completed = value
            if value:
                self.put(1000 + value, b"")

    ring = Contended(host_memory, 4, 6)
    for number in range(4):
        ring.put(number, b"")
    assert [ring.complete(index) for index in range(8)] == [0, 1, 2, 3, 1001, 1002, 1003, 1004]
    ring.close()
