"""A node at its RGMII pins and an adapter on one network, both driven by the same driver."""

import pytest
from verbena.boards import sim
from verbena.boards.exercise import exercise
from verbena.hdl.abi.wqe import SendOpcode
from verbena.sim.pair import End, connect
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.libibverbs_enums import ibv_wc_status
from verbena.sw.verbs.wr import SGE, SendWR

pytestmark = pytest.mark.slow  # the node is compiled first


def test_share_of_the_line(network):
    """WRITE, READ and fetch-and-add are right, and WRITEs of 4096 bytes fill the line."""
    share = exercise("sim0", "sim1", messages=24)
    counters = network.node.counters
    assert (counters["from_bad"], counters["from_gap"], counters["from_short"]) == (0, 0, 0)
    assert 0.95 <= share <= 1


def test_counters(network):
    """What was on the line is what node and adapter tell of it."""
    context = Context(name="sim0")
    port = context._adapter.port
    line, told = network.node.counters, port.node_counters()
    # The answer to the question itself is one more.
    assert told["mac_tx_frames"] + 1 == network.node.counters["from_frames"]
    assert told["mac_rx_frames"] == line["to_frames"] + 1
    assert context.query_counters("tx_naks")["tx_naks"] == 0


def test_idle(network):
    """A node that waits for an answer is not idle; to ask whether it is makes it none the less so."""
    with End("sim0", 4096, depth=16, cqe=32) as node, End("sim1", 4096, depth=16, cqe=32) as far:
        connect(node, far, timeout=8, retry_cnt=1)
        port = node.context._adapter.port
        port.advance(5000)
        assert not port.advance(1)
        far.qp.close()
        wr = SendWR(0, SendOpcode.RDMA_WRITE, num_sge=1, sg=[SGE(node.mr.buf, 8, node.mr.lkey)])
        wr.set_wr_rdma(far.mr.rkey, far.mr.buf)
        node.qp.post_send(wr)
        assert port.advance(5000)
        while port.advance(50_000):
            pass
        assert node.cq.poll(1)[1][0].status == ibv_wc_status.IBV_WC_RETRY_EXC_ERR


def test_a_neighbour_is_heard_beside_the_driver(network):
    """Each of its ARP requests is answered, though Etherbone packets come one behind the other."""
    mac, ip = 0x0256420000CC, 0xC0A801CC
    port, tap = sim.NodePort(network, "sim0"), network.world.tap(mac)
    source, anybody = mac.to_bytes(6, "big"), b"\xff" * 6
    request = anybody + source + b"\x08\x06" + sim.ARP.pack(1, 0x0800, 6, 4, 1, source, ip, bytes(6), sim.NODE_IP)
    for _ in range(5):
        tap.send(request.ljust(60, b"\0"))
        port.node_counters()
    network.run(5000)
    replies = []
    while (frame := tap.receive()) is not None:
        replies.append(frame[:22])
    node = sim.NODE_MAC.to_bytes(6, "big")
    assert replies == [source + node + b"\x08\x06" + bytes.fromhex("0001 0800 06 04 0002")] * 5


def test_nobody_else(network):
    """Packets of another host do not reach the registers."""
    before = sim.NodePort(network, "sim0").node_counters()["bridge_denied"]
    stranger = sim.SimulatedUdp(network, sim.HOST_IP + 1)
    stranger.send(bytes.fromhex("4e6f1044 00000000 100f0001 00000000 04000000"))
    assert stranger.receive() is None
    assert sim.NodePort(network, "sim0").node_counters()["bridge_denied"] == before + 1
