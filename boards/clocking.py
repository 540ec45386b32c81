"""Clocks of a node on an ECP5: one PLL for the engine and for Ethernet's transmit side."""

from dataclasses import dataclass
from math import gcd

from amaranth.hdl import ClockDomain, ClockSignal, Const, DomainRenamer, Instance, Module, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.mac import RX, TX

__all__ = ["NETS", "Clocking", "PllSettings", "Start", "pll_settings"]

GIGABIT = 125_000_000
VCO = range(400_000_000, 800_000_001)
PHASE_DETECTOR = range(3_125_000, 400_000_001)
MOST = 128
"""Largest divider (Lattice FPGA-TN-02200)."""

NETS = {"clock": "clocking.engine_clock", "reset": "clocking.engine_reset", "release": "clocking.core"}
"""Nets in the synthesized design, for :func:`.resets.reset_globally`."""

STOP, RELEASE, GO = 16, 32, 48
"""Cycles after which the engine's clock stops, its reset ends, and its clock goes on."""


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


class Start(wiring.Component):
    """Ends the engine's reset while its clock stands still.

    The chip's reset network (:func:`.resets.reset_globally`) lets go of a flip-flop here sooner than of one there,
    and nextpnr does not time it. First the clock runs under reset, for registers that are reset at an edge.

    Members
    -------
    clock : 1
        The engine's clock runs.
    reset : 1
        The engine's reset; as from a register.
    """

    clock: Out(1, init=1)
    reset: Out(1, init=1)

    def elaborate(self, platform):
        m = Module()
        count = Signal(range(GO + 1))
        with m.If(count != GO):
            m.d.sync += count.eq(count + 1)
        m.d.sync += [self.clock.eq((count < STOP) | (count == GO)), self.reset.eq(count < RELEASE)]
        return m


class Clocking(wiring.Component):
    """Drives the domains ``sync`` and those of :mod:`verbena.hdl.ethernet.mac`, and keeps them reset until the PLL is
    steady; ``sync`` begins a little later than the others (:class:`Start`). They, and one for itself, are its user's to
    define: ``domains``.

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
        self.domains = [ClockDomain(name) for name in ("sync", "start", TX, RX)]
        super().__init__({"reference": In(1), "received": In(1)})

    def elaborate(self, platform):
        m = Module()
        settings = self.settings
        gigabit, locked = Signal(), Signal()
        # yosys drops names that are one of several of a net.
        core = Signal(attrs={"keep": 1})
        engine_clock = Signal(attrs={"keep": 1})
        engine_reset = Signal(attrs={"keep": 1})
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
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(1),
            i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1),
            i_PLLWAKESYNC=Const(0),
            i_ENCLKOP=Const(0),
            i_ENCLKOS=Const(0),
            o_CLKOP=gigabit,
            o_CLKOS=core,
            o_LOCK=locked,
        )
        for name, clock in {"start": core, TX: gigabit, RX: self.received}.items():
            m.d.comb += ClockSignal(name).eq(clock)
            m.submodules[f"{name}_reset"] = ResetSynchronizer(~locked, domain=name)
        m.submodules.start = start = DomainRenamer("start")(Start())
        m.submodules.gate = Instance("DCCA", i_CLKI=core, i_CE=start.clock, o_CLKO=engine_clock)
        m.d.comb += [engine_reset.eq(start.reset), ClockSignal().eq(engine_clock), ResetSignal().eq(engine_reset)]
        return m
