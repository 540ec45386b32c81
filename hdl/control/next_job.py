"""What the keeper of slots does next."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PACKETS", "JobKind", "NextJob"]

PACKETS = 7
"""Packets that may go before one of those that are wanted: what is under way comes to its end before more is begun."""


class JobKind(enum.Enum, shape=3):
    """Why the keeper works."""

    LOST = 0
    """The QP's record could not be written: it is forgotten. The keeper finds that out, and nobody asks for it."""
    COMMAND = 1
    """A command needs the QP's slot."""
    EVICT = 2
    """The QP of a slot is to leave it."""
    WANTED = 3
    """The QP is wanted."""
    PACKET = 4
    """A packet waits for the QP."""


class NextJob(wiring.Component):
    """Chooses the next job. A command goes first, then one that is to leave. Packets go before those that are wanted,
    but after 7 packets that went before somebody one of those that are wanted has its turn.

    *Latency*: none, from who asks to ``o`` and from ``o.ready`` to ``wanted.ready``. An offer that is not taken may
    change.

    Parameters
    ----------
    qps : int
        A power of two.

    Members
    -------
    command, command_index : 1, QP index
    evict : 1
    packet, packet_index : 1, QP index
        Who asks. They ask until their job is done.
    wanted : stream of QP index
        Taken with its job.
    o : stream of ``{kind, index}``
        ``JobKind``, and the QP; the QP of an EVICT is not told.
    """

    def __init__(self, qps):
        self.qps = qps
        index = range(qps)
        super().__init__(
            {
                "command": In(1),
                "command_index": In(index),
                "evict": In(1),
                "packet": In(1),
                "packet_index": In(index),
                "wanted": In(stream.Signature(index)),
                "o": Out(stream.Signature(data.StructLayout({"kind": JobKind, "index": index}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        packets = Signal(range(PACKETS + 1))  # that had their turn while somebody was wanted
        kind, index = self.o.payload.kind, self.o.payload.index
        m.d.comb += self.o.valid.eq(self.command | self.evict | self.packet | self.wanted.valid)
        with m.If(self.command):
            m.d.comb += [kind.eq(JobKind.COMMAND), index.eq(self.command_index)]
        with m.Elif(self.evict):
            m.d.comb += kind.eq(JobKind.EVICT)
        with m.Elif(self.wanted.valid & ((packets == PACKETS) | ~self.packet)):
            m.d.comb += [kind.eq(JobKind.WANTED), index.eq(self.wanted.payload), self.wanted.ready.eq(self.o.ready)]
            with m.If(self.o.ready):
                m.d.sync += packets.eq(0)
        with m.Else():
            m.d.comb += [kind.eq(JobKind.PACKET), index.eq(self.packet_index)]
            with m.If(self.o.ready & self.packet):
                m.d.sync += packets.eq(packets + self.wanted.valid)
        return m
