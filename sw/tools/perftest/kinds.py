"""The tests of perftest, by the names of its programs without their ``ib_``."""

from dataclasses import dataclass
from enum import Enum

from ...verbs.libibverbs_enums import ibv_access_flags

__all__ = ["KINDS", "Kind", "Verb"]

A = ibv_access_flags


class Verb(Enum):
    """What a test does; the value is how its title says it."""

    SEND = "Send"
    WRITE = "RDMA_Write"
    READ = "RDMA_Read"
    ATOMIC = "Atomic"


_ACCESS = {
    Verb.SEND: 0,
    Verb.WRITE: A.IBV_ACCESS_REMOTE_WRITE,
    Verb.READ: A.IBV_ACCESS_REMOTE_READ,
    Verb.ATOMIC: A.IBV_ACCESS_REMOTE_ATOMIC,
}


@dataclass(frozen=True)
class Kind:
    """A test: what it does, and whether it measures latency or bandwidth."""

    verb: Verb
    latency: bool

    @property
    def name(self):
        return f"{self.verb.name.lower()}_{'lat' if self.latency else 'bw'}"

    @property
    def access(self):
        """What the peer may do to the region of a side that it works on."""
        return _ACCESS[self.verb]

    @property
    def reading(self):
        """Whether something comes back, of which only so much may be under way."""
        return self.verb in (Verb.READ, Verb.ATOMIC)

    @property
    def symmetric(self):
        """Whether the server sends messages of its own even in one direction: to and fro."""
        return self.latency and not self.reading


KINDS = {kind.name: kind for verb in Verb for kind in (Kind(verb, False), Kind(verb, True))}
