"""The engine alone in a device that has fewer pins than the engine has ports."""

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Harness"]


class Harness(wiring.Component):
    """Wraps ``core`` so that it needs three pins besides clock and reset, and so that yosys removes nothing of it.

    Every input comes from a shift register that ``serial_i`` feeds; every output goes to a register, and all of those
    are folded, 32 at a time and with a register behind each fold, into ``serial_o``. So no path of the measurement
    begins or ends at a pin.

    ``spread(m, reset)`` returns the reset as it reaches harness and core, as that of :class:`verbena.hdl.rnic.Rnic`
    does.
    """

    def __init__(self, core, spread=None):
        self.core = core
        self.spread = spread or (lambda m, reset: reset)
        super().__init__({"serial_i": In(1), "serial_o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        core = self.core
        m.domains.inner = ClockDomain()
        m.d.comb += [ClockSignal("inner").eq(ClockSignal()), ResetSignal("inner").eq(self.spread(m, ResetSignal()))]
        m.submodules.core = DomainRenamer("inner")(core)
        inputs, outputs = [], []
        for _path, member, value in core.signature.flatten(core):
            (inputs if member.flow == In else outputs).append(Value.cast(value))
        chain = Signal(sum(len(v) for v in inputs))
        m.d.inner += chain.eq(Cat(self.serial_i, chain))
        m.d.comb += Cat(*inputs).eq(chain)
        layer = Cat(*outputs)
        while len(layer) > 1:
            held = Signal(len(layer))
            m.d.inner += held.eq(layer)
            layer = Cat(held[i : i + 32].xor() for i in range(0, len(held), 32))
        m.d.inner += self.serial_o.eq(layer)
        return m
