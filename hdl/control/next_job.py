"""Which queue pair the keeper of slots looks for next."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PACKETS", "JobKind", "NextJob"]

PACKETS = 7
"""Packets that may go before one of those that are wanted: what is under way comes to its end before more is begun."""


class JobKind(enum.Enum, shape=2):
    """Why a queue pair is looked for."""

    COMMAND = 0
    """A command needs its slot."""
    WANTED = 1
    """It is wanted."""
    PACKET = 2
    """A packet waits for it."""
    AHEAD = 3
    """A packet will: others are before it."""


class NextJob(wiring.Component):
    """Chooses the next job. A command goes first. Packets go before those that are wanted, the one that waits first of
    them, but after 7 packets that went before somebody one of those that are wanted has its turn.

    *Latency*: none, from who asks to ``o`` and from ``o.ready`` to ``wanted.ready`` and ``ahead.ready``. An offer that
    is not taken may change.

    Parameters
    ----------
    qps : int
        A power of two.

    Members
    -------
    command, command_index : 1, QP index
    packet, packet_index : 1, QP index
        Who asks. They ask until their job is done.
    wanted, ahead : streams of QP index
        Taken with their job.
    o : stream of ``{kind, index}``
        ``JobKind``, and the QP.
    """

    def __init__(self, qps):
        self.qps = qps
        index = range(qps)
        super().__init__(
            {
                "command": In(1),
                "command_index": In(index),
                "packet": In(1),
                "packet_index": In(index),
                "wanted": In(stream.Signature(index)),
                "ahead": In(stream.Signature(index)),
                "o": Out(stream.Signature(data.StructLayout({"kind": JobKind, "index": index}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        packets = Signal(range(PACKETS + 1))  # that had their turn while somebody was wanted
        kind, index = self.o.payload.kind, self.o.payload.index
        some = self.packet | self.ahead.valid
        m.d.comb += self.o.valid.eq(self.command | some | self.wanted.valid)
        with m.If(self.command):
            m.d.comb += [kind.eq(JobKind.COMMAND), index.eq(self.command_index)]
        with m.Elif(self.wanted.valid & ((packets == PACKETS) | ~some)):
            m.d.comb += [kind.eq(JobKind.WANTED), index.eq(self.wanted.payload), self.wanted.ready.eq(self.o.ready)]
            with m.If(self.o.ready):
                m.d.sync += packets.eq(0)
        with m.Else():
            m.d.comb += [kind.eq(JobKind.PACKET), index.eq(self.packet_index)]
            with m.If(~self.packet):
                m.d.comb += [
                    kind.eq(JobKind.AHEAD),
                    index.eq(self.ahead.payload),
                    self.ahead.ready.eq(self.o.ready & self.ahead.valid),
                ]
            with m.If(self.o.ready & some):
                m.d.sync += packets.eq(packets + self.wanted.valid)
        return m
