"""The node of the smallest board, which only responds, without atomics, at its RGMII pins against scapy and the
driver.
"""

import errno
import struct
from dataclasses import replace

import pytest
from node_host import NodeHost
from rocegram import rc_frame, with_icrc
from streams import make_rng
from test_node import ACK, HERE, NODE, open_node, poll, requester, told
from verbena.boards import port as board_port
from verbena.boards.build import find_boards
from verbena.boards.port import BoardPort
from verbena.boards.sim import design
from verbena.sw.verbs.libibverbs_enums import ibv_atomic_cap, ibv_qp_state, ibv_wr_opcode
from verbena.sw.verbs.pyverbs_error import PyverbsRDMAError
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

CLOCK = 50_000_000
INVALID_REQUEST = 0x61


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(board_port, "PAUSE", 0)
    board = find_boards()["ecpix5-45f"]
    built = design(config=replace(board.config, atomics=False), memory_size=board.memory_size, clock=CLOCK)
    # Few cycles are simulated, so what the compiler would take counts for more.
    return NodeHost(make_rng().randrange(1 << 31), built=replace(built, optimize="-O0"), clock=CLOCK)


@pytest.mark.slow
def test_it_responds_and_nothing_else(host):
    """WRITE, READ and a SEND reach its memory; a response that nobody asked for has no effect; an atomic is refused;
    the driver knows that, and refuses to post a send; QPs go through all their states."""
    context, _, mr, cq, qp = held = open_node(BoardPort("node", host))
    assert context.query_device().atomic_caps == ibv_atomic_cap.IBV_ATOMIC_NONE
    qp.post_recv(RecvWR(5, 1, [SGE(mr.buf + 2048, 1024, mr.lkey)]))

    exchange, reth = requester(host, qp, mr)
    data = host.rng.randbytes(1000)
    for psn in range(1000, 1030, 3):
        assert exchange(psn, 0x0A, reth(8, 1000) + data) == (0x11, ACK, b"")  # WRITE
        # A READ response and an ACK: payload and all are thrown away.
        host.node.send(with_icrc(rc_frame(HERE, NODE, qp.qp_num, 500, 0x10, bytes(4) + data)))
        host.node.send(with_icrc(rc_frame(HERE, NODE, qp.qp_num, 500, 0x11, bytes(4))))
        assert exchange(psn + 1, 0x0C, reth(8, 1000)) == (0x10, ACK, data)  # READ
        assert exchange(psn + 2, 0x0A, reth(8, 0))[:2] == (0x11, ACK)
        data = host.rng.randbytes(1000)
    assert exchange(1030, 0x04, b"hello, node!") == (0x11, ACK, b"")  # SEND
    wc = poll(cq)
    assert (wc.wr_id, wc.status, wc.byte_len) == (5, 0, 12)
    assert mr.read(12, 2048) == b"hello, node!"
    assert context.query_counters("drop_response")["drop_response"] == 20

    with pytest.raises(PyverbsRDMAError) as refused:
        qp.post_send(SendWR(6, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)]))
    assert refused.value.error_code == errno.EOPNOTSUPP
    attr, _ = qp.query()
    assert attr.qp_state == ibv_qp_state.IBV_QPS_RTS
    assert attr.rq_psn == 1031
    # What is refused ends the QP, and a new one takes its place.
    old = mr.read(8, 0)
    fetch_add = struct.pack(">QIQQ", mr.buf, mr.rkey, 5, 0)
    host.node.send(with_icrc(rc_frame(HERE, NODE, qp.qp_num, 1031, 0x14, fetch_add)))
    assert told(host.next(host.roce))[2][0] == INVALID_REQUEST
    assert mr.read(8, 0) == old
    assert qp.query()[0].qp_state == ibv_qp_state.IBV_QPS_ERR
    for each in reversed(held):
        each.close()
