"""Several streams of accesses into one, run by run."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .arbiter import pick
from .transfer import AccessRequest

__all__ = ["RunArbiter"]


class RunArbiter(wiring.Component):
    """Merges ``count`` streams of accesses. A run passes whole, until its ``last``; then the next valid input in the
    round is served.

    There is one register, behind the choice: an access taken at an input in cycle *n* is at ``o`` in cycle *n + 1*, and
    the next is taken in the cycle after ``o`` has handed it on. No path leads from ``o.ready`` to an input. Since
    nothing is buffered before the choice, accesses leave in the order in which they were taken: who begins a run only
    when another input's has been taken whole, comes behind it.

    Whose turn it is, is a register. A change of input costs a cycle, in which nothing is taken, unless ``hint`` has
    told of it.

    Parameters
    ----------
    count : int
        Inputs, at least 2.

    Members
    -------
    i : ``count`` streams of ``AccessRequest``
    hint : a bit an input
        A run is about to come there: if nobody else has one, it is that one's turn.
    o : stream of ``AccessRequest``
    """

    def __init__(self, count):
        if not isinstance(count, int) or count < 2:
            raise ValueError(f"count must be an int of at least 2, not {count!r}")
        self.count = count
        super().__init__(
            {
                "i": In(stream.Signature(AccessRequest)).array(count),
                "hint": In(count),
                "o": Out(stream.Signature(AccessRequest)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        valid = Signal(self.count)
        grant = Signal(range(self.count))  # whose run is under way, or the next
        inside = Signal()
        taken, last = Signal(), Signal()
        m.d.comb += [
            valid.eq(Cat(port.valid for port in self.i)),
            taken.eq(pick(valid, grant) & ~self.o.valid),
            last.eq(pick([port.payload.last for port in self.i], grant)),
        ]
        for number, port in enumerate(self.i):
            m.d.comb += port.ready.eq(~self.o.valid & (grant == number))

        with m.If(self.o.valid):
            m.d.sync += self.o.valid.eq(~self.o.ready)
        with m.Else():
            m.d.sync += [
                self.o.valid.eq(taken),
                Value.cast(self.o.payload).eq(pick([Value.cast(port.payload) for port in self.i], grant)),
            ]
        with m.If(taken):
            m.d.sync += inside.eq(~last)

        # The turn moves when a run has ended, or before one has begun.
        with m.If(Mux(taken, last, ~inside & ~pick(valid, grant))), m.Switch(grant):
            for number in range(self.count):
                with m.Case(number):
                    for wish in (self.hint & ~pick(self.hint, grant).replicate(self.count), valid):
                        for step in range(self.count - 1, 0, -1):
                            other = (number + step) % self.count
                            with m.If(wish[other]):
                                m.d.sync += grant.eq(other)
        return m
