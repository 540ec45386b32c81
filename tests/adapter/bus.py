"""What passed the host buses, out of a capture of the simulated world (``sim/native/capture.h``)."""

import struct
from contextlib import contextmanager
from typing import NamedTuple

from verbena.sim.devices import world

__all__ = ["Transaction", "record"]

INTERFACE, PACKET = 1, 6
"""pcapng: types of blocks."""

USER0 = 147
"""Link type of the buses."""


class Transaction(NamedTuple):
    """One burst of DMA; ``start`` is the cycle in which its address was taken."""

    write: bool
    address: int
    length: int
    start: int

    def within(self, pages):
        """Whether it touches one of these pages of 4 KiB."""
        return self.address & ~4095 in pages


def transactions(path):
    content = path.read_bytes()
    at, links, found = 0, [], []
    while at < len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind == INTERFACE:
            links.append(struct.unpack_from("<H", content, at + 8)[0])
        elif kind == PACKET and links[struct.unpack_from("<I", content, at + 8)[0]] == USER0:
            what, length, address, start = struct.unpack_from("<B3xIQQ", content, at + 28)
            if what < 2:
                found.append(Transaction(bool(what), address, length, start))
        at += size
    return found


@contextmanager
def record(path):
    """Gives a list that holds, behind the block, all :class:`Transaction` that ended in it and began in it."""
    found = []
    begin = world().cycles
    world().capture(path, bus=True)
    try:
        yield found
    finally:
        world().capture(None)
    found += [transaction for transaction in transactions(path) if transaction.start >= begin]
