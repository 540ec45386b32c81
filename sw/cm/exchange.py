"""What connections and inquiries have in common: a message that is repeated until it is answered."""

__all__ = ["Exchange"]


class Exchange:
    """One side's part of a conversation.

    Parameters
    ----------
    wire : object
        ``send(mad, vector)`` sends a MAD, and ``now`` is the time in ms.
    vector : AddressVector
        The way to the other side's QP1.
    tell : callable
        Called with an :class:`.events.Happening` when something has happened; None from the moment that nobody listens.
    """

    def __init__(self, wire, vector, tell):
        self.wire = wire
        self.vector = vector
        self.tell = tell
        self.deadline = None
        """Time of the next repetition, or of what else is due; None: nothing is."""
        self._repeated, self._wait, self._left = None, 0, 0

    def _say(self, message, tid):
        self.wire.send(message.pack(tid), self.vector)

    def _ask(self, message, tid, wait, retries):
        """Sends a message, and again each ``wait`` ms, ``retries`` times, unless :meth:`_heard` comes before."""
        self._repeated, self._wait, self._left = (message, tid), wait, retries
        self.deadline = self.wire.now + wait
        self._say(message, tid)

    def _heard(self):
        """The message is answered, or needs no answer any more."""
        self._repeated = self.deadline = None

    def _happens(self, happening):
        if self.tell is not None:
            self.tell(happening)

    def expire(self):
        """The deadline has passed."""
        if self._repeated is not None and self._left:
            self._left -= 1
            self.deadline = self.wire.now + self._wait
            self._say(*self._repeated)
        else:
            self._heard()
            self._give_up()

    def _give_up(self):
        """The last repetition has not been answered, or another time is over."""
        raise NotImplementedError
