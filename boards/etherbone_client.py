"""A driver's end of Etherbone: words of a node read and written over UDP."""

import errno
import itertools
import socket
import struct
import threading

from .etherbone import ALL_BYTES, CYCLE, MAGIC, NO_READS, PORT, SIZES, VERSION

__all__ = ["EtherboneClient", "UdpTransport"]

MOST = 255
"""Words of a packet."""

HEADER = struct.Struct(">HBBI")
TRIES = 5


class UdpTransport:
    """UDP packets to a node and back; a packet that is lost is the caller's business.

    Parameters
    ----------
    host : str
        Name or address.
    timeout : float
        Seconds to wait for an answer.
    """

    def __init__(self, host, timeout=0.2):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(timeout)
        self.socket.connect((host, PORT))

    def send(self, packet):
        self.socket.send(packet)

    def receive(self):
        """The next packet that comes, or None."""
        try:
            return self.socket.recv(2048)
        except (TimeoutError, ConnectionError):
            return None


class EtherboneClient:
    """Reads and writes words of 32 bits. What is not answered is sent again, writes too: they must bear it.

    Parameters
    ----------
    transport : object
        With ``send`` and ``receive``, as :class:`UdpTransport` has them.
    check : int
        An address that can always be read: a read of it acknowledges writes.

    Raises
    ------
    OSError
        ETIMEDOUT if the node does not answer.
    """

    def __init__(self, transport, check):
        self.transport = transport
        self.check = check
        self._tags = itertools.count(1)
        self._lock = threading.Lock()

    def read(self, addresses):
        """List of the words at ``addresses``."""
        values = []
        for start in range(0, len(addresses), MOST):
            values += self._exchange(b"", 0, addresses[start : start + MOST])
        return values

    def write(self, address, values):
        """Writes consecutive words from ``address`` on, in order; they are there when this returns."""
        for start in range(0, len(values), MOST):
            part = values[start : start + MOST]
            text = struct.pack(f">I{len(part)}I", address + 4 * start, *part)
            self._exchange(text, len(part), [self.check])

    def _exchange(self, writes, count, reads):
        with self._lock:
            tag = next(self._tags) & 0xFFFFFFFF
            packet = HEADER.pack(MAGIC, VERSION, SIZES, 0) + bytes([CYCLE, ALL_BYTES, count, len(reads)])
            packet += writes + struct.pack(f">I{len(reads)}I", tag, *reads)
            for _ in range(TRIES):
                self.transport.send(packet)
                while (answer := self.transport.receive()) is not None:
                    values = self._values(answer, tag, len(reads))
                    if values is not None:
                        return values
            raise OSError(errno.ETIMEDOUT, "the node does not answer")

    def _values(self, answer, tag, count):
        """The words in the answer, if it is the one with ``tag``."""
        if len(answer) < 16 + 4 * count:
            return None
        magic, version, sizes, _ = HEADER.unpack_from(answer)
        _, _, words, _, came = struct.unpack_from(">BBBBI", answer, HEADER.size)
        if (magic, version, sizes, words, came) != (MAGIC, VERSION | NO_READS, SIZES, count, tag):
            return None
        return list(struct.unpack_from(f">{count}I", answer, 16))
