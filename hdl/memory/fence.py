"""When is all over that was under way at a moment?"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Fence"]

COUNT_BITS = 8


class Fence(wiring.Component):
    """Counts what enters and leaves a few lanes, each in order, and waits for what was inside at ``start``.

    What enters later is not waited for. ``done`` comes 2 cycles after ``start`` if nothing is inside, else 2 cycles
    after the last of what was inside has left.

    Parameters
    ----------
    lanes : int

    Members
    -------
    enter, leave : a bit a lane
        Strobes. What leaves has entered at least a cycle before.
    room : a bit a lane
        A register: a few more may enter the lane. It is low from 128 on; up to 255 may be inside.
    start : 1
        Strobe. What enters in the same cycle is waited for.
    done : 1
        A register: all is over that was inside at the last ``start``. Low in the cycle after it.
    """

    def __init__(self, lanes):
        if not isinstance(lanes, int) or lanes < 1:
            raise ValueError(f"lanes must be a positive int, not {lanes!r}")
        self.lanes = lanes
        super().__init__(
            {
                "enter": In(lanes),
                "leave": In(lanes),
                "room": Out(lanes, init=-1),
                "start": In(1),
                "done": Out(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        old = []
        for lane in range(self.lanes):
            inside = Signal(COUNT_BITS, name=f"inside{lane}")
            before = Signal(COUNT_BITS, name=f"before{lane}")  # of those inside, how many were at `start`
            less = self.leave[lane] & ~self.enter[lane]
            after = (inside + Cat(self.enter[lane] ^ self.leave[lane], less.replicate(COUNT_BITS - 1)))[:COUNT_BITS]
            m.d.sync += [inside.eq(after), self.room[lane].eq(~inside[-1])]
            with m.If(self.start):
                m.d.sync += before.eq(after)
            with m.Elif(before.any()):
                m.d.sync += before.eq(before - self.leave[lane])
            old.append(before.any())
        m.d.sync += self.done.eq(~(self.start | Cat(old).any()))
        return m
