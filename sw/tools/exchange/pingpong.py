"""What the ``ibv_*_pingpong`` programs of rdma-core tell each other over TCP.

Each side sends one message of 52 bytes, the client first; the server answers when its queue pair is ready. Then the
client sends ``done``, and both close.

So nobody hears that the other one dies after that. A side that keeps the connection open, and says ``done`` at the end
of its test, tells so by capitals in the GID, which those programs read as well. Two such sides keep it.
"""

import re
from dataclasses import dataclass

from ..session import ToolError

__all__ = ["DONE", "SIZE", "Address", "answer", "ask"]

SIZE = 52
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
            raise ToolError(f"the peer does not speak the language of ibv_rc_pingpong: {data!r}")
        lid, qpn, psn = (int(text, 16) for text in match.groups()[:3])
        gid = match[4].decode()
        return cls(lid, qpn, psn, bytes.fromhex(gid), gid != gid.lower())


def ask(channel, mine):
    """The client's side, a session: returns the server's :class:`Address`, whose queue pair is ready by then."""
    yield from channel.send(mine.pack())
    theirs = Address.unpack((yield from channel.receive(SIZE, "the server's address")))
    yield from channel.send(DONE)
    return theirs


def answer(channel, mine, prepare):
    """The server's side, a session: ``prepare(theirs)`` makes the queue pair ready for the client's first message.
    Returns the client's :class:`Address`.
    """
    theirs = Address.unpack((yield from channel.receive(SIZE, "the client's address")))
    prepare(theirs)
    yield from channel.send(mine.pack())
    done = yield from channel.receive(len(DONE), "the client's leave")
    if done != DONE:
        raise ToolError(f"the client should be done, but says {done!r}")
    return theirs
