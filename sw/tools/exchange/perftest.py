"""What the programs of perftest tell each other over TCP.

Everything is exchanged: at each step the client sends first and the server answers with the same kind of message. The
form is that of perftest 4.5, which calls itself 6.06; from 6.28 on a further structure is exchanged if both sides are
that new.
"""

import re
import struct
from dataclasses import dataclass

from ..session import ToolError

__all__ = ["DONE", "KEY_SIZE", "NOBODY", "Exchange", "Key", "ManagedExchange", "Report"]

VERSION = "6.06"
OLDEST = 5.7
KEY_SIZE = 108
DONE = b"done\0"
_STRUCT = struct.Struct(">5I4xQ16sIi")
"""``struct pingpong_dest``: :data:`_NUMBERS`, GID, number of the shared receive queue, index of the GID."""
_NUMBERS = ("lid", "out_reads", "qpn", "psn", "rkey", "vaddr")
_KEY = re.compile(rb"([0-9a-f]+):" * len(_NUMBERS) + rb"((?:[0-9a-f]{2}:){16})([0-9a-f]+):\0*", re.IGNORECASE)


@dataclass(frozen=True)
class Key:
    """One queue pair: where it is and what its peer may reach.

    ``out_reads`` are the READs and atomics that this side answers at a time; ``gid`` has 16 bytes; ``lid`` and ``srqn``
    are 0 here.
    """

    qpn: int
    psn: int
    gid: bytes
    out_reads: int = 1
    rkey: int = 0
    vaddr: int = 0
    lid: int = 0
    srqn: int = 0

    def pack(self):
        gid = ":".join(f"{byte:02x}" for byte in self.gid)
        text = (
            f"{self.lid:04x}:{self.out_reads:04x}:{self.qpn:06x}:{self.psn:06x}:{self.rkey:08x}:{self.vaddr:016x}:"
            f"{gid}:{self.srqn:08x}:\0"
        )
        return text.encode()

    @classmethod
    def unpack(cls, data):
        """:class:`.ToolError` if ``data`` is no such message."""
        match = _KEY.fullmatch(data)
        if not match:
            raise ToolError(f"the peer does not speak the language of perftest: {data!r}")
        numbers = {name: int(text, 16) for name, text in zip(_NUMBERS, match.groups())}
        return cls(gid=bytes.fromhex(match[7].decode().replace(":", "")), srqn=int(match[8], 16), **numbers)

    def pack_struct(self):
        """The same, as it goes over a connection of the connection manager."""
        numbers = (getattr(self, name) for name in _NUMBERS)
        return _STRUCT.pack(*numbers, self.gid, self.srqn, 0)

    @classmethod
    def unpack_struct(cls, data):
        *numbers, gid, srqn, _ = _STRUCT.unpack(data)
        return cls(gid=gid, srqn=srqn, **dict(zip(_NUMBERS, numbers, strict=True)))


NOBODY = Key(0, 0, bytes(16), out_reads=0)
"""Says nothing but that its side is here."""


@dataclass(frozen=True)
class Report:
    """What a bandwidth test measured: MiB/s, and millions of messages a second. ``iterations`` are those of all queue
    pairs.
    """

    size: int
    iterations: int
    peak: float
    average: float
    message_rate: float


class Exchange:
    """One side of the conversation over ``channel``; every method is a session and returns what the peer sent."""

    def __init__(self, channel, *, server):
        self._channel = channel
        self._server = server

    def _swap(self, data, what):
        """Sends ``data`` and returns as many bytes of the peer's."""
        theirs = None
        if self._server:
            theirs = yield from self._channel.receive(len(data), what)
        yield from self._channel.send(data)
        if theirs is None:
            theirs = yield from self._channel.receive(len(data), what)
        return theirs

    def version(self):
        """:class:`.ToolError` if the peer's version is too old."""
        theirs = yield from self._swap(VERSION.encode().ljust(16, b"\0"), "the version")
        text = theirs.split(b"\0")[0].decode("latin-1")
        match = re.match(r"\d+(\.\d+)?", text)
        if not match:
            raise ToolError(f"the peer is no perftest: its version is {text!r}")
        if float(match[0]) < OLDEST:
            raise ToolError(f"the peer's perftest {text} is older than {OLDEST:.2f}")
        return text

    def layout(self, cycle_buffer, cache_line):
        """Size of the buffer that small messages go around in, and the distance between them: the larger ones count."""
        result = []
        for mine, what in ((cycle_buffer, "the size of the cycle buffer"), (cache_line, "the size of a cache line")):
            theirs = yield from self._swap(struct.pack(">i", mine), what)
            result.append(max(mine, *struct.unpack(">i", theirs)))
        return tuple(result)

    def mtu(self, mine):
        """``mine`` or the peer's ``enum ibv_mtu``, whichever is smaller."""
        theirs = yield from self._swap(f"{int(mine)}\0".encode(), "the MTU")
        number = theirs.rstrip(b"\0")
        if number not in (b"1", b"2", b"3", b"4", b"5"):
            raise ToolError(f"the peer's MTU is {theirs!r}, not 1 to 5")
        return min(int(mine), int(number))

    def key(self, mine):
        """Exchanges a :class:`Key`; also the barrier between the phases of a test."""
        return Key.unpack((yield from self._swap(mine.pack(), "a key message")))

    def report(self, mine):
        """Exchanges a :class:`Report`."""
        fields = ((">Q", mine.size), (">Q", mine.iterations), (">d", mine.peak))
        fields += ((">d", mine.average), (">d", mine.message_rate))
        theirs = []
        for form, value in fields:
            data = yield from self._swap(struct.pack(form, value), "the report")
            theirs += struct.unpack(form, data)
        return Report(*theirs)

    def barrier(self):
        """Ends when the peer is here, too."""
        yield from self.key(NOBODY)

    def close(self, mine):
        """The last barrier; both sides leave after it."""
        yield from self.key(mine)
        yield from self._channel.send(DONE)
        yield from self.finish()

    def finish(self):
        """Leaves without a word, as soon as the peer does."""
        yield from self._channel.finish()


class ManagedExchange(Exchange):
    """The same over a connection of the connection manager (:class:`.cm_channel.CmChannel`). ``leave()`` is a session
    that ends the connections which the test has besides.
    """

    def __init__(self, channel, *, server, leave):
        super().__init__(channel, server=server)
        self._leave = leave

    def key(self, mine):
        return Key.unpack_struct((yield from self._swap(mine.pack_struct(), "a key message")))

    def close(self, mine):
        yield from self.key(mine)
        yield from self.finish()

    def finish(self):
        yield from self._leave()
        yield from self._channel.finish()
