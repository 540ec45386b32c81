"""The frame check sequence of Ethernet (IEEE 802.3, 3.2.9): a CRC-32, byte by byte."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FCS_BYTES", "RESIDUE", "Fcs"]

FCS_BYTES = 4
POLYNOMIAL = 0xEDB88320
"""Least significant bit first, as bits go over the wire."""

RESIDUE = 0xDEBB20E3
"""State after a frame and its right FCS."""


def _shifted(byte):
    """What a byte of the state contributes to the state 8 bits later."""
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


class Fcs(wiring.Component):
    """State of the CRC.

    Members
    -------
    start : 1
        Begin anew; ``data`` is not taken then.
    valid : 1
        Take ``data``.
    data : 8
    state : 32
        What the taken bytes make of it, a cycle later. Its complement, least significant byte first, is the FCS.
    """

    def __init__(self):
        super().__init__({"start": In(1), "valid": In(1), "data": In(8), "state": Out(32, init=0xFFFFFFFF)})

    def elaborate(self, platform):
        m = Module()
        low = self.state[:8] ^ self.data
        after = Signal(32)
        for bit in range(32):
            sources = [low[n] for n in range(8) if _shifted(1 << n) >> bit & 1]
            if bit < 24:
                sources.append(self.state[bit + 8])
            m.d.comb += after[bit].eq(Cat(sources).xor())
        with m.If(self.start):
            m.d.sync += self.state.eq(Const(0xFFFFFFFF, 32))
        with m.Elif(self.valid):
            m.d.sync += self.state.eq(after)
        return m
