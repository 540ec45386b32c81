"""Frames of a capture as hops: each frame once, with where and when it was sent and where and when it arrived."""

from collections import deque
from dataclasses import dataclass

from .packets import dissect

__all__ = ["Hop", "hops_of"]


@dataclass
class Hop:
    """``sent`` and ``arrived`` are times of the frame's last beat in ns, None if the capture does not tell; ``comment``
    what the wire did to it; ``packet`` is None for other than RoCEv2; ``end`` the :class:`.capture_file.Frame` where it
    arrived.
    """

    packet: object
    size: int
    sent: int | None = None
    arrived: int | None = None
    sender: str = ""
    receiver: str = ""
    comment: str = ""

    @property
    def time(self):
        """Of the first that is known of it."""
        return self.arrived if self.sent is None else self.sent

    @property
    def lost(self):
        return "lost" in self.comment

    @property
    def harmed(self):
        """It arrived with other bytes than were sent, and nobody looks at it."""
        return "corrupted" in self.comment or "damaged" in self.comment


def hops_of(frames):
    """The :class:`Hop` of all frames, in the order in which they were sent. A frame that is in the capture where it was
    sent and where it arrived is one; each further arrival of it is another.
    """
    found, waiting, harmed = [], {}, {}
    for frame in frames:
        if frame.inbound:
            # An equal frame, or if it was changed on its way the oldest of the same size that was.
            queue = waiting.get(frame.data) or harmed.get(len(frame.data)) or ()
            if queue:
                hop = queue[0]
                if hop.arrived is None:
                    hop.arrived, hop.receiver = frame.time, frame.port
                    if "duplicated" not in hop.comment:
                        queue.popleft()
                    continue
                queue.popleft()
                found.append(
                    Hop(hop.packet, hop.size, hop.sent, frame.time, hop.sender, frame.port, "the wire's duplicate")
                )
                continue
            found.append(Hop(dissect(frame.data), len(frame.data), None, frame.time, "", frame.port, frame.comment))
            continue
        comment = frame.comment + ("damaged" if frame.error and not frame.comment else "")
        hop = Hop(dissect(frame.data), len(frame.data), frame.time, None, frame.port, "", comment)
        found.append(hop)
        if frame.inbound is False and not hop.lost:
            pool, key = (harmed, len(frame.data)) if "corrupted" in comment else (waiting, frame.data)
            pool.setdefault(key, deque()).append(hop)
    found.sort(key=lambda hop: hop.time)
    return found
