"""Which headers a packet has that is to be sent, and from which address it comes."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.transfer import GidWrite
from .gid_row import NETWORK_TYPES, GidRow
from .headers import ENCAPSULATIONS, NETWORKS, check_networks
from .layout import TRANSMIT_CARRIED, PacketMaps
from .opcodes import SUPPORTED
from .packet_header import TransmitHeader
from .vlan import VlanTag

__all__ = ["Encapsulator", "encapsulated_header", "transmit_maps"]


def transmit_maps(opcodes, networks):
    """``PacketMaps`` of what is sent."""
    networks = tuple(networks)
    check_networks(networks)
    return PacketMaps([ENCAPSULATIONS[name] for name in networks], frozenset(opcodes), TRANSMIT_CARRIED)


def encapsulated_header(opcodes, networks):
    """Layout: a ``TransmitHeader``; ``sequence``, one-hot, that of the opcode among a map's sequences of headers; and
    of several maps ``network``, one-hot, that of the row of the table of GIDs, with the row's ``source`` and ``tag``.
    """
    maps = transmit_maps(opcodes, networks).maps
    of_row = {"network": len(maps), "source": 128, "tag": VlanTag} if len(maps) > 1 else {}
    return data.StructLayout({**TransmitHeader.members, "sequence": len(maps[0].sequences), **of_row})


class Encapsulator(wiring.Component):
    """Puts to each header what the packetizer has to know besides: decodes the opcode, and reads the row of the table
    of GIDs that the packet is sent from. There is no clock in it; behind it should stand the register that the
    packetizer wants at its input.

    Parameters
    ----------
    opcodes : iterable of int
        What ``i.transport.opcode`` may be of a packet; each with extended headers of the flat layout only. What is none
        of them has any ``sequence``.
    networks : tuple of str
        Of :data:`.headers.NETWORKS` as many as there are, from the first one on.

    Members
    -------
    i : stream of ``TransmitHeader``
    o : stream of :func:`encapsulated_header`
    gid, gid_en : ``GidWrite``, 1
        With several ``networks``: a word of the table of GIDs is written. ``path.sgid_index`` says which row a packet
        is sent from; the row's type is its network.
    """

    def __init__(self, opcodes=SUPPORTED, networks=NETWORKS[:1]):
        self.maps = transmit_maps(opcodes, networks)
        self.several = len(self.maps.maps) > 1
        super().__init__(
            {
                "i": In(stream.Signature(TransmitHeader)),
                "o": Out(stream.Signature(encapsulated_header(opcodes, networks))),
            }
            | ({"gid": In(GidWrite), "gid_en": In(1)} if self.several else {})
        )

    def elaborate(self, platform):
        m = Module()
        i, o = self.i.payload, self.o.payload
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            o.transport.eq(i.transport),
            o.path.eq(i.path),
        ]
        # All maps have the same opcodes.
        sequences = [sequence.codes for sequence in self.maps.maps[0].sequences]
        assert all([sequence.codes for sequence in each.sequences] == sequences for each in self.maps.maps)
        for codes, mine in zip(sequences, o.sequence):
            m.d.comb += mine.eq(self.maps.is_one_of(i.transport.opcode, codes))
        if self.several:
            m.submodules.row = row = GidRow()
            m.d.comb += [
                row.write.eq(self.gid),
                row.write_en.eq(self.gid_en),
                row.index.eq(i.path.sgid_index),
                o.network.eq(Cat(row.type == each for each in NETWORK_TYPES[: len(self.maps.maps)])),
                o.source.eq(row.gid),
                o.tag.eq(row.tag),
            ]
        return m
