"""A link to another simulator: the handshake of SimBricks' Ethernet interface, version 1.

One end listens on a unix socket and brings the memory that both share; the other connects. Then either end is a
:class:`Link`, which a world (``World(link=...)``) or the switch (:mod:`.switch`) takes over. ``native/link.h`` is what
moves frames and time from then on. Latencies are not exchanged: each end adds its own to what it sends.

Two ends of this project also agree on bells: bytes behind the rings in which each says that it sleeps, so that the
other one wakes it by a byte on the socket. The last word of the introductions, which others ignore, tells that an end
has bells, and of which process it is: a proxy that hands an introduction on is another one.
"""

import contextlib
import errno
import mmap
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from .library import LinkSettings, RingPlace

__all__ = ["LATENCY_NS", "MTU", "Link", "LinkError", "Listener", "connect", "frame_bytes", "listen"]

VERSION = 1
NETWORK = 1
"""The protocol's id of Ethernet; 0 is the base, 2 PCIe, 3 memory."""
SYNC, FORCE = 1, 2

LISTENER = struct.Struct("<10QI")
CONNECTOR = struct.Struct("<4QI")
_HEADER = 64
BELLS = 0x42425256
"""The last word of the introduction of an end that has bells is this, exclusive-or its process."""
BELL_BYTES = 64
"""Of each bell: a line of the cache. The listener's stands first."""
_PROTOCOLS = {0: "base", 1: "network", 2: "PCIe", 3: "memory"}
_UPPER = {LISTENER: 80, CONNECTOR: 32}

LATENCY_NS = 500.0
"""SimBricks' own: 100 m of fibre."""
MTU = 4096
SLOTS = 1024
LONGEST_PATH = 107

SILENT = 1.0
"""Seconds after which who waits for the peer says so."""

PAUSE = 0.05
"""Seconds between two looks for the peer: Ctrl-C gets through."""


class LinkError(OSError):
    """A link does not come about; the text is one line that says why, and how to mend it."""


def frame_bytes(mtu):
    """Of the longest frame at an MTU: Ethernet, IPv4, UDP, BTH, RETH, immediate, data, ICRC; no FCS."""
    return 14 + 20 + 8 + 12 + 16 + 4 + mtu + 4


@dataclass
class Link:
    """One end, ready for use by its one user; ``close`` if nobody takes it.

    ``latency_ps`` is added to what this end sends, and it sends something each ``interval_ps`` at least. ``epoch_ps``
    is this end's time when the peer's clock stands at 0.
    """

    socket: socket.socket
    memory: int
    memory_bytes: int
    out: tuple
    into: tuple
    latency_ps: int
    interval_ps: int
    epoch_ps: int = 0
    bells: tuple = (0, 0)
    """Offsets of this end's bell and of the peer's; 0 without."""

    def settings(self):
        """For the native end, which owns both descriptors from then on."""
        socket_fd, memory, self.memory = self.socket.detach(), self.memory, -1
        places = (RingPlace(*self.out), RingPlace(*self.into))
        return LinkSettings(
            socket_fd,
            memory,
            self.memory_bytes,
            *places,
            self.latency_ps,
            self.interval_ps,
            self.epoch_ps,
            *self.bells,
        )

    def close(self):
        self.socket.close()
        if self.memory >= 0:
            os.close(self.memory)
            self.memory = -1


def _times(latency_ns, interval_ns):
    interval_ns = latency_ns / 2 if interval_ns is None else interval_ns
    if not latency_ns > 0:
        raise ValueError(f"latency_ns must be more than 0, not {latency_ns!r}")
    if not 0 < interval_ns <= latency_ns:
        raise ValueError(f"interval_ns must be more than 0 and at most the latency, not {interval_ns!r}")
    return round(latency_ns * 1000), round(interval_ns * 1000)


def _address(path):
    path = str(path)
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise LinkError(errno.ENAMETOOLONG, f"the socket's path is longer than {LONGEST_PATH} bytes: {path}")
    return path


def _check(path, version, flags, protocol):
    """What the peer's introduction says."""
    if version != VERSION:
        raise LinkError(
            errno.EPROTO,
            f"{path}: the peer speaks version {version} of SimBricks' interface, this end version {VERSION}: "
            "take a SimBricks of 2022-06-18 or later",
        )
    if protocol != NETWORK:
        name = _PROTOCOLS.get(protocol, protocol)
        raise LinkError(
            errno.EPROTO, f"{path}: the peer's end is of the protocol {name}, not network: give it another socket"
        )
    if not flags & SYNC:
        raise LinkError(
            errno.EPROTO,
            f"{path}: the peer does not synchronize, and this end must: start it with sync=true "
            "(net_switch: without -u)",
        )


def _has_bells(sock, word):
    """Whether the last word of an introduction is that of the process at the other end of the socket."""
    process, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return process > 0 and word == BELLS ^ process


def _receive(sock, layout, path, fds=0):
    """The peer's introduction, of the ``layout``'s size or, without an upper part, shorter; and descriptors."""
    sock.setblocking(True)
    sock.settimeout(PAUSE)
    while True:
        try:
            data, found, _, _ = socket.recv_fds(sock, 256, max(fds, 1))
            break
        except TimeoutError:
            yield
        except OSError as error:
            raise LinkError(error.errno, f"{path}: the peer went away: {error.strerror}") from None
    if not data:
        raise LinkError(errno.ECONNRESET, f"{path}: the peer hung up, as it does if another program is there already")
    least = _UPPER[layout]
    if len(data) < least:
        raise LinkError(errno.EPROTO, f"{path}: the peer's introduction has {len(data)} bytes, not {least} or more")
    data = data[: layout.size].ljust(layout.size, b"\0")
    sock.settimeout(None)
    return layout.unpack(data), found


def _wait(session, patience, what, waiting=None):
    """Runs a session that yields each ``PAUSE``, until it returns or ``patience`` seconds are over; calls ``waiting``
    once, if that takes longer than :data:`SILENT`.
    """
    start = time.monotonic()
    while True:
        try:
            next(session)
        except StopIteration as stop:
            return stop.value
        waited = time.monotonic() - start
        if waiting is not None and waited > SILENT:
            waiting()
            waiting = None
        if patience is not None and waited > patience:
            session.close()
            raise LinkError(errno.ETIMEDOUT, f"{what} for {patience:g} s")


class Listener:
    """A socket at ``path`` that a peer may connect to. A stale one, of a program that was killed, is taken away.

    Slots are as long as the ``mtu`` needs. :class:`LinkError` (EADDRINUSE) if a living program listens there.
    """

    def __init__(self, path, *, latency_ns=LATENCY_NS, interval_ns=None, mtu=MTU, slots=SLOTS):
        self.path = Path(_address(path))
        self._times = _times(latency_ns, interval_ns)
        self._slots = slots
        self._slot_bytes = -(-(_HEADER + frame_bytes(mtu)) // 64) * 64
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind()
        except BaseException:
            self._socket.close()
            raise
        self._inode = self.path.stat().st_ino

    def _bind(self):
        for attempt in range(2):
            try:
                self._socket.bind(str(self.path))
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise LinkError(error.errno, f"cannot listen at {self.path}: {error.strerror}") from None
                if attempt or _alive(self.path):
                    raise LinkError(
                        errno.EADDRINUSE,
                        f"another program listens at {self.path}: end it, or choose another path",
                    ) from None
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()
        self._socket.listen(1)

    def fileno(self):
        return self._socket.fileno()

    def accept(self, patience=None, waiting=None):
        """The :class:`Link` to the first peer that connects, waited for at most ``patience`` seconds; ``waiting()`` is
        called once if none has come after a second.

        A peer that hangs up at once, as one does that only looks whether somebody listens, is passed over.
        """
        return _wait(self._accept(), patience, f"nobody connected to {self.path}", waiting)

    def _accept(self):
        self._socket.settimeout(PAUSE)
        while True:
            try:
                peer, _ = self._socket.accept()
            except TimeoutError:
                yield
                continue
            try:
                return (yield from self._greet(peer))
            except LinkError as error:
                peer.close()
                if error.errno not in (errno.ECONNRESET, errno.EPIPE):
                    raise
            except BaseException:
                peer.close()
                raise

    def _greet(self, peer):
        size = self._slots * self._slot_bytes
        memory = os.memfd_create("verbena-link")
        try:
            os.ftruncate(memory, 2 * size + 2 * BELL_BYTES)  # zeroes
            out, into = (0, self._slot_bytes, self._slots), (size, self._slot_bytes, self._slots)
            intro = LISTENER.pack(VERSION, SYNC | FORCE, *out, *into, NETWORK, 80, BELLS ^ os.getpid())
            try:
                socket.send_fds(peer, [intro], [memory])
            except OSError as error:
                raise LinkError(error.errno, f"{self.path}: {error.strerror}") from None
            (version, flags, protocol, _, bells), _ = yield from _receive(peer, CONNECTOR, self.path)
            _check(self.path, version, flags, protocol)
        except BaseException:
            os.close(memory)
            raise
        places = (2 * size, 2 * size + BELL_BYTES) if _has_bells(peer, bells) else (0, 0)
        return Link(peer, memory, 2 * size + 2 * BELL_BYTES, out, into, *self._times, bells=places)

    def close(self):
        """Takes the socket away, if it is still this one's."""
        with contextlib.suppress(FileNotFoundError):
            if self._socket.fileno() >= 0 and self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _alive(path):
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def listen(path, *, patience=None, waiting=None, **options):
    """The :class:`Link` to whoever connects to ``path``; options of :class:`Listener`, whose :meth:`~Listener.accept`
    gets ``patience`` and ``waiting``. The socket is gone then.
    """
    with Listener(path, **options) as listener:
        return listener.accept(patience, waiting)


def connect(path, *, latency_ns=LATENCY_NS, interval_ns=None, mtu=MTU, patience=None, waiting=None):
    """The :class:`Link` to who listens, or will listen, at ``path``; waits for it at most ``patience`` seconds, and
    calls ``waiting()`` once if that takes longer than a second.

    The listener's slots must hold the frames of the ``mtu``.
    """
    session = _connect(_address(path), _times(latency_ns, interval_ns), mtu)
    return _wait(session, patience, f"nobody answered at {path}", waiting)


def _connect(path, times, mtu):
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        code = sock.connect_ex(path)
        if code == 0:
            break
        sock.close()
        if code not in (errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN):
            raise LinkError(code, f"cannot connect to {path}: {os.strerror(code)}")
        time.sleep(PAUSE)
        yield
    found = []
    try:
        sock.sendall(CONNECTOR.pack(VERSION, SYNC | FORCE, NETWORK, 32, BELLS ^ os.getpid()))
        intro, found = yield from _receive(sock, LISTENER, path, 1)
        version, flags, *places, protocol, _, bells = intro
        _check(path, version, flags, protocol)
        if len(found) != 1:
            raise LinkError(
                errno.EPROTO, f"{path}: the listener sends no memory: it is not one of SimBricks' interface"
            )
        into, out = tuple(places[:3]), tuple(places[3:])
        size = os.fstat(found[0]).st_size
        for ring in (into, out):
            _check_ring(path, ring, size, mtu)
        end = max(offset + slot_bytes * slots for offset, slot_bytes, slots in (into, out))
        agreed = _has_bells(sock, bells) and end % BELL_BYTES == 0 and end + 2 * BELL_BYTES <= size
        places = (end + BELL_BYTES, end) if agreed else (0, 0)
        return Link(sock, found[0], -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, out, into, *times, bells=places)
    except BaseException as error:
        sock.close()
        for descriptor in found:
            os.close(descriptor)
        if isinstance(error, BrokenPipeError | ConnectionResetError):
            raise LinkError(error.errno, f"{path}: the peer hung up, as it does if another program is there") from None
        raise


def _check_ring(path, ring, size, mtu):
    offset, slot_bytes, slots = ring
    if slots < 1 or offset + slot_bytes * slots > size:
        raise LinkError(
            errno.EPROTO, f"{path}: {slots} slots of {slot_bytes} bytes at {offset} are not in the memory of {size}"
        )
    needed = _HEADER + frame_bytes(mtu)
    if slot_bytes < needed:
        raise LinkError(
            errno.EMSGSIZE,
            f"{path}: slots of {slot_bytes} bytes are too small for MTU {mtu}: have the listener make them "
            f"{needed} bytes or longer{_other_mtu(slot_bytes)}",
        )


def _other_mtu(slot_bytes):
    """The largest MTU that such slots do for, in words."""
    fits = [mtu for mtu in (2048, 1024, 512, 256) if _HEADER + frame_bytes(mtu) <= slot_bytes]
    return f", or use an MTU of {fits[0]}" if fits else ""
