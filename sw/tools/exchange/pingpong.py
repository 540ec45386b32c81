"""What the ``ibv_*_pingpong`` programs of rdma-core tell each other over TCP.

Each side sends one message of 52 bytes, the client first; the server answers when its queue pair is ready. Then the
client sends ``done``, and both close. ``ibv_srq_pingpong`` sends 256 messages, one for each queue pair that there may
be; those of queue pairs that there are not hold zeros.

So nobody hears that the other one dies after that. A side that keeps the connection open, and says ``done`` at the end
of its test, tells so by capitals in the GID, which those programs read as well. Two such sides keep it.
"""

import re
from dataclasses import dataclass

from ..session import ToolError

__all__ = ["DONE", "MOST", "SIZE", "Address", "answer", "ask"]

SIZE = 52
MOST = 256
"""Messages of a side of ``ibv_srq_pingpong``."""
DONE = b"done\0"
_FORM = re.compile(rb"([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """Where a queue pair is: LID (0 on Ethernet), QP number, first PSN, and the 16 bytes of the GID; and whether its
    side ``stays`` connected until the end.
    """

    lid: int
    qpn: int
    psn: int
    gid: bytes
    stays: bool = False

    def pack(self):
        gid = self.gid.hex().upper() if self.stays else self.gid.hex()
        return f"{self.lid:04x}:{self.qpn:06x}:{self.psn:06x}:{gid}\0".encode()

    @classmethod
    def unpack(cls, data):
        """:class:`.ToolError` if ``data`` is no such message."""
        match = _FORM.fullmatch(data)
        if not match:
            raise ToolError(f"the peer does not speak the language of the ibv_*_pingpong programs: {data!r}")
        lid, qpn, psn = (int(text, 16) for text in match.groups()[:3])
        gid = match[4].decode()
        return cls(lid, qpn, psn, bytes.fromhex(gid), gid != gid.lower())


NOBODY = Address(0, 0, 0, bytes(16))


def _send(channel, mine, messages):
    yield from channel.send(b"".join(address.pack() for address in [*mine, *[NOBODY] * (messages - len(mine))]))


def _receive(channel, count, messages, whose):
    """The first ``count`` of a side's messages, of which :class:`.ToolError` is raised if they are no queue pairs."""
    data = yield from channel.receive(SIZE * messages, whose)
    theirs = [Address.unpack(data[at : at + SIZE]) for at in range(0, SIZE * count, SIZE)]
    if NOBODY in theirs:
        raise ToolError(f"the peer has {theirs.index(NOBODY)} queue pairs, not {count}: -q must be the same")
    return theirs


def ask(channel, mine, messages=1):
    """The client's side, a session. ``mine`` has an :class:`Address` for each queue pair. Returns the server's, whose
    queue pairs are ready by then.
    """
    yield from _send(channel, mine, messages)
    theirs = yield from _receive(channel, len(mine), messages, "the server's address")
    yield from channel.send(DONE)
    return theirs


def answer(channel, mine, prepare, messages=1):
    """The server's side, a session: ``prepare(theirs)`` makes the queue pairs ready for the client's first messages.
    Returns the client's addresses.
    """
    theirs = yield from _receive(channel, len(mine), messages, "the client's address")
    prepare(theirs)
    yield from _send(channel, mine, messages)
    done = yield from channel.receive(len(DONE), "the client's leave")
    if done != DONE:
        raise ToolError(f"the client should be done, but says {done!r}")
    return theirs
