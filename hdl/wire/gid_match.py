"""Which of the own GIDs a packet is for."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.gids import GID_COUNT, GID_ROW, MAPPED
from ..stream.transfer import GidWrite
from .gid_row import NETWORK_TYPES
from .headers import HEADERS
from .layout import wire_field
from .packet_header import ArrivedHeader

__all__ = ["GidMatch", "destination_gid"]

NETWORK_BYTES = HEADERS["ipv6"].size

MATCHED_WORDS = 5
"""32-bit words of a row with which what has come must agree."""

PART_BITS = 4
"""Of a word that are compared in one cycle. Less takes more flip-flops, one a row and part; more takes more LUTs."""


def destination_gid(arrived):
    """The address that a packet is for: of IPv4 the IPv4-mapped GID."""
    v4 = arrived.network[(NETWORK_BYTES - HEADERS["ipv4"].size) * 8 :]
    mapped = Cat(wire_field(v4, HEADERS["ipv4"]["destination"]), Const(MAPPED, 96))
    return Mux(arrived.networks[0], mapped, wire_field(arrived.network, HEADERS["ipv6"]["destination"]))


class GidMatch(wiring.Component):
    """Looks for the destination of each packet in the table of GIDs: a word of the address a cycle, in all rows at
    once; the last word is the row's type and tag. A word is chosen in one cycle, its parts of 4 bits are compared in
    the next, and what these say of a row is put together in the third. So a packet to an IPv4 address is not taken for
    one to the IPv4-mapped IPv6 address, nor one of RoCEv1 for one of RoCEv2.

    Of an IPv4 address the first word is all there is: rows of IPv4 have IPv4-mapped GIDs, and their other words are not
    looked at.

    *Cycles*: a header comes out 7 cycles after it has come, and there is one each 8 cycles; of IPv4 4, and each 5. It
    stays at the input until it is taken at the output.

    Members
    -------
    gid, gid_en : ``GidWrite``, 1
        A word of the table is written.
    i : stream of ``ArrivedHeader``
        ``gid_index`` and ``gid_found`` do not count.
    o : stream of ``ArrivedHeader``
        With both. What came to the MAC address of a group is for no row (RFC 1122, 3.3.6); ``group`` says that a row
        is of its network and VLAN.
    """

    gid: In(GidWrite)
    gid_en: In(1)
    i: In(stream.Signature(ArrivedHeader))
    o: Out(stream.Signature(ArrivedHeader))

    def elaborate(self, platform):
        m = Module()
        # Row n of this memory has word n of all rows of the table.
        m.submodules.table = table = memory.Memory(shape=32 * GID_COUNT, depth=8, init=[])
        write, read = table.write_port(granularity=32), table.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.gid.word),
            write.data.eq(self.gid.data.replicate(GID_COUNT)),
            write.en.eq(Mux(self.gid_en, 1 << self.gid.index, 0)),
        ]

        arrived = self.i.payload
        destination = destination_gid(arrived)
        places = (GID_ROW.fields[name].offset - 128 for name in ("type", "valid", "tagged", "vlan"))
        kind, valid, tagged, vlan = places
        number = reduce(or_, (Mux(arrived.networks[n], each, 0) for n, each in enumerate(NETWORK_TYPES)))
        wanted = Signal(32 * MATCHED_WORDS)
        tag = Mux(arrived.tag.tagged, (arrived.tag.vlan << vlan) | 1 << tagged, 0)
        m.d.comb += wanted.eq(Cat(destination, (number << kind | tag | Const(1 << valid, 32))[:32]))

        word, candidates, done = Signal(range(MATCHED_WORDS + 1)), Signal(GID_COUNT), Signal()
        sought, place, compares = Signal(32), Signal.like(word), Signal()
        parts = [Signal(32 // PART_BITS, name=f"parts_{n}") for n in range(GID_COUNT)]  # those that agree
        compared, first, last = Signal(), Signal(), Signal()
        here = Signal(GID_COUNT)  # these rows are of the packet's network and VLAN
        same = Cat(each.all() for each in parts)
        m.d.comb += [read.addr.eq(place), self.o.valid.eq(done), self.i.ready.eq(done & self.o.ready)]
        m.d.sync += [
            sought.eq(wanted.word_select(word, 32)),
            place.eq(word),
            compares.eq(self.i.valid & (word != MATCHED_WORDS)),
            compared.eq(compares),
            first.eq(place == 0),
            last.eq(place == MATCHED_WORDS - 1),
        ]
        for n, each in enumerate(parts):
            differs = read.data.word_select(n, 32) ^ sought
            m.d.sync += each.eq(Cat(~differs.word_select(part, PART_BITS).any() for part in range(len(each))))
        with m.If(done & self.o.ready):
            m.d.sync += word.eq(0)
        with m.Elif(self.i.valid & (word != MATCHED_WORDS)):
            m.d.sync += word.eq(Mux(arrived.networks[0] & (word == 0), MATCHED_WORDS - 1, word + 1))
        with m.If(compared):
            m.d.sync += [candidates.eq(same & Mux(first, ~0, candidates)), here.eq(same), done.eq(last)]
        with m.Elif(self.o.ready):
            m.d.sync += done.eq(0)
        header = self.o.payload.header
        m.d.comb += [
            self.o.payload.eq(arrived),
            self.o.payload.group.eq(arrived.group & here.any()),
            header.gid_found.eq(candidates.any() & ~arrived.group),
        ]
        # Of several rows that are the same any one would do; the lowest counts.
        lowest = candidates & -candidates
        m.d.comb += header.gid_index.eq(
            Cat(Cat(lowest[n] for n in range(GID_COUNT) if n >> bit & 1).any() for bit in range(ceil_log2(GID_COUNT)))
        )
        return m
