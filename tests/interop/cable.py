"""The cable between the simulated adapter's switch and the guest's network device, and what it does to frames."""

import contextlib
import random
import select
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass

from frames import ADAPTER, CORRUPTED, GUEST, request_of, roce_offset

__all__ = ["FAULTS", "Cable", "Faults"]

FAULTS = ("lose", "duplicate", "reorder", "corrupt")
ETHERNET_MINIMUM = 60
HELD = 0.03
"""Seconds after which a frame that waits to be overtaken goes on alone."""


@dataclass(frozen=True)
class Faults:
    """Probabilities, for every RoCE frame of one direction."""

    lose: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0


class Line:
    """One direction of the cable. Only RoCE frames are harmed and counted."""

    def __init__(self, name, deliver, capture):
        self.name = name
        self._deliver = deliver
        self._capture = capture
        self._held = None  # frame, frames that overtake it, time
        self._late = deque()  # frame, time
        self.begin(1024, "")

    def begin(self, mtu, comment):
        """Counts anew, without faults; ``comment`` goes to the next frame in the capture."""
        self._mtu = mtu
        self._comment = comment
        self._next = {}  # PSN after the last one requested, by queue pair
        self.frames = self.retries = 0
        self.harmed = Counter()
        self.harm(0, Faults(), ())

    def harm(self, seed, faults, aimed, delay=0.0):
        """Does this from now on. ``aimed`` holds pairs of a fault and the RoCE frame that it hits, 0 for the next."""
        self._faults = faults
        self._delay = delay
        self._random = random.Random(f"{seed} {self.name}")
        self._aimed = {}
        for fault, number in aimed:
            self._aimed.setdefault(self.frames + number, []).append(fault)

    def carry(self, frame):
        """Takes one frame from its sender."""
        frame = frame.ljust(ETHERNET_MINIMUM, b"\0")
        at = roce_offset(frame)
        if at is None:
            self._capture.frame(self.name, frame, self._comment_of([]))
            self._deliver(frame)
            return
        self._count(frame, at)
        harm = self._choose()
        self._capture.frame(self.name, frame, self._comment_of(harm))
        self.frames += 1
        self.harmed.update(harm)
        if "lose" in harm:
            return
        copies = [frame] * (2 if "duplicate" in harm else 1)
        if "corrupt" in harm:
            copies[0] = self._corrupt(frame)
            self._capture.frame(CORRUPTED, copies[0])
        if "reorder" in harm and self._held is None:
            self._held = [copies, self._random.randint(1, 3), time.monotonic()]
            return
        if self._delay:
            self._late += [(copy, time.monotonic() + self._delay) for copy in copies]
            return
        for copy in copies:
            self._deliver(copy)
        if self._held is not None:
            self._held[1] -= 1
            self.release(overtaken=self._held[1] == 0)

    def release(self, overtaken=False):
        """Lets go on what was held back and was overtaken, or has waited long enough."""
        if self._held is not None and (overtaken or time.monotonic() > self._held[2] + HELD):
            held, self._held = self._held, None
            for copy in held[0]:
                self._deliver(copy)
        while self._late and time.monotonic() > self._late[0][1]:
            self._deliver(self._late.popleft()[0])

    def _choose(self):
        # As many draws for each frame: one fault does not move the others.
        draws = [self._random.random() for _ in FAULTS]
        harm = [fault for fault, draw in zip(FAULTS, draws) if draw < getattr(self._faults, fault)]
        return harm + [fault for fault in self._aimed.pop(self.frames, ()) if fault not in harm]

    def _comment_of(self, harm):
        said, self._comment = self._comment, ""
        return "; ".join([*([said] if said else []), *harm])

    def _corrupt(self, frame):
        """One to three bits behind the Ethernet header, which a frame check of Ethernet would guard."""
        frame = bytearray(frame)
        for bit in self._random.sample(range(14 * 8, len(frame) * 8), self._random.randint(1, 3)):
            frame[bit // 8] ^= 1 << bit % 8
        return bytes(frame)

    def _count(self, frame, at):
        request = request_of(frame, at)
        if request is None:
            return
        qpn, psn, length = request
        ahead = psn - self._next.get(qpn, psn) & 0xFFFFFF
        if ahead & 0x800000:
            self.retries += 1
        else:
            self._next[qpn] = psn + max(1, -(-length // self._mtu)) & 0xFFFFFF


class Cable:
    """Carries frames between a :class:`verbena.sim.world.Tap` and the socket of a QEMU ``stream`` netdev, in both
    directions: each frame on the socket follows its length, four bytes, and has no FCS.
    """

    def __init__(self, tap, socket, capture):
        socket.setblocking(False)
        self._tap = tap
        self._socket = socket
        self._received = bytearray()
        self._to_send = deque()
        self.lines = {
            ADAPTER: Line(ADAPTER, self._to_guest, capture),
            GUEST: Line(GUEST, tap.send, capture),
        }

    def begin(self, mtu=1024, comment=""):
        """Begins a case: counts anew, without faults."""
        self.lines[ADAPTER].begin(mtu, comment)
        self.lines[GUEST].begin(mtu, "")

    def harm(self, seed=0, faults=None, aimed=(), delays=None):
        """Harms RoCE frames from now on: by the :class:`Faults` of each direction that has some, and those that triples
        of direction, fault and number aim at; the next frame has number 0. ``delays`` are seconds, by direction.
        """
        for name, line in self.lines.items():
            hits = [(fault, number) for direction, fault, number in aimed if direction == name]
            line.harm(seed, (faults or {}).get(name, Faults()), hits, (delays or {}).get(name, 0.0))

    @property
    def frames(self):
        """RoCE frames in both directions since the case began."""
        return sum(line.frames for line in self.lines.values())

    @property
    def retries(self):
        """Requests among them that had been sent before."""
        return sum(line.retries for line in self.lines.values())

    @property
    def harmed(self):
        """How often each fault has been done to them."""
        return sum((line.harmed for line in self.lines.values()), Counter())

    def _to_guest(self, frame):
        self._to_send.append(struct.pack(">I", len(frame)) + frame)

    def exchange(self):
        """Moves all that can be moved now; returns whether anything was."""
        moved = False
        for line in self.lines.values():
            line.release()
        while (frame := self._tap.receive()) is not None:
            self.lines[ADAPTER].carry(frame)
            moved = True
        with contextlib.suppress(BlockingIOError):
            while self._to_send:
                sent = self._socket.send(self._to_send[0])
                if sent == len(self._to_send[0]):
                    self._to_send.popleft()
                else:
                    self._to_send[0] = self._to_send[0][sent:]
        with contextlib.suppress(BlockingIOError):
            while data := self._socket.recv(1 << 18):
                self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            self.lines[GUEST].carry(bytes(self._received[4:end]))
            del self._received[:end]
            moved = True
        return moved

    def wait(self, seconds, *others):
        """Returns when a frame or something on the sockets ``others`` has come, or after this time."""
        select.select([self._socket, *others], [], [], seconds)
