"""A node as the driver wants a device."""

import errno
import time

from verbena.hdl.abi.registers import REGISTERS

from .bridge import ENGINE, NODE
from .etherbone_client import EtherboneClient
from .node_registers import COUNTERS, MAGIC
from .node_registers import REGISTERS as NODE_REGISTERS
from .remote_memory import RemoteMemory

__all__ = ["BoardPort"]

TICK_HZ = 1 / 4.096e-6
PAUSE = 1e-4
"""Seconds that ``advance`` lets pass."""


class BoardPort:
    """A :class:`verbena.sw.port.Port` over Etherbone.

    Tables are small, because the node's memory is: 64 regions, 64 events.

    Parameters
    ----------
    name : str
    transport : UdpTransport
        Or an object with its functions.

    Raises
    ------
    OSError
        ENODEV if what answers is no node, ETIMEDOUT if nothing does.
    """

    log_mpt_size = 6
    log_cqc_size = 6
    log_eq_size = 6
    pushes = False

    def __init__(self, name, transport):
        self.name = name
        self.client = EtherboneClient(transport, NODE)
        magic, base, size, clock = self._node("magic", "memory_base", "memory_size", "clock")
        if magic != MAGIC:
            raise OSError(errno.ENODEV, f"device {name!r} is no Verbena node: magic {magic:#010x}")
        self.memory = RemoteMemory(self.client, base, size)
        self.tick = round(clock / TICK_HZ)
        low, high, self.ip = (self.read32(REGISTERS[register].offset) for register in ("mac_low", "mac_high", "ip"))
        self.mac = high << 32 | low

    def _node(self, *names):
        return self.client.read([NODE + NODE_REGISTERS[name] for name in names])

    def read32(self, offset):
        return self.client.read([ENGINE + offset])[0]

    def write32(self, offset, value):
        self.client.write(ENGINE + offset, [value])

    def read_block(self, offset, count):
        return self.client.read(range(ENGINE + offset, ENGINE + offset + 4 * count, 4))

    def write_block(self, offset, values):
        self.client.write(ENGINE + offset, values)

    def advance(self, max_cycles):
        """A short while passes. There is always something left to do: a peer may say something any time, and the
        packet that asks whether the engine is idle is one that it receives.
        """
        time.sleep(PAUSE)
        return True

    def time_ns(self):
        return time.monotonic_ns()

    def watch(self, address, length):
        return 0

    def unwatch(self, watch):
        pass

    def resolve(self, ip):
        if ip == self.ip:
            return self.mac
        raise KeyError(ip)

    def node_counters(self):
        """Counters of MAC and bridge, by name."""
        first = NODE + NODE_REGISTERS["counters"]
        values = self.client.read([first + 4 * n for n in range(len(COUNTERS))])
        return dict(zip(COUNTERS, values))
