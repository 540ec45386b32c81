"""A TCP connection to a peer, during whose silence a device works on."""

import contextlib
import errno
import select
import socket
import time

from ..session import Patience, ToolError

__all__ = ["Channel", "Listener", "connect"]

QUANTUM = 1024
"""Cycles that a simulated device is given between two looks at the socket."""

PAUSE = 0.001
"""Seconds that a wait sleeps at least, once the device has nothing left to do."""

REST = 8
"""And so many times as long as it took the device to find that out: its time passes also while nothing happens, but not
for a whole core.
"""

_CONNECTING = (errno.EINPROGRESS, errno.EALREADY, errno.EINTR)


def _rest(work, sock, *, writing=False):
    """Lets the device work; if it has nothing to do, waits a little for the socket."""
    start = time.monotonic()
    if not work(QUANTUM):
        wanted, pause = [sock], max(PAUSE, REST * (time.monotonic() - start))
        select.select([] if writing else wanted, wanted if writing else [], [], pause)


class Channel:
    """Bytes to and from a peer.

    Parameters
    ----------
    sock : socket.socket
        Connected; made non-blocking, and closed by :meth:`close`.
    work : callable
        Called while there is nothing to read, with a number of cycles: lets the device work so long and returns whether
        it has anything left to do (:meth:`verbena.sw.verbs.device.Context.advance`).
    patience : float, optional
        Seconds of silence after which the peer counts as lost.

    :meth:`send`, :meth:`receive` and :meth:`finish` are sessions. :class:`.ToolError` if the peer is gone.
    """

    def __init__(self, sock, work, patience=None):
        self._sock = sock
        self._work = work
        self._patience = Patience(patience)
        self._received = bytearray()
        self._ended = False
        sock.setblocking(False)

    def send(self, data):
        """Sends all of ``data``."""
        while data:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                if not (yield):
                    _rest(self._work, self._sock, writing=True)
            except OSError as error:
                raise ToolError(f"the peer does not take what is sent: {error.strerror}") from error

    def receive(self, count, what):
        """Returns the next ``count`` bytes, which are ``what`` in words."""
        self._patience.renew()
        while len(self._received) < count:
            if self._ended:
                got = len(self._received)
                raise ToolError(f"the peer closed the connection after {got} of {count} bytes of {what}")
            if not self._read():
                self._patience.check(what)
                yield from self._wait()
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def check(self):
        """Raises :class:`.ToolError` if the peer has closed the connection though more is to come."""
        self._read()
        if self._ended and not self._received:
            raise ToolError("the peer closed the connection in the midst of the test")

    def speaks(self):
        """Whether something of the peer's is here, or on its way, that nobody has received yet."""
        self._read()
        return bool(self._received)

    def finish(self, seconds=2.0):
        """Tells the peer that nothing more comes, and waits until it says so too, ``seconds`` at most; None: as long as
        that takes, during which the device goes on to answer what the peer sends again."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        patience = Patience(seconds)
        while not self._ended and not patience.over:
            if not self._read():
                yield from self._wait()

    def close(self):
        self._sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def _wait(self):
        """A session of one turn. What the others have done in theirs may be all that was waited for."""
        if not (yield) and not self._read():
            _rest(self._work, self._sock)

    def _read(self):
        """Takes what has come; whether anything has, be it the end."""
        if self._ended:
            return False
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return False
        except OSError:  # a reset, most likely: nothing more will come
            data = b""
        self._patience.renew()
        self._ended = not data
        self._received += data
        return True


class Listener:
    """A server's socket; ``port`` is the one that it got, ``address`` empty for all of this machine's."""

    def __init__(self, port, address=""):
        try:
            self._sock = socket.create_server((address, port))
        except OSError as error:
            code = errno.errorcode.get(error.errno, error.errno)
            raise ToolError(f"cannot listen on port {port}: {code}") from None
        self._sock.setblocking(False)
        self.port = self._sock.getsockname()[1]

    def accept(self, work, patience=None, cut=lambda: False):
        """A session that returns the :class:`Channel` to the first client; parameters as there. :class:`.ToolError`
        when ``cut()``: nobody can come any more.
        """
        limit = Patience(patience)
        while True:
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                limit.check("a client")
                if cut():
                    raise ToolError("nobody can come: the network has ended") from None
                if not (yield):
                    _rest(work, self._sock)
            else:
                return Channel(sock, work, patience)

    def close(self):
        self._sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def connect(host, port, work, patience=None):
    """A session that returns the :class:`Channel` to a server; parameters as there."""
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ToolError(f"no address of {host!r}: {error.strerror}") from error
    except UnicodeError as error:
        raise ToolError(f"no address of {host!r}: it is no name of a host") from error
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        limit = Patience(patience)
        code = sock.connect_ex(address)
        while code in _CONNECTING:
            limit.check(f"{host} port {port}")
            if not (yield):
                _rest(work, sock, writing=True)
            code = sock.connect_ex(address)
        if code not in (0, errno.EISCONN):
            raise ToolError(f"cannot connect to {host} port {port}: {errno.errorcode.get(code, code)}")
    except BaseException:
        sock.close()
        raise
    return Channel(sock, work, patience)
