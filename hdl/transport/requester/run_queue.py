"""Accesses of a run, let out only when the whole run is known to be good."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.transfer import AccessRequest

__all__ = ["RunAccess", "RunQueue"]

DEPTH = 16
"""Rows at least: LUT RAM has that many anyway."""

WAITING = 8
"""Accesses, at least, that may wait to leave when the next run begins."""


RunAccess = data.StructLayout(
    {name: AccessRequest[name].shape for name in ("key", "address", "length", "pd", "qp", "clear", "last")}
)
"""What differs among the requester's accesses: all are local reads, and ``span`` is ``length``."""


class RunQueue(wiring.Component):
    """Holds accesses back until their run is complete, so that a run found wrong halfway leaves no trace.

    An access is put in with ``put``, which never waits: who puts must have seen ``room`` before the run's first access.
    With ``commit`` and ``put`` the accesses put so far, the present one included, may leave; ``drop``, without ``put``,
    forgets those that may not.
    An access comes out at the earliest in the cycle after its ``commit``.

    Parameters
    ----------
    run : int
        Most accesses in a run.

    Members
    -------
    access, put : ``RunAccess``, 1
        What to keep.
    commit, drop : 1
        End of the run.
    room : 1
        A whole run fits. Only meaningful between runs, from the second cycle after one on.
    o : stream of ``AccessRequest``
    """

    def __init__(self, run):
        if not isinstance(run, int) or not 1 <= run <= 64:
            raise ValueError(f"run must be 1 to 64, not {run!r}")
        self.run = run
        self.depth = max(DEPTH, 1 << (run + WAITING - 1).bit_length())
        super().__init__(
            {
                "access": In(RunAccess),
                "put": In(1),
                "commit": In(1),
                "drop": In(1),
                "room": Out(1),
                "o": Out(stream.Signature(AccessRequest)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(shape=RunAccess, depth=self.depth, init=[])
        write, read = rows.write_port(), rows.read_port(domain="comb")
        # `behind` is always the one after `tail`, so that nothing is added in a hurry.
        count = range(2 * self.depth)
        head, good, tail, behind = Signal(count), Signal(count), Signal(count), Signal(count, init=1)
        m.d.comb += [
            write.addr.eq(tail),
            write.data.eq(self.access),
            write.en.eq(self.put),
            read.addr.eq(head),
            *(self.o.payload[name].eq(read.data[name]) for name in RunAccess.members),
            self.o.payload.span.eq(read.data.length),
            self.o.valid.eq(head != good),
        ]
        m.d.sync += self.room.eq((tail - head)[: len(head)] <= self.depth - self.run)
        with m.If(self.drop):
            m.d.sync += [tail.eq(good), behind.eq(good + 1)]
        with m.Elif(self.put):
            m.d.sync += [tail.eq(behind), behind.eq(behind + 1)]
        with m.If(self.commit):
            m.d.sync += good.eq(behind)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += head.eq(head + 1)
        return m
