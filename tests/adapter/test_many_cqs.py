"""More completion queues than have a slot on chip: each queue pair has two of its own, on a wire that loses frames."""

import errno
import random

import pytest
from ends import SEND, WRITE, completion, connect, fill, recv, send, settle, sge, world
from verbena.hdl.abi.registers import REGISTERS
from verbena.sim.pair import End
from verbena.sim.ports import Faults
from verbena.sw.verbs.comp_channel import CompChannel
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.qp import QP, QPCap, QPInitAttr

SIZE = 64


class Apart(End):
    """An end whose queue pairs have a send and a receive CQ each, of few entries: ``sent`` and ``got``. Each has a part
    of the region to send, and one to receive.
    """

    def __init__(self, name, qps):
        super().__init__(name, 2 * SIZE * qps, qps=0)
        table = self.context._adapter.cq_table
        table._turn = [(1 << table.log_size) // table.slots - 1] * table.slots  # the largest numbers, then the smallest
        table._shared[qps:] = [table.slots] * (table.slots - qps)  # so that each slot that they have is of two of them
        self.channel = CompChannel(self.context)
        self.sent = [CQ(self.context, 4) for _ in range(qps)]
        self.got = [CQ(self.context, 4, channel=self.channel) for _ in range(qps)]
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        self.qps = [
            QP(self.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=sent, rcq=got, cap=cap, sq_sig_all=0))
            for sent, got in zip(self.sent, self.got)
        ]

    def receive(self, i, wr_id):
        recv(self, [sge(self, SIZE * i, SIZE)], wr_id=wr_id, qp=self.qps[i])

    def send(self, i, wr_id):
        send(self, SEND, [sge(self, SIZE * (len(self.qps) + i), SIZE)], wr_id=wr_id, qp=self.qps[i])


@pytest.mark.every_width
@pytest.mark.parametrize("count", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_each_queue_pair_has_queues_of_its_own(count):
    """64 queue pairs and 129 CQs an adapter, where there are slots for 64, or half as many of all: no completion is
    lost, none comes twice, and each CQ that was armed has its event.
    """
    rng = random.Random(3)
    with Apart("sim0", count) as a, Apart("sim1", count) as b:
        assert a.context._adapter.max_cq == 16384
        ends = ((a, b, fill(a, 1)), (b, a, fill(b, 2)))
        connect(a, b)
        world().set_faults(Faults(lose=0.002))
        before = {end: end.context.query_counters("cq_fetches", "cq_overruns") for end in (a, b)}
        order = list(range(count))
        for number in range(2):
            armed = set(rng.sample(order, count // 3))
            rng.shuffle(order)
            for _, far, _ in ends:
                for i in order:
                    far.receive(i, number)
                for i in armed:
                    far.got[i].req_notify()
            rng.shuffle(order)
            for i in order:
                for near, _, _ in ends:
                    near.send(i, number)
            for near, far, _ in ends:
                for i in order:
                    sent, got = completion(near.sent[i]), completion(far.got[i])
                    assert (sent.status, sent.wr_id, sent.qp_num) == (0, number, near.qps[i].qp_num)
                    assert (got.status, got.wr_id, got.qp_num, got.byte_len) == (0, number, far.qps[i].qp_num, SIZE)
                told = [far.channel.get_cq_event(None) for _ in armed]
                assert {id(cq) for cq in told} == {id(far.got[i]) for i in armed}
                for cq in told:
                    cq.ack_events(1)
        world().set_faults(Faults())
        for near, far, content in ends:
            now = near.context.query_counters("cq_fetches", "cq_overruns")
            assert now["cq_fetches"] - before[near]["cq_fetches"] > 2 * count
            assert now["cq_overruns"] == before[near]["cq_overruns"]
            assert far.mr.read(SIZE * count, 0) == content[SIZE * count :]


@pytest.mark.parametrize("count", [16, pytest.param(40, marks=pytest.mark.slow)])
def test_rings_that_change_while_their_queue_has_no_slot(count):
    """Two CQs a slot: each gets another ring, of another size, and what was complete before is not lost."""
    with Apart("sim0", count) as a, Apart("sim1", count) as b:
        connect(a, b)
        for number in range(3):
            for i in range(count):
                b.receive(i, number)
                a.send(i, number)
            settle(500 * count)
            for i in range(count):
                b.got[i].resize(cqe := 1 << (i + number) % 5)
                assert b.got[i].cqe == cqe
                got = completion(b.got[i])
                assert (got.status, got.wr_id) == (0, number)
                assert completion(a.sent[i]).status == 0


def test_a_table_that_points_outside_memory():
    """A CQ that has no slot cannot be made, and the error says why; what has its slot goes on."""
    with End("sim0", 4096) as a, End("sim1", 4096) as b:
        connect(a, b)
        adapter = a.context._adapter
        adapter.control.write("cqc_high", 0x7777)
        with pytest.raises(PyverbsRDMAError, match="BUS_ERROR") as caught:
            CQ(a.context, 4)
        assert caught.value.error_code == errno.EIO
        send(a, WRITE, [sge(a, 0, 8)], remote=(b, 0))
        assert completion(a.cq).status == 0
        adapter.port.write32(REGISTERS["cqc_high"].offset, adapter.cq_table.bus >> 32)
        CQ(a.context, 4).close()


@pytest.mark.parametrize("count", [130, pytest.param(300, marks=pytest.mark.slow)])
def test_so_many_can_be_made(count):
    """More than two a slot."""
    with Context(name="sim0") as context:
        cqs = [CQ(context, 1) for _ in range(count)]
        assert len({cq._number for cq in cqs}) == count
