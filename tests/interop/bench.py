"""The bench: a guest and a simulated adapter on one cable, fresh for every group of cases.

Everything happens in one thread. The driver owns simulated time, and whoever lets time pass, also by polling, moves the
frames of the cable.
"""

import contextlib
import threading
import time
from pathlib import Path

from cable import Cable
from frames import Capture
from machine import MAC, Guest
from peer import Peer
from verbena.sim.devices import SimPort
from verbena.sim.world import World
from verbena.sw import port
from verbena.sw.verbs.device import Context

__all__ = ["CAPTURE", "DEVICE", "Bench", "prepare"]

DEVICE = "cable0"
PEER = Path(__file__).with_name("peer.py")
GID_INDEX = 1
"""Of the IPv4 address in the guest."""

CAPTURE = "cable.pcapng"
NAP = 0.001
"""Seconds to wait for the guest when the adapter has nothing to do."""

SLICE = 0.002
"""Seconds for which a guest in turns runs at a time."""

QUIET = 4000
"""Cycles without a frame after which it is such a guest's turn: more than the adapter takes for an answer."""


class CabledPort(SimPort):
    """The adapter's device port; time passes together with the cable."""

    turns = None
    """A :class:`.machine.Guest` that runs only when the adapter has nothing to say: so its clock does not run away."""

    busy = False
    """Whether the adapter had anything left to do when time passed last."""

    def __init__(self, world, cable):
        super().__init__(world, 0)
        self.name = DEVICE
        self.cable = cable
        self._quiet = 0
        self._lock = threading.RLock()

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


class RemotePeer:
    """The :class:`Peer` in the guest, with the same methods; arguments are given by name."""

    def __init__(self, guest):
        self._guest = guest

    def __getattr__(self, method):
        def call(**arguments):
            return self._guest.call("call", {"name": "peer", "method": method, "arguments": arguments})

        return call


def prepare(image, folder):
    """Boots a guest, loads its :class:`Peer` and writes its snapshot into ``folder``; returns the path."""
    path = folder / "snapshot"
    with Guest(image, folder / "boot") as guest:
        arguments = {"package": "pyverbs", "device": "rxe0", "gid_index": GID_INDEX}
        source = PEER.read_text()
        guest.call("load", {"name": "peer", "source": source, "create": "Peer", "arguments": arguments})
        guest.save(path)
    return path


class Bench:
    """A guest (``there``) and an adapter (``here``), both new.

    Parameters
    ----------
    design : verbena.sim.model.Design
    image : Image
    snapshot : Path
        What :func:`prepare` wrote.
    folder : Path
        Where logs and the capture go.
    """

    def __init__(self, design, image, snapshot, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.world = World(adapters=1, design=design)
        self.capture = Capture(folder / CAPTURE)
        self.guest = Guest(image, folder, snapshot)
        self.cable = Cable(self.world.tap(MAC), self.guest.cable, self.capture)
        self.port = CabledPort(self.world, self.cable)
        port.provide(DEVICE, lambda: self.port)
        self.context = Context(name=DEVICE)
        self.guest.pump = self.pump
        self.here = Peer("verbena.sw.verbs", DEVICE, 0)
        self.there = RemotePeer(self.guest)

    def pump(self, cycles=512):
        """Lets time pass, and frames."""
        self.port.advance(cycles)

    @contextlib.contextmanager
    def in_turns(self):
        """Inside, the guest's clock stands while the adapter works."""
        self.guest.stop()
        self.port.turns = self.guest
        try:
            yield
        finally:
            self.port.turns = None
            self.guest.cont()

    def until(self, true, seconds=20):
        """Lets time pass until ``true()``; an ``AssertionError`` if that takes too long."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"waited {seconds} s in vain"
            self.pump()

    def settle(self, seconds=0.005):
        """Lets time pass until the adapter has nothing to do, and no RoCE frame has come for so long."""
        frames = None
        while self.cable.frames != frames or self.port.busy:
            frames, end = self.cable.frames, time.monotonic() + seconds
            while time.monotonic() < end:
                self.pump()

    def close(self):
        # An adapter that a case has broken may not even let go any more.
        for resource in (self.here, self.context):
            with contextlib.suppress(Exception):
                resource.close()
        self.guest.close()
        self.capture.close()
        self.world.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
