"""Whether the bus answers."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["UNIT", "BusWatch"]

UNIT = 1024
"""Cycles of which ``limit`` counts."""


class BusWatch(wiring.Component):
    """Says when a client of the bus has waited for too long.

    A client is overdue that has bursts without an answer, and got none for ``limit`` to ``2 * limit + 1`` units of
    :data:`UNIT` cycles: answers to one client come in order, so each of them shows that the oldest burst was not
    forgotten.

    Parameters
    ----------
    most : list of int
        For each client, how many bursts it may have without an answer.

    Members
    -------
    taken, answered : a bit a client
        Strobes: a burst has left the client; the last of an answer has come.
    stop : 1
        The bus takes nothing, and nobody is overdue.
    limit : 16
        0: nobody is ever overdue. A change counts from the next look on, or from the end of ``stop``.
    overdue : 1
        Until a reset.
    """

    def __init__(self, most):
        if not most or any(not isinstance(each, int) or each < 1 for each in most):
            raise ValueError(f"most must be positive ints, one a client, not {most!r}")
        self.most = list(most)
        clients = len(self.most)
        super().__init__(
            {"taken": In(clients), "answered": In(clients), "stop": In(1), "limit": In(16), "overdue": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        clients = len(self.most)
        waiting, late = Signal(clients), Signal(clients)  # `late`: since the last look, and nothing came
        taken, answered = Signal(clients), Signal(clients)
        m.d.sync += [taken.eq(self.taken), answered.eq(self.answered)]
        for number, most in enumerate(self.most):
            count = Signal(range(most + 1), name=f"unanswered_{number}")
            with m.If(taken[number] ^ answered[number]):  # one carry chain for both ways
                m.d.sync += count.eq(count + Cat(1, answered[number].replicate(len(count) - 1)))
            m.d.sync += waiting[number].eq(count != 0)

        cycles, left = Signal(range(UNIT)), Signal(16)
        unit, look = Signal(), Signal()
        m.d.sync += [cycles.eq(cycles + 1), unit.eq(cycles.all()), look.eq(unit & (left == 0))]
        with m.If(unit):
            m.d.sync += left.eq(left - 1)
        with m.If(look):
            m.d.sync += left.eq(self.limit - 1)
            with m.If((late & waiting & ~answered).any() & (self.limit != 0)):
                m.d.sync += self.overdue.eq(1)
        with m.If(self.stop):
            m.d.sync += left.eq(0)
        for number in range(clients):
            with m.If(self.stop | answered[number] | ~waiting[number]):
                m.d.sync += late[number].eq(0)
            with m.Elif(look):
                m.d.sync += late[number].eq(1)
        return m
