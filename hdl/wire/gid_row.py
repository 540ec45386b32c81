"""The table of GIDs as the transmit side reads it: a row at a time."""

from amaranth.hdl import Cat, Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import GID_COUNT, GID_ROW, GidType
from ..stream.transfer import GID_INDEX_BITS, GidWrite
from .vlan import VlanTag

__all__ = ["GID_WORDS", "NETWORK_TYPES", "GidRow"]

GID_WORDS = 6
"""32-bit words of a row that count."""

NETWORK_TYPES = (GidType.ROCE_V2_IPV4, GidType.ROCE_V2_IPV6, GidType.ROCE_V1)
"""For each of :data:`.headers.NETWORKS` its type in the table."""


class GidRow(wiring.Component):
    """Keeps the table in LUT RAM, and shows one row in the cycle in which it is asked for.

    Members
    -------
    write, write_en : ``GidWrite``, 1
    index : 4
    gid, type, tag : 128, 4, ``VlanTag``
    """

    write: In(GidWrite)
    write_en: In(1)
    index: In(GID_INDEX_BITS)
    gid: Out(128)
    type: Out(GID_ROW.fields["type"].width)
    tag: Out(VlanTag)

    def elaborate(self, platform):
        m = Module()
        words, fields = [], [GID_ROW.fields[name] for name in ("type", *VlanTag.members)]
        for number in range(GID_WORDS):
            width = max(f.offset % 32 + f.width for f in fields if f.word == number) if number >= 4 else 32
            m.submodules[f"word_{number}"] = table = memory.Memory(shape=width, depth=GID_COUNT, init=[])
            write, read = table.write_port(), table.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(self.write.index),
                write.data.eq(self.write.data),
                write.en.eq(self.write_en & (self.write.word == number)),
                read.addr.eq(self.index),
            ]
            words.append(read.data)
        m.d.comb += self.gid.eq(Cat(words[:4]))
        for field, out in zip(fields, (self.type, self.tag.tagged, self.tag.vlan, self.tag.priority)):
            m.d.comb += out.eq(words[field.word][field.offset % 32 :][: field.width])
        return m
