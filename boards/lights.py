"""What a board's LEDs show."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["LIGHTS", "Lights"]

LIGHTS = {
    "alive": "about one blink a second; it flickers while frames are received or sent",
    "received": "flickers with good frames that are received",
    "sent": "flickers with frames that are sent",
    "damaged": "flickers with received frames that are damaged",
}
"""In the order of a board's LEDs: a board with one LED shows the first."""

STEPS = 16
"""Steps of a blink; a frame is shown for one of them."""


class Lights(wiring.Component):
    """Makes what happens in a cycle long enough to be seen.

    A blink takes 2^n cycles, between one and two seconds, and has 16 steps. A step in which something is shown is dark
    in its first half and lit in its second; it is the first whole one behind what happened. ``alive`` is the other way
    round while it is lit itself.

    Parameters
    ----------
    clock : int
        Hz of ``sync``, at least 17.

    Members
    -------
    received, sent, damaged : 1
        Strobes: a good frame came, a frame went, a damaged frame came.
    lights : 4
        Lit, in the order of :data:`LIGHTS`.
    """

    def __init__(self, clock):
        if not isinstance(clock, int) or clock <= STEPS:
            raise ValueError(f"clock must be an int above {STEPS}, not {clock!r}")
        self.clock = clock
        super().__init__({"received": In(1), "sent": In(1), "damaged": In(1), "lights": Out(len(LIGHTS))})

    def elaborate(self, platform):
        m = Module()
        count = Signal(ceil_log2(self.clock))
        m.d.sync += count.eq(count + 1)
        step = count[: 1 - STEPS.bit_length()]
        shown = []
        for name in ("received", "sent", "damaged"):
            came, show = Signal(name=f"{name}_came"), Signal(name=f"{name}_shown")
            with m.If(step.all()):
                m.d.sync += [show.eq(came), came.eq(getattr(self, name))]
            with m.Elif(getattr(self, name)):
                m.d.sync += came.eq(1)
            shown.append(show & step[-1])
        received, sent, _ = shown
        m.d.comb += self.lights.eq(Cat(count[-1] ^ (received | sent), *shown))
        return m
