"""The pins of a Colorlight i9, revision 7.2, for amaranth-boards' kind of platform.

They are those of https://github.com/wuxx/Colorlight-FPGA-Projects (``colorlight_i9_v7.2.md``), and LiteX-Boards has the
same.
"""

from amaranth.build import Attrs, Clock, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform
from amaranth_boards.resources import LEDResources, SDRAMResource, UARTResource

__all__ = ["ColorlightI9Platform"]

LVCMOS = Attrs(IO_TYPE="LVCMOS33")


def _phy(number, *, rx_clk, rx_ctl, rx_data, tx_clk, tx_ctl, tx_data):
    """A B50612D; both have one reset and one MDIO."""
    return Resource(
        "eth_rgmii",
        number,
        Subsignal("rst", PinsN("P4", dir="o")),
        Subsignal("mdc", Pins("N5", dir="o")),
        Subsignal("mdio", Pins("P5", dir="io")),
        Subsignal("tx_clk", Pins(tx_clk, dir="o")),
        Subsignal("tx_ctl", Pins(tx_ctl, dir="o")),
        Subsignal("tx_data", Pins(tx_data, dir="o")),
        Subsignal("rx_clk", Pins(rx_clk, dir="i")),
        Subsignal("rx_ctl", Pins(rx_ctl, dir="i")),
        Subsignal("rx_data", Pins(rx_data, dir="i")),
        LVCMOS,
    )


class ColorlightI9Platform(LatticeECP5Platform):
    """The module with the LED and the serial line of its extension board."""

    device = "LFE5U-45F"
    package = "BG381"
    speed = "6"
    default_clk = "clk25"
    connectors = []
    resources = [
        Resource("clk25", 0, Pins("P3", dir="i"), Clock(25e6), LVCMOS),
        *LEDResources(pins="L2", invert=True, attrs=LVCMOS),
        UARTResource(0, tx="J17", rx="H18", attrs=LVCMOS),
        # M12L64322A or EM638325: 4 banks of 2048 rows of 256 words of 32 bits. Their byte masks are not connected.
        SDRAMResource(
            0,
            clk="B9",
            we_n="A10",
            cas_n="A9",
            ras_n="B10",
            ba="B11 C8",
            a="B13 C14 A16 A17 B16 B15 A14 A13 A12 A11 B12",
            dq="B6 A5 A6 A7 C7 B8 B5 A8 D8 D7 E8 D6 C6 D5 E7 C5 "
            "C10 D9 E11 D11 C11 D12 E9 C12 E14 C15 E13 D15 E12 B17 D14 D13",
            attrs=Attrs(PULLMODE="NONE", DRIVE="4", SLEWRATE="FAST", IO_TYPE="LVCMOS33"),
        ),
        _phy(  # U29
            0,
            rx_clk="L19",
            rx_ctl="M20",
            rx_data="P20 N19 N20 M19",
            tx_clk="U19",
            tx_ctl="P19",
            tx_data="U20 T19 T20 R20",
        ),
        _phy(  # U30
            1, rx_clk="H2", rx_ctl="P2", rx_data="K2 L1 N1 P1", tx_clk="G1", tx_ctl="K1", tx_data="G2 H1 J1 J3"
        ),
    ]
