"""The whole node at GMII against cocotbext-eth, scapy and the driver."""

from streams import make_rng
from verbena.boards.node import Node
from verbena.hdl.config import Config
from verilated import run_bench

NODE_MAC, NODE_IP, FRIEND = 0x0256420000E1, 0xC0A80132, 0xC0A80101
CLOCK = 100_000_000


def test_node(tmp_path, monkeypatch):
    config = Config(qps=16, cqs=16, window=32)
    node = Node(config, mac=NODE_MAC, ip=NODE_IP, clock=CLOCK, memory_size=65536, allowed=[FRIEND])
    variables = {"NODE_MAC": NODE_MAC, "NODE_IP": NODE_IP, "NODE_FRIEND": FRIEND}
    run_bench("node_bench", node, tmp_path, monkeypatch, NODE_SEED=make_rng().seed_value, **variables)
