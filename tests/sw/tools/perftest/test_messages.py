"""Where messages lie, and their work requests."""

from types import SimpleNamespace

import pytest
from verbena.sw.tools.exchange.perftest import Key
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.messages import Layout, Messages
from verbena.sw.tools.perftest.options import Options
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags as F
from verbena.sw.verbs.libibverbs_enums import ibv_wr_opcode as O
from verbena.sw.verbs.wr import SGE


def end(header):
    return SimpleNamespace(
        sge=lambda offset, length: SGE(0x1000 + offset, length, 77),
        header=header,
        addressed=lambda wr, index: wr.set_wr_ud("the way", index, 5) if header else None,
    )


def messages(name, header=0, **given):
    kind = KINDS[name]
    options = Options(**given).resolved(kind)
    layout = Layout(options.size, options.qps, header=header)
    keys = [Key(i, 0, bytes(16), rkey=100 + i, vaddr=0x100000 * (i + 1)) for i in range(options.qps)]
    return Messages(end(header), kind, options, layout, keys)


@pytest.mark.parametrize(
    ("size", "turns"),
    [
        (1, [0, 64, 128]),
        (64, [0, 64, 128]),
        (65, [0, 128, 256]),
        (2048, [0, 2048, 0]),
        (2049, [0, 0, 0]),
        (65536, [0, 0, 0]),
    ],
)
def test_small_messages_go_around_in_the_buffer(size, turns):
    layout = Layout(size, 1)
    assert [layout.turn(number) for number in range(3)] == turns
    assert all(layout.turn(number) + size <= layout.buffer for number in range(200))


def test_messages_turn_where_the_buffer_ends():
    layout = Layout(100, 1)
    assert [layout.turn(number) for number in (30, 31, 32, 33)] == [3840, 3968, 0, 128]


def test_buffers_of_all_queue_pairs_lie_side_by_side():
    layout = Layout(5000, 3, cycle_buffer=4096)
    places = [layout.source(i) for i in range(3)] + [layout.target(i) for i in range(3)]
    assert places == [0, 5000, 10000, 15000, 20000, 25000]
    assert layout.size == 30000
    assert Layout(8, 2, cycle_buffer=65536).size == 4 * 65536


def test_a_write():
    wr = messages("write_bw", size=100, qps=2, iterations=50).send(1, 3, signaled=False)
    assert (wr.wr_id, wr.opcode, wr.send_flags) == (3, O.IBV_WR_RDMA_WRITE, 0)
    assert (wr.sg_list[0].addr, wr.sg_list[0].length, wr.sg_list[0].lkey) == (0x1000 + 4096 + 384, 100, 77)
    assert (wr.rkey, wr.remote_addr) == (101, 0x200000 + 384)


def test_signals_and_inline_data():
    assert messages("write_bw", size=96, inline=96).send(0, 0).send_flags == F.IBV_SEND_SIGNALED | F.IBV_SEND_INLINE
    assert messages("write_bw", size=97, inline=96).send(0, 0).send_flags == F.IBV_SEND_SIGNALED
    assert messages("read_bw", size=8, inline=96).send(0, 0).send_flags == F.IBV_SEND_SIGNALED


def test_a_latency_test_uses_one_place():
    wr = messages("write_lat", size=8).send(0, 5)
    assert (wr.sg_list[0].addr, wr.remote_addr) == (0x1000, 0x100000)
    assert messages("send_lat", size=8).receive(0, 5).sg_list[0].addr == 0x1000 + 4096


def test_atomics():
    wr = messages("atomic_bw").send(0, 2)
    assert (wr.opcode, wr.compare_add, wr.remote_addr) == (O.IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0x100000 + 128)
    wr = messages("atomic_lat", compare_and_swap=True).send(0, 2)
    assert (wr.opcode, wr.compare_add, wr.swap) == (O.IBV_WR_ATOMIC_CMP_AND_SWP, 0, 0)


def test_opcodes():
    assert messages("send_bw").send(0, 0).opcode == O.IBV_WR_SEND
    assert messages("read_lat").send(0, 0).opcode == O.IBV_WR_RDMA_READ


def test_a_receive():
    wr = messages("send_bw", size=100, qps=2, iterations=50).receive(1, 33)
    assert (wr.wr_id, wr.sg_list[0].addr, wr.sg_list[0].length) == (33, 0x1000 + 3 * 4096 + 128, 100)


def test_datagrams_have_room_for_their_headers():
    made = messages("send_bw", header=40, size=100, qps=2, connection="UD")
    wr = made.receive(1, 3)
    assert (wr.sg_list[0].addr, wr.sg_list[0].length) == (0x1000 + 3 * 4096 + 3 * 192, 140)
    wr = made.send(1, 3)
    assert (wr.sg_list[0].addr, wr.sg_list[0].length) == (0x1000 + 4096 + 3 * 192, 100)
    assert (wr.ah, wr.remote_qpn) == ("the way", 1)
    assert Layout(4096, 1, header=40).buffer == 4136
