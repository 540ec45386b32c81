"""RGMII pins of a Lattice ECP5: four bits at each edge of the clock."""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .mac import RX, TX, Gmii

__all__ = ["Rgmii", "RgmiiPins"]

TAP = 25e-12
TAPS = 128


class RgmiiPins(wiring.Signature):
    """The wires to a PHY, but the clock that comes from there: that is the clock of the domain :data:`.mac.RX`."""

    def __init__(self):
        super().__init__(
            {
                "tx_clock": Out(1),
                "tx_control": Out(1),
                "tx_data": Out(4),
                "rx_control": In(1),
                "rx_data": In(4),
            }
        )


class Rgmii(wiring.Component):
    """Between the pins and a MAC (RGMII 2.0). 2 cycles through, in either direction.

    A bit and its clock must not change together where they are sampled. Where the PHY does not see to it, the FPGA
    delays its transmit clock and the received data, by at most 3.1 ns.

    Parameters
    ----------
    tx_clock_delay, rx_delay : float
        Seconds.

    Members
    -------
    pins : ``RgmiiPins``
        To be connected to buffers.
    gmii : ``Gmii``, flipped
    """

    def __init__(self, *, tx_clock_delay=0.0, rx_delay=0.0):
        self.taps = {}
        for name, delay in (("tx_clock_delay", tx_clock_delay), ("rx_delay", rx_delay)):
            self.taps[name] = round(delay / TAP)
            if not 0 <= self.taps[name] < TAPS:
                raise ValueError(f"{name} must be 0 to {(TAPS - 1) * TAP} s, not {delay!r}")
        super().__init__({"pins": Out(RgmiiPins()), "gmii": In(Gmii())})

    def elaborate(self, platform):
        m = Module()
        gmii, pins = self.gmii, self.pins
        error = Signal()
        for number in range(4):
            self._output(m, f"txd{number}", gmii.tx_data[number], gmii.tx_data[number + 4], pins.tx_data[number])
            self._input(m, f"rxd{number}", pins.rx_data[number], gmii.rx_data[number], gmii.rx_data[number + 4])
        self._output(m, "tx_ctl", gmii.tx_enable, gmii.tx_enable, pins.tx_control)
        self._output(m, "txc", gmii.tx_clock[0], gmii.tx_clock[1], pins.tx_clock, self.taps["tx_clock_delay"])
        self._input(m, "rx_ctl", pins.rx_control, gmii.rx_valid, error)
        m.d.comb += gmii.rx_error.eq(gmii.rx_valid ^ error)
        return m

    def _output(self, m, name, first, second, pin, taps=0):
        """``first`` while the clock is high, then ``second``."""
        early = Signal(name=f"{name}_early")
        m.submodules[f"{name}_oddr"] = Instance(
            "ODDRX1F", i_SCLK=ClockSignal(TX), i_RST=Const(0), i_D0=first, i_D1=second, o_Q=early
        )
        self._delay(m, name, early, pin, taps)

    def _input(self, m, name, pin, first, second):
        """``first`` is from the rising edge, ``second`` from the falling one behind it."""
        late = Signal(name=f"{name}_late")
        self._delay(m, name, pin, late, self.taps["rx_delay"])
        m.submodules[f"{name}_iddr"] = Instance(
            "IDDRX1F", i_SCLK=ClockSignal(RX), i_RST=Const(0), i_D=late, o_Q0=first, o_Q1=second
        )

    def _delay(self, m, name, early, late, taps):
        m.submodules[f"{name}_delay"] = Instance(
            "DELAYG", p_DEL_MODE="USER_DEFINED", p_DEL_VALUE=taps, i_A=early, o_Z=late
        )
