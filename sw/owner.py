"""Who drives an adapter: one driver at a time.

The adapter's register ``owner`` names the driver, so that no two have it, wherever they run. It cannot tell a driver
that was killed from one that lives: that is what the operating system's lock on a file is for, which it lets go of with
the process.
"""

import errno
import fcntl
import gc
import hashlib
import os
import re
import secrets
import tempfile
import uuid
import weakref
from pathlib import Path

from verbena.hdl.abi.registers import REGISTERS

from .errors import AdapterError

__all__ = ["Owner", "claim"]

OWNER = REGISTERS["owner"].offset
OWNED = 1
HOST_BITS = 15

_living = weakref.WeakValueDictionary()
"""Owners in this process, by what stands in the register."""


def _host():
    """The high bits of the register: which host the driver runs on."""
    return int.from_bytes(hashlib.sha256(f"{uuid.getnode():x} {os.uname().nodename}".encode()).digest()[:4], "big") >> (
        32 - HOST_BITS
    )


class Owner:
    """An adapter that is claimed, until :meth:`give_up`. One that is forgotten counts as killed."""

    def __init__(self, port, token, lock):
        self._port = port
        self._lock = lock
        self.token = token
        _living[token] = self

    def give_up(self):
        """Others may claim the adapter. A second time does nothing."""
        if self._port is not None:
            if self._port.read32(OWNER) == self.token:
                self._port.write32(OWNER, 0)
            self.forget()

    def forget(self):
        """As if the process had been killed: the register stays as it is, for the next driver of this host to see."""
        self._port = None
        _living.pop(self.token, None)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __del__(self):
        self.forget()


def _lock_file(key):
    """A descriptor of the file ``key``, locked; None if another process, or another owner in this one, holds it."""
    path = Path(tempfile.gettempdir()) / f"verbena-{re.sub('[^A-Za-z0-9.]', '-', key)}.lock"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def claim(port):
    """The :class:`Owner` of the adapter behind ``port``; ``AdapterError`` (EBUSY) if it has a living one.

    A port that other processes can open, too, has ``key``, by which all of this host know the device. What a driver of
    this host that was killed has left is taken over. A driver of another host may live: its claim stays until somebody
    writes 0 to the register.
    """
    before = port.read32(OWNER)
    if before in _living:
        gc.collect()  # forgotten, perhaps, and only not yet collected
    if before in _living:
        raise AdapterError(errno.EBUSY, f"device {port.name!r} is in use by another driver in this process")
    key, lock = getattr(port, "key", None), None
    if key is not None and (lock := _lock_file(key)) is None:
        raise AdapterError(errno.EBUSY, f"device {port.name!r} is in use by another process")
    owner = Owner(port, _host() << 32 - HOST_BITS | secrets.randbits(31 - HOST_BITS) << 1 | OWNED, lock)
    if before & OWNED and before >> 32 - HOST_BITS == _host():
        port.write32(OWNER, 0)
    port.write32(OWNER, owner.token)
    if port.read32(OWNER) != owner.token:
        owner.forget()
        raise AdapterError(errno.EBUSY, f"device {port.name!r} is in use by a driver on another host")
    return owner
