"""Which queue pairs are in a multicast group."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.gids import GROUP_MEMBER, GROUP_MEMBERS
from ..stream.fifo import Queue
from ..stream.transfer import GidWrite

__all__ = ["GroupMembers"]

QPN_BITS = 24

Row = data.StructLayout({"gid": 128, "qpn": QPN_BITS, "valid": 1})


class GroupMembers(wiring.Component):
    """Keeps the table of group members, and finds those of a group: it looks at a row a cycle, at all of them.

    Members
    -------
    write, write_en : ``GidWrite``, 1
        A word of :data:`verbena.hdl.abi.gids.GROUP_MEMBER` is written; ``index`` does not count. The last word that
        counts makes the row.
    gid, start : 128, 1
        Strobe: look for the members of this group; only when ``over``. ``gid`` stays until all rows have been looked
        at.
    o : stream of 24
        Numbers of the members' queue pairs, in the order of their rows.
    over : 1
        All rows have been looked at, and what was found has been taken; 1 before the first ``start``.
    """

    write: In(GidWrite)
    write_en: In(1)
    gid: In(128)
    start: In(1)
    o: Out(stream.Signature(QPN_BITS))
    over: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = memory.Memory(shape=Row, depth=GROUP_MEMBERS, init=[])
        m.submodules.found = found = Queue(QPN_BITS, GROUP_MEMBERS)
        wiring.connect(m, found.o, wiring.flipped(self.o))
        write, read = table.write_port(), table.read_port(domain="comb")

        # The words of a GID are kept until the one that makes the row: so nobody sees a part of it.
        fields = {name: GROUP_MEMBER.fields[name] for name in ("qpn", "row", "valid")}
        makes, said = fields["valid"].word, self.write.data
        qpn, row, valid = (said[field.offset % 32 :][: field.width] for field in fields.values())
        gid = Signal(128, reset_less=True)
        for number in range(4):
            with m.If(self.write_en & (self.write.word == number)):
                m.d.sync += gid.word_select(number, 32).eq(said)
        m.d.comb += [
            write.addr.eq(row),
            write.data.gid.eq(gid),
            write.data.qpn.eq(qpn),
            write.data.valid.eq(valid),
            write.en.eq(self.write_en & (self.write.word == makes)),
        ]

        at, looking, looked = Signal(range(GROUP_MEMBERS)), Signal(), Signal()
        same, member = Signal(4), Signal.like(read.data)
        m.d.comb += [
            read.addr.eq(at),
            found.i.valid.eq(looked & member.valid & same.all()),
            found.i.payload.eq(member.qpn),
            self.over.eq(~looking & ~looked & (found.level == 0)),
        ]
        m.d.sync += [
            looked.eq(looking),
            member.eq(read.data),
            same.eq(Cat(read.data.gid.word_select(n, 32) == self.gid.word_select(n, 32) for n in range(4))),
        ]
        with m.If(self.start):
            m.d.sync += [looking.eq(1), at.eq(0)]
        with m.Elif(looking):
            m.d.sync += [at.eq(at + 1), looking.eq(at != GROUP_MEMBERS - 1)]
        return m
