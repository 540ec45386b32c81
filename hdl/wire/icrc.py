"""The invariant CRC of a RoCE packet.

CRC-32 (the polynomial of Ethernet, reflected) over 8 bytes of ones, then the packet from the network header on up to
the pad, with the fields that routers change taken as ones. Source: InfiniBand Architecture Specification volume 1,
"Invariant CRC", and annexes A16 and A17.
"""

import zlib

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ICRC_SEED", "Icrc", "icrc", "icrc_mask"]

POLYNOMIAL = 0xEDB88320
ICRC_SEED = 0xDEBB20E3
"""State after the 8 bytes of ones. By chance of arithmetic it is also the state after a packet with a correct ICRC."""

RESIDUE = 0xDEBB20E3


def icrc(encapsulation, packet):
    """The 4 bytes that follow ``packet`` (bytes from the network header up to the pad) on the wire; plain Python."""
    masked = bytearray(packet)
    for byte, mask in encapsulation.masked_bits().items():
        masked[byte] |= mask
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


def icrc_mask(encapsulation, data_width, at):
    """Value to OR into a beat so that the masked fields are ones.

    ``at``: one-hot position of the beat in the packet, 0 for the first; no bit set behind the headers.
    """
    lanes = data_width // 8
    columns = [[] for _ in range(data_width)]
    for byte, mask in encapsulation.masked_bits().items():
        for bit in range(8):
            if mask >> bit & 1:
                columns[byte % lanes * 8 + bit].append(at[byte // lanes])
    return Cat(*(Cat(*terms).any() if terms else Const(0, 1) for terms in columns))


def _step(state):
    """State after 32 zero bits."""
    for _ in range(32):
        state = state >> 1 ^ (POLYNOMIAL if state & 1 else 0)
    return state


def _step_back(state):
    for _ in range(32):
        # POLYNOMIAL has bit 31, and a state shifted right has not: so bit 31 tells whether it was added.
        state = (state ^ POLYNOMIAL) << 1 | 1 if state >> 31 else state << 1
    return state


def _repeat(function, count, state):
    for _ in range(count):
        state = function(state)
    return state


def _linear(function, value):
    """Value of the linear ``function`` of the 32 bits of ``value``."""
    columns = [function(1 << i) for i in range(32)]
    rows = [sum((columns[i] >> row & 1) << i for i in range(32)) for row in range(32)]
    return Cat(*((value & row).xor() for row in rows))


class Icrc(wiring.Component):
    """ICRC, a beat a cycle, 4 bytes the smallest unit.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512. Wider ones than 64 bits have their XOR trees in stages.

    Attributes
    ----------
    state_latency, crc_latency : int
        Cycles from a beat at the input, which is registered first, to ``good`` and to ``crc``.

    Members
    -------
    valid : 1
        A beat is present.
    first : 1
        It is the packet's first.
    odd : 1
        The packet has an odd number of words that count. Looked at in each of its beats, at 64 bits.
    data : ``data_width``
        With masked fields already ones.
    words : 0 to ``data_width // 32``
        Leading 32-bit words of it that count; fewer than all only in the last beat of which any count. A beat of 0
        words changes nothing, and may only follow a full one.
    good : 1
        The words up to and with this beat end in their correct ICRC. Stays until the next beat.
    crc : 32
        What the wire carries behind the words up to and with this beat, as it stands in a beat; at 64 bits only if it
        is the last of which any count.
    """

    def __init__(self, data_width):
        if data_width not in (64, 128, 256, 512):
            raise ValueError(f"data_width must be 64, 128, 256 or 512, not {data_width!r}")
        self.data_width = data_width
        lanes = data_width // 32
        self.state_latency = 2 if lanes == 2 else 4
        self.crc_latency = 2 if lanes == 2 else 4 + (ceil_log2(lanes) + 1) // 2
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "odd": In(1),
                "data": In(data_width),
                "words": In(range(lanes + 1)),
                "good": Out(1),
                "crc": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self.data_width == 64:
            self._narrow(m)
        else:
            self._wide(m)
        return m

    def _narrow(self, m):
        # An odd number of words is moved by one, behind a word of zeros, so that all beats are full ones and there is
        # one XOR tree. The seed is in the first beat, stepped back before those zeros.
        now = [self.data.word_select(i, 32) for i in range(2)]
        head, tail, before, state = (Signal(32, name=n, reset_less=True) for n in ("head", "tail", "before", "state"))
        step, begin = Signal(), Signal()
        m.d.sync += [
            step.eq(self.valid & (self.words != 0)),
            begin.eq(self.first),
            tail.eq(Mux(self.odd, now[0], now[1])),
            head.eq(
                Mux(
                    self.odd,
                    Mux(self.first, _step_back(ICRC_SEED), before),
                    now[0] ^ Mux(self.first, ICRC_SEED, 0),
                )
            ),
        ]
        with m.If(self.valid):
            m.d.sync += before.eq(now[1])
        with m.If(step):
            begun = head ^ Mux(begin, 0, state)
            m.d.sync += state.eq(_linear(lambda s: _repeat(_step, 2, s), begun) ^ _linear(_step, tail))
        m.d.comb += [self.crc.eq(~state), self.good.eq(state == RESIDUE)]

    def _wide(self, m):
        # Stage 1: the input. Stage 2: what each word contributes at the end of a full beat. Stage 3: the sum over the
        # words that count; so the state runs ahead by the zeros in their place, and steps back afterwards, outside the
        # loop.
        lanes = self.data_width // 32
        data = Signal(self.data_width)
        words = [data.word_select(i, 32) for i in range(lanes)]
        state = Signal(32)
        count = [Signal(range(lanes + 1), name=f"words_{n}") for n in range(3)]
        back = Signal(range(lanes))  # words by which the state is ahead
        valid = [Signal(name=f"valid_{n}") for n in range(3)]
        first = [Signal(name=f"first_{n}") for n in range(3)]
        parts = [Signal(32, name=f"part_{n}") for n in range(lanes)]
        total = Signal(32)
        counted = [Mux(count[1] > n, parts[n], 0) for n in range(lanes)]
        m.d.sync += [
            data.eq(self.data),
            Cat(*valid).eq(Cat(self.valid & (self.words != 0), *valid[:2])),
            Cat(*first).eq(Cat(self.first, *first[:2])),
            Cat(*count).eq(Cat(self.words, *count[:2])),
            *(parts[n].eq(_linear(lambda s, n=n: _repeat(_step, lanes - n, s), words[n])) for n in range(lanes)),
            total.eq(Cat(*(Cat(*(part[bit] for part in counted)).xor() for bit in range(32)))),
        ]
        with m.If(valid[2]):
            begun = Mux(first[2], ICRC_SEED, state)
            m.d.sync += state.eq(_linear(lambda s: _repeat(_step, lanes, s), begun) ^ total)
            m.d.sync += back.eq(lanes - count[2])
        with m.Switch(back):
            for n in range(lanes):
                with m.Case(n):
                    m.d.comb += self.good.eq(state == _repeat(_step, n, RESIDUE))

        stepped = state
        for stage in range(ceil_log2(lanes)):
            stepped = Mux(back[stage], _linear(lambda s, n=stage: _repeat(_step_back, 1 << n, s), stepped), stepped)
            if stage % 2 or stage == ceil_log2(lanes) - 1:
                register, rest = Signal(32, name=f"stepped_{stage}"), Signal.like(back, name=f"back_{stage}")
                m.d.sync += [register.eq(stepped), rest.eq(back)]
                stepped, back = register, rest
        m.d.comb += self.crc.eq(~stepped)
