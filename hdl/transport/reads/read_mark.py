"""A hash by which a READ is recognised when the rest of it is asked for again."""

from functools import reduce
from operator import xor

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.layouts import READ_EXTENT
from .replay_cache import MARK_BITS

__all__ = ["ReadMark"]

LEAST_MTU = 8
"""log2 of the smallest path MTU."""

PLACES = {"end": 0, "key": 7, "after": 2, "part": 4}
"""Where the parts begin. A packet or half of one more or less changes few bits, and not the same ones in two parts."""


class ReadMark(wiring.Component):
    """A READ and the rest of it, from one of its packets on, have the same mark, and others rarely: it is the exclusive
    or of what they have in common, in pieces of 18 bits. That is the end of the range, the key, the PSN behind the last
    response, and the length modulo the MTU.

    Of two READs of a QP with random ranges the marks are the same once in 2**18; of two that are alike oftener:
    4 bytes at one place and none some PSNs later may have the same. Then a READ is served that was never asked for in
    this place, and that the peer might as well have asked for anew: its rights are checked as those of any other.

    Members
    -------
    end, key : 64, 32
        Address behind the range; its key.
    extent : ``READ_EXTENT``
    path_mtu : 3
        Attribute of the QP.
    load : 1
        Strobe: the inputs are taken.
    mark : 18
        From the next cycle on, until the next ``load``.
    """

    end: In(64)
    key: In(32)
    extent: In(READ_EXTENT)
    path_mtu: In(3)
    load: In(1)
    mark: Out(MARK_BITS)

    def elaborate(self, platform):
        m = Module()
        part = [
            bit if place < LEAST_MTU else bit & (self.path_mtu > place - LEAST_MTU + 1)
            for place, bit in enumerate(self.extent.length[:12])
        ]
        parts = {"end": self.end, "key": self.key, "after": self.extent.after, "part": part}
        # Two registers, of four bits a bit or fewer each: so much goes into a LUT.
        halves = []
        for names in (("end",), ("key", "after", "part")):
            terms = [[] for _ in range(MARK_BITS)]
            for name in names:
                for place, bit in enumerate(parts[name], PLACES[name]):
                    terms[place % MARK_BITS].append(bit)
            half = Signal(MARK_BITS)
            with m.If(self.load):
                m.d.sync += [bit.eq(reduce(xor, bits)) for bit, bits in zip(half, terms)]
            halves.append(half)
        m.d.comb += self.mark.eq(reduce(xor, halves))
        return m
