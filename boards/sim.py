"""A node in simulation, at its RGMII pins, with a second adapter and a host on the same network.

``python -m verbena.boards.sim`` moves data between node and adapter and tells how much of the line it fills.
:func:`provide_devices` gives a driver the devices ``sim0``, the node, reached by Etherbone packets through those pins,
and ``sim1``, the adapter.
"""

import argparse
import ctypes
import struct
import sys
from collections import deque
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

from verbena.hdl.abi.registers import LOG_CAPABILITIES, REGISTERS
from verbena.hdl.config import Config
from verbena.hdl.control.activity import QUIET
from verbena.hdl.transport.timers.timers import VISIT
from verbena.sim import model
from verbena.sim.sim_port import SimPort
from verbena.sim.ticks import second_ns
from verbena.sim.world import INTERRUPT, WATCH, World
from verbena.sw.cm.membership_report import checksum
from verbena.sw.port import provide
from verbena.sw.tools.command import command_line, first_line

from . import etherbone
from .bridge import ENGINE
from .pin_node import PinNode
from .port import BoardPort

__all__ = ["ADAPTER_IP", "CLOCK", "HOST_IP", "HOST_MAC", "NODE_IP", "NODE_MAC", "Network", "NodeModel", "NodePort"]
__all__ += ["SimulatedUdp", "design", "main", "provide_devices", "udp_frame"]

NODE_MAC, NODE_IP = 0x02_56_42_00_00_E1, 0xC0A80132
HOST_MAC, HOST_IP = 0x02_56_42_00_00_F1, 0xC0A80101
ADAPTER_IP = 0xC0A80133
CLOCK = 125_000_000
SIZES = {
    "config": Config(qps=16, cqs=16, window=32, mpt_sets=32, mtt_sets=32, headers=16, address_width=32),
    "mac": NODE_MAC,
    "ip": NODE_IP,
    "memory_size": 65536,
    "allowed": (HOST_IP,),
    "clock": CLOCK,
}
"""The node's. Its engine is as narrow as those of the smaller boards with send queues, with smaller caches."""

HERE = Path(__file__).parent
NATIVE = HERE / "native"
PARTS = ("pin_node", "node", "node_registers", "bridge", "bridge_bus", "etherbone", "uart")
PARTS += ("memory", "event_counters", "lights")
FEMTOSECONDS = 10**15
TX_PERIOD, RX_PERIOD = 8_000_000, 8_000_400
"""Femtoseconds; a PHY's crystal may be off by 100 ppm."""

QUANTUM = 32
"""Cycles of the adapter after which frames pass between it and the node."""

ANSWER_NS = 400_000
"""How long a driver waits for an answer: 255 words take less."""

STATION_CYCLES = 500
"""For an answer, beside two times that of its frame on the line."""

ASK_CYCLES = 28
"""From one word to the next in the answer to an Etherbone packet that reads registers."""

ARP = struct.Struct(">HHBBH6sI6sI")


def design(**options):
    """What to compile for a :class:`.pin_node.PinNode`; ``options`` take the place of some of :data:`SIZES`."""
    sizes = SIZES | options
    return model.Design.of(
        lambda: PinNode(**sizes),
        [HERE.parent / "hdl", *(HERE / f"{part}.py" for part in PARTS)],
        parameters=repr(sorted(sizes.items())),
        name="node",
        surroundings=(NATIVE / "phy.cpp",),
        cells=(NATIVE / "ecp5_pins.v",),
        optimize="-O1",
    )


class NodeModel:
    """The compiled node and the PHY at its pins.

    Parameters
    ----------
    built : Design, optional
        By default :func:`design` as it is.
    clock : int
        Hz of the engine.
    """

    FUNCTIONS = {
        "create": (c_void_p, c_int64, c_int64, c_int64, c_int),
        "destroy": (None, c_void_p),
        "now": (c_int64, c_void_p),
        "advance": (None, c_void_p, c_int64, c_int),
        "send": (None, c_void_p, c_char_p, c_uint32),
        "waiting": (c_uint32, c_void_p),
        "counters": (None, c_void_p, POINTER(c_uint64)),
        "receive": (c_int64, c_void_p, c_char_p, c_uint32),
    }
    COUNTERS = ("to_frames", "to_bytes", "from_frames", "from_bytes", "from_bad", "from_gap", "from_short")

    _handle = None

    def __init__(self, built=None, *, clock=CLOCK, seed=1):
        library = ctypes.CDLL(str(model.build(built or design()).library))
        self._functions = {}
        for name, (result, *arguments) in self.FUNCTIONS.items():
            function = getattr(library, f"phy_{name}")
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function
        self._handle = self._functions["create"](FEMTOSECONDS // clock, TX_PERIOD, RX_PERIOD, seed)
        self._buffer = ctypes.create_string_buffer(16384)

    def close(self):
        handle, self._handle = self._handle, None
        if handle:
            self._functions["destroy"](handle)

    def __del__(self):
        self.close()

    def _call(self, name, *arguments):
        return self._functions[name](self._handle, *arguments)

    @property
    def time(self):
        """In femtoseconds."""
        return self._call("now")

    def advance_to(self, time, *, stop=False):
        """Lets time pass; with ``stop``, at most until a frame is there."""
        self._call("advance", time, stop)

    def send(self, frame):
        """Puts a frame (Ethernet header first, no FCS) on the line to the node, behind those that wait."""
        self._call("send", bytes(frame), len(frame))

    def receive(self):
        """The oldest frame that the node has sent, or None."""
        size = self._call("receive", self._buffer, len(self._buffer))
        return None if size < 0 else self._buffer.raw[:size]

    @property
    def waiting(self):
        """Frames that wait for the line."""
        return self._call("waiting")

    @property
    def counters(self):
        """Frames and their bytes on the line, preamble, FCS and gap among them, in both directions; and what of the
        node was wrong.
        """
        values = (c_uint64 * len(self.COUNTERS))()
        self._call("counters", values)
        return dict(zip(self.COUNTERS, values))


class Network:
    """A node, an adapter, and a host that answers ARP and hands Etherbone packets to a driver.

    Time is that of the adapter's world; the node follows. Who else is on the network has a tap of that world.

    A driver here asks again as soon as it has an answer, while one of a board takes a hundred times longer; so what is
    no UDP packet, and would be dropped by the node's ARP/ICMP block beside an Etherbone packet, waits until none is
    under way, and Etherbone packets wait for it.

    Parameters
    ----------
    node : Design, optional
        By default :func:`design` as it is.
    world : World, optional
        With one adapter, by default; or who knows what this wants of a world, and has none, which takes half the time.
    """

    def __init__(self, node=None, world=None):
        self.node = NodeModel(node)
        self.world = world or World(1, clock_hz=CLOCK)
        self.tap = self.world.tap(NODE_MAC)
        self.udp = deque()
        self.asked = False
        """An Etherbone packet is under way."""
        self._held = deque()
        self._free = 0  # when the ARP/ICMP block is

    @property
    def time_ns(self):
        return self.world.time_ns

    @property
    def quiet(self):
        """Nothing is on the lines."""
        return self.world.idle and not self.node.waiting and not self._held

    def run(self, cycles, until=lambda: False, stop=0):
        """Lets up to ``cycles`` pass, less if ``until()``, or something of ``stop`` has happened in the world."""
        end = self.world.cycles + cycles
        while (left := end - self.world.cycles) > 0:
            self.world.advance(min(left, QUANTUM), 0)
            happened = self.world.events & stop
            while (frame := self.tap.receive()) is not None:
                (self.node.send if _is_udp(frame) else self._held.append)(frame)
            if self._held and not self.asked and self.world.cycles >= self._free:
                frame = self._held.popleft()
                self.node.send(frame)
                self._free = self.world.cycles + STATION_CYCLES + 2 * len(frame)
            self.node.advance_to(self.world.cycles * (FEMTOSECONDS // CLOCK))
            while (frame := self.node.receive()) is not None:
                self._route(frame)
            if happened or until():
                return

    def let_in(self):
        """Lets time pass until the ARP/ICMP block has got what waits for it, and answered it."""
        while self._held or self.world.cycles < self._free:
            self.run(QUANTUM)

    def close(self):
        self.node.close()
        self.world.close()

    def _route(self, frame):
        to = int.from_bytes(frame[:6], "big")
        if to != HOST_MAC:
            self.tap.send(frame)
        if to not in (HOST_MAC, (1 << 48) - 1):
            return
        ethertype = frame[12:14]
        if ethertype == b"\x08\x06":
            _, _, _, _, operation, mac, ip, _, target = ARP.unpack_from(frame, 14)
            if (operation, target) == (1, HOST_IP):
                ours = HOST_MAC.to_bytes(6, "big")
                reply = ARP.pack(1, 0x0800, 6, 4, 2, ours, HOST_IP, mac, ip)
                self.node.send(mac + ours + ethertype + reply)
        elif _is_udp(frame):
            port, length = struct.unpack_from(">HH", frame, 36)
            if port == etherbone.PORT:
                self.udp.append(frame[42 : 34 + length])


def _is_udp(frame):
    return frame[12:14] == b"\x08\x00" and frame[23] == 17


def udp_frame(payload, source, target, port):
    """Frame with a UDP packet; ``source`` and ``target`` are (MAC, IPv4) addresses."""
    length = 28 + len(payload)
    header = struct.pack(">BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 17, 0, source[1], target[1])
    header = header[:10] + struct.pack(">H", checksum(header)) + header[12:]
    ethernet = target[0].to_bytes(6, "big") + source[0].to_bytes(6, "big") + b"\x08\x00"
    return ethernet + header + struct.pack(">HHHH", port, port, length - 20, 0) + payload


class SimulatedUdp:
    """The transport of an :class:`.etherbone_client.EtherboneClient`: packets of the host ``ip`` to the node."""

    def __init__(self, network, ip=HOST_IP):
        self.network = network
        self.ip = ip

    def send(self, packet):
        self.network.let_in()
        frame = udp_frame(packet, (HOST_MAC, self.ip), (NODE_MAC, NODE_IP), etherbone.PORT)
        self.network.node.send(frame)

    def receive(self):
        network = self.network
        network.asked = True
        network.run(ANSWER_NS * CLOCK // 10**9, lambda: network.udp)
        network.asked = False
        return network.udp.popleft() if network.udp else None


class NodePort(BoardPort):
    """A :class:`.port.BoardPort` of a simulated node."""

    def __init__(self, network, name="sim0"):
        self.network = network
        super().__init__(name, SimulatedUdp(network))
        log_qps = self.read32(REGISTERS["capabilities"].offset) >> LOG_CAPABILITIES["qps"] & 15
        self._asks = -(-(QUIET + (2 * VISIT << log_qps)) // ASK_CYCLES) + 1

    def advance(self, max_cycles):
        self.network.run(max_cycles, stop=INTERRUPT | WATCH)
        # The packet that asks is one that the engine receives; so the last answer in it counts.
        status = self.client.read([ENGINE + REGISTERS["status"].offset] * self._asks)[-1]
        return not status & 1 or not self.network.quiet

    def time_ns(self):
        return round(self.network.time_ns)

    @property
    def second_ns(self):
        return second_ns(self.tick, CLOCK)


class AdapterPort(SimPort):
    """The adapter; time passes for the node, too."""

    def __init__(self, network, name="sim1"):
        super().__init__(network.world, 0)
        self.network = network
        self.name = name
        self.ip = ADAPTER_IP
        self._neighbours = {ADAPTER_IP: self.mac, NODE_IP: NODE_MAC}

    def advance(self, max_cycles):
        self.network.run(max_cycles, stop=INTERRUPT | WATCH)
        return not self.network.quiet or not self.read32(REGISTERS["status"].offset) & 1


def provide_devices(network=None):
    """Makes ``sim0`` and ``sim1`` the node and the adapter of ``network``, or of a new one; returns it."""
    network = network or Network()
    provide("sim0", lambda: NodePort(network))
    provide("sim1", lambda: AdapterPort(network))
    return network


@command_line
def main(argv=None):
    """Command line; returns the status."""
    from .exercise import exercise

    parser = argparse.ArgumentParser(prog="python -m verbena.boards.sim", description=first_line(__doc__))
    parser.add_argument("--messages", type=int, default=32, help="WRITEs of 4096 bytes (%(default)s)")
    parser.add_argument("--compile", action="store_true", help="compile the node, and no more")
    args = parser.parse_args(argv)
    try:
        if args.compile:
            print(model.build(design(), verbose=True).library)
            return 0
        network = provide_devices()
    except model.BuildError as error:
        print(error, file=sys.stderr)
        return 1
    share = exercise("sim0", "sim1", messages=args.messages)
    print("WRITE, READ and fetch-and-add are right.")
    print(f"{args.messages} WRITEs of 4096 bytes: {share:.1%} of what 1 Gb/s can carry of them")
    print("at the pins:", ", ".join(f"{name} {count}" for name, count in network.node.counters.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
