"""The bench: a guest and a simulated device on one cable, fresh for every group of cases.

Everything happens in one thread. The driver owns simulated time, and whoever lets time pass, also by polling, moves the
frames of the cable.
"""

import contextlib
import time
from pathlib import Path

from cable import Cable
from frames import Capture
from machine import Guest
from peer import Peer
from stations import DEVICE
from verbena.sw import port
from verbena.sw.verbs.device import Context

__all__ = ["CAPTURE", "Bench", "prepare"]

PEER = Path(__file__).with_name("peer.py")
GID_INDEX = 1
"""Of the IPv4 address in the guest."""

CAPTURE = "cable.pcapng"


class RemotePeer:
    """The :class:`Peer` in the guest, with the same methods; arguments are given by name."""

    def __init__(self, guest):
        self._guest = guest

    def __getattr__(self, method):
        def call(**arguments):
            return self._guest.call("call", {"name": "peer", "method": method, "arguments": arguments})

        return call


def prepare(image, folder, address):
    """Boots a guest with this address, loads its :class:`Peer` and writes its snapshot into ``folder``; returns the
    path.
    """
    path = folder / "snapshot"
    with Guest(image, folder / "boot", address) as guest:
        arguments = {"package": "pyverbs", "device": "rxe0", "gid_index": GID_INDEX}
        source = PEER.read_text()
        guest.call("load", {"name": "peer", "source": source, "create": "Peer", "arguments": arguments})
        guest.save(path)
    return path


class Bench:
    """A guest (``there``) and a device (``here``), both new.

    Parameters
    ----------
    station : AdapterStation or NodeStation
        Is closed with the bench.
    image : Image
    snapshot : Path
        What :func:`prepare` wrote.
    folder : Path
        Where logs and the capture go.
    """

    def __init__(self, station, image, snapshot, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.station = station
        self.region = station.region
        self.capture = Capture(folder / CAPTURE)
        self.guest = Guest(image, folder, station.guest, snapshot)
        self.cable = Cable(station.tap, self.guest.cable, self.capture)
        self.port = station.port(self.cable)
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
        """Inside, the guest's clock stands while the device works."""
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
        """Lets time pass until the device has nothing to do, and no RoCE frame has come for so long."""
        frames = None
        while self.cable.frames != frames or self.port.busy:
            frames, end = self.cable.frames, time.monotonic() + seconds
            while time.monotonic() < end:
                self.pump()

    def close(self):
        # A device that a case has broken may not even let go any more.
        for resource in (self.here, self.context):
            with contextlib.suppress(Exception):
                resource.close()
        self.guest.close()
        self.capture.close()
        self.station.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
