"""What hangs at our end of the cable: an adapter alone in its world, or a board's node on its network, reached through
its pins and its bridge as a board is. The cases see no difference.
"""

import threading
from collections import deque

from machine import MAC
from verbena.boards.sim import CLOCK, Network, NodePort
from verbena.sim.sim_port import SimPort
from verbena.sim.ticks import TICK
from verbena.sim.world import World

__all__ = ["DEVICE", "AdapterStation", "NodeStation"]

DEVICE = "sim0"

NAP = 0.001
"""Seconds to wait for the guest when the device has nothing to do."""

SLICE = 0.002
"""Seconds for which a guest in turns runs at a time."""

QUIET = 4000
"""Cycles without a frame after which it is such a guest's turn: more than the device takes for an answer."""


EXCHANGE = 512
"""Cycles after which frames pass between cable and switch."""


class Cabled:
    """For a port with a ``world``: its time passes together with the cable."""

    turns = None
    """A :class:`.machine.Guest` that runs only when the device has nothing to say: so its clock does not run away."""

    busy = False
    """Whether the device had anything left to do when time passed last."""

    def plug(self, cable):
        self.cable = cable
        self._quiet = 0
        self._lock = threading.RLock()
        return self

    def advance(self, max_cycles):
        with self._lock:
            return self._advance(max_cycles)

    def _advance(self, max_cycles):
        moved = self.cable.exchange()
        start = self.world.cycles
        self.busy = super().advance(max_cycles)
        moved = self.cable.exchange() or moved
        if self.turns is not None:
            self._quiet = 0 if moved else self._quiet + self.world.cycles - start
            if self._quiet >= QUIET or not self.busy:
                self._quiet = 0
                self.turns.cont()
                self.cable.wait(SLICE)
                self.turns.stop()
        elif not self.busy and not moved:
            self.cable.wait(NAP)
        # A peer may always have something to say.
        return True


class CabledAdapter(Cabled, SimPort):
    pass


class CabledNode(Cabled, NodePort):
    @property
    def world(self):
        return self.network.world


class AdapterStation:
    """The engine that ``design`` describes."""

    guest = "10.0.0.240"
    """Address of a guest that it can reach."""

    region = 1 << 18
    """Bytes that a region may have at least."""

    packets = 5
    """Of a message of which each is harmed in turn."""

    def __init__(self, design):
        self.world = World(adapters=1, design=design)
        self.tap = self.world.tap(MAC)

    def port(self, cable):
        return CabledAdapter(self.world, 0).plug(cable)

    def close(self):
        self.world.close()


class Switch:
    """A :class:`verbena.sim.world.World` without adapters: frames of each tap go to all others at once. Whenever time
    passes there, it passes for the cable: a driver may read and write a node's memory for seconds.
    """

    events = 0
    idle = True
    cable = None

    def __init__(self):
        self.cycles = 0
        self.taps = []

    @property
    def time_ns(self):
        return self.cycles * 1e9 / CLOCK

    def tap(self, mac):
        self.taps.append(SwitchTap(self))
        return self.taps[-1]

    def advance(self, max_cycles, stop=0):
        self.cycles += max_cycles
        if self.cable is not None and self.cycles % EXCHANGE < max_cycles:
            self.cable.exchange()

    def close(self):
        pass


class SwitchTap:
    def __init__(self, switch):
        self._switch = switch
        self._frames = deque()

    def send(self, frame):
        for tap in self._switch.taps:
            if tap is not self:
                tap._frames.append(frame)

    def receive(self):
        return self._frames.popleft() if self._frames else None


class NodeStation:
    """The node that the design ``node`` describes, and the host that may use its bridge."""

    guest = "192.168.1.240"
    region = 1 << 12
    packets = 3

    def __init__(self, node):
        self.network = Network(node, Switch())
        self.tap = self.network.world.tap(MAC)

    def port(self, cable):
        self.network.world.cable = cable
        port = CabledNode(self.network, DEVICE).plug(cable)
        # As the adapter's, for the sake of those who wait for timeouts.
        port.tick = TICK
        return port

    def close(self):
        self.network.close()
