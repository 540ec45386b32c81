"""What happens to a connection, or to an inquiry, that its owner must know."""

import enum
from dataclasses import dataclass

__all__ = ["Happened", "Happening"]


class Happened(enum.Enum):
    """What it is."""

    REQUEST = "a peer asks for a connection, or for the QP of a service"
    RESPONSE = "the peer has accepted"
    ESTABLISHED = "the connection can be used, or the QP of a service is known"
    REJECTED = "the peer has refused"
    UNREACHABLE = "nobody has answered, or the service is refused"
    DISCONNECTED = "the peer wants to end the connection, or has ended it"
    TIMEWAIT_EXIT = "packets of the connection cannot come any more"


@dataclass(frozen=True)
class Happening:
    """One event; ``status`` is a reason of the peer, a positive number, or a negative errno, or 0. ``message`` is what
    has come, if anything has.
    """

    kind: Happened
    status: int = 0
    message: object = None

    @property
    def private_data(self):
        return b"" if self.message is None else self.message.private_data
