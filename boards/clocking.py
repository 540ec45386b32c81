"""Clocks of a node on an ECP5: one PLL for the engine and for Ethernet's transmit side."""

from dataclasses import dataclass
from math import gcd

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import AsyncFFSynchronizer, ResetSynchronizer
from amaranth.lib.wiring import In
from verbena.hdl.ethernet.mac import RX, TX

__all__ = ["FASTEST", "Clocking", "PllSettings", "clock_network", "pll_settings"]

GIGABIT = 125_000_000
VCO = range(400_000_000, 800_000_001)
PHASE_DETECTOR = range(3_125_000, 400_000_001)
MOST = 128
"""Largest divider (Lattice FPGA-TN-02200)."""

PLL_LOW = ("RST", "STDBY", "PHASESEL0", "PHASESEL1", "PLLWAKESYNC", "ENCLKOP", "ENCLKOS")
PLL_HIGH = ("PHASEDIR", "PHASESTEP", "PHASELOADREG")
"""Inputs of a PLL that nothing moves."""

FASTEST = 100_000_000
"""Hz of an engine whose resets go by :func:`clock_network`. nextpnr counts no delay in such a network. Between clocks
that makes no difference, for all have it; a reset has it, some nanoseconds, on top of the clock's and of the way there.
"""


@dataclass(frozen=True)
class PllSettings:
    """Dividers of an EHXPLLL whose first output is 125 MHz and goes back to its input, and whose second is the core's.

    ``core`` is the frequency in Hz that comes out.
    """

    input: int
    feedback: int
    output: int
    second: int
    core: int


def pll_settings(reference, core):
    """Dividers for a ``reference`` and a core of at most ``core`` Hz, as near to it as can be.

    ``ValueError`` if 125 MHz cannot be made of the reference.
    """
    common = gcd(reference, GIGABIT)
    divider, feedback = reference // common, GIGABIT // common
    found = []
    for output in range(1, MOST + 1):
        vco = GIGABIT * output
        if vco in VCO:
            second = -(-vco // core)
            if second <= MOST:
                found.append(PllSettings(divider, feedback, output, second, vco // second))
    if not found or max(divider, feedback) > MOST or reference // divider not in PHASE_DETECTOR:
        raise ValueError(f"no PLL makes 125 MHz and at most {core} Hz of {reference} Hz")
    return max(found, key=lambda each: (each.core, -each.output))


def clock_network(m, reset):
    """Returns ``reset`` as one of the networks brings it that the chip has for clocks.

    Thousands of flip-flops have the reset: as wires, their inputs keep the router busy for most of its time. On its own
    nextpnr gives such a network to clocks only, but routes by one whatever a DCCA drives.
    """
    spread = Signal.like(reset)
    m.submodules += Instance("DCCA", i_CLKI=reset, i_CE=Const(1), o_CLKO=spread)
    return spread


class Clocking(wiring.Component):
    """Drives the domains ``sync`` and those of :mod:`verbena.hdl.ethernet.mac`, and keeps them reset until the PLL is
    steady. They are its user's to define: ``domains``.

    Parameters
    ----------
    settings : PllSettings

    Members
    -------
    reference, received : 1
        Clocks from outside: the board's, and the PHY's.
    """

    def __init__(self, settings):
        self.settings = settings
        self.domains = [ClockDomain(name) for name in ("sync", TX, RX)]
        super().__init__({"reference": In(1), "received": In(1)})

    def elaborate(self, platform):
        m = Module()
        settings = self.settings
        gigabit, locked, engine_reset = Signal(), Signal(), Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=settings.input,
            p_CLKFB_DIV=settings.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=settings.output,
            p_CLKOP_CPHASE=settings.output - 1,
            p_CLKOP_FPHASE=0,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=settings.second,
            p_CLKOS_CPHASE=settings.second - 1,
            p_CLKOS_FPHASE=0,
            i_CLKI=self.reference,
            i_CLKFB=gigabit,
            **{f"i_{name}": Const(0) for name in PLL_LOW},
            **{f"i_{name}": Const(1) for name in PLL_HIGH},
            o_CLKOP=gigabit,
            o_CLKOS=ClockSignal(),
            o_LOCK=locked,
        )
        m.submodules.engine_reset = AsyncFFSynchronizer(~locked, engine_reset)
        m.d.comb += ResetSignal().eq(clock_network(m, engine_reset))
        for name, clock in {TX: gigabit, RX: self.received}.items():
            m.d.comb += ClockSignal(name).eq(clock)
            m.submodules[f"{name}_reset"] = ResetSynchronizer(~locked, domain=name)
        return m
