"""A node's registers and memory are for the host that may use its bridge, and the guest is not that one."""

import ipaddress
import shlex
from functools import partial

from verbena.boards.bridge import MEMORY, NODE
from verbena.boards.etherbone import PORT

from .case import Case

__all__ = ["groups"]

REQUESTS = {
    # Etherbone packets: one word written, or read.
    "write": bytes.fromhex("4e6f1044 00000000 100f0100") + MEMORY.to_bytes(4, "big") + b"evil",
    "read": bytes.fromhex("4e6f1044 00000000 100f0001 00000000") + NODE.to_bytes(4, "big"),
}

PROGRAM = """
import socket, sys
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer.settimeout(1)
peer.connect((sys.argv[1], int(sys.argv[2])))
peer.send(bytes.fromhex(sys.argv[3]))
try:
    print(peer.recv(2048).hex())
except TimeoutError:
    print("silence")
"""


def denied(what, bench):
    """The guest gets no answer, nothing changes, and the node counts it."""
    counters, memory = bench.port.node_counters(), bench.port.memory.read(MEMORY, 64)
    arguments = (ipaddress.ip_address(bench.port.ip), PORT, REQUESTS[what].hex())
    out = bench.guest.run(f"python3 -c {shlex.quote(PROGRAM)} {' '.join(map(str, arguments))}")
    assert out.strip() == "silence", out
    now = bench.port.node_counters()
    assert now["bridge_denied"] == counters["bridge_denied"] + 1, now
    assert bench.port.memory.read(MEMORY, 64) == memory


def groups(seed):
    return {"bridge": [Case(f"the guest may not {what}", "asked", partial(denied, what)) for what in REQUESTS]}
