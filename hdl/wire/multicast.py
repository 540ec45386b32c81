"""A datagram to a multicast group, for each queue pair that is in it."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.fifo import Prefetch
from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.transfer import GidWrite
from .gid_match import destination_gid
from .group_members import GroupMembers
from .headers import MAX_PAYLOAD, MULTICAST_QPN
from .opcodes import DATAGRAMS
from .packet_header import ArrivedHeader

__all__ = ["MulticastReplicator"]


class MulticastReplicator(wiring.Component):
    """Makes of a datagram to a group one for each member, with the number of the member's queue pair as its
    destination, in the order of the table's rows. Each is a packet of its own from here on: what becomes of one, for
    want of a receive WQE or of a right Q_Key, does not concern another.

    The payload is kept aside meanwhile, and all that is behind the datagram waits. A datagram to a group without a
    member comes out once, for nobody: ``gid_found`` is 0. All other packets pass.

    *Cycles*: a header that passes comes out 1 cycle after it has come, its payload then, a beat a cycle. A datagram to
    a group takes as long as its payload has beats, but at least 36 cycles, and then for each member 6 cycles more than
    its payload has beats.

    Parameters
    ----------
    data_width : int
    waiting : int
        Packets whose header has gone and whose payload has not, a power of two: as many as may be decided on.

    Members
    -------
    member, member_en : ``GidWrite``, 1
        A word of the table of group members is written, see :class:`.group_members.GroupMembers`.
    header : stream of ``ArrivedHeader``
        ``group``: the packet came to the MAC address of a group.
    payload : stream of ``PacketBeat(data_width)``
        For each header whose ``length`` is not 0 a packet, which comes before or after it, without ``error``.
    o_header, o : streams of the same
    busy : 1
        A datagram to a group is here.
    """

    def __init__(self, data_width, waiting=16):
        self.data_width = data_width
        self.waiting = waiting
        header, beat = stream.Signature(ArrivedHeader), stream.Signature(PacketBeat(data_width))
        super().__init__(
            {
                "member": In(GidWrite),
                "member_en": In(1),
                "header": In(header),
                "payload": In(beat),
                "o_header": Out(header),
                "o": Out(beat),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        rows = 8 * MAX_PAYLOAD // self.data_width
        m.submodules.members = members = GroupMembers()
        m.submodules.ram = ram = Ram(PacketBeat(self.data_width), rows)
        m.submodules.prefetch = prefetch = Prefetch(PacketBeat(self.data_width))
        arrived, transport = self.header.payload, self.header.payload.header.transport
        some, to_group = Signal(), Signal()
        owed = Signal(range(self.waiting + 1))  # packets that have passed, whose payload has not
        owes, pays = Signal(), Signal()
        m.d.comb += [
            some.eq(transport.length != 0),
            to_group.eq(
                arrived.group & (transport.dest_qpn == MULTICAST_QPN) & transport.opcode.matches(*sorted(DATAGRAMS))
            ),
            members.write.eq(self.member),
            members.write_en.eq(self.member_en),
            members.gid.eq(destination_gid(arrived)),
            self.o_header.payload.eq(arrived),
        ]
        owing, room = Signal(), Signal(init=1)  # there are such; and there may be one more
        with m.If(owes & ~pays):
            m.d.sync += [owed.eq(owed + 1), owing.eq(1), room.eq(owed != self.waiting - 1)]
        with m.Elif(~owes & pays):
            m.d.sync += [owed.eq(owed - 1), owing.eq(owed != 1), room.eq(1)]

        written, read = Signal(range(rows)), Signal(range(rows + 1))
        copying, count = Signal(), Signal(range(rows + 1))  # beats of the datagram
        handed = Signal()  # it has come out at least once
        row = self.payload.payload
        m.d.comb += [
            ram.w_addr.eq(written),
            ram.w_data.eq(row),
            ram.r_addr.eq(read),
            prefetch.row.eq(ram.r_data),
            prefetch.unread.eq(copying & (read != count)),
        ]
        with m.If(prefetch.take):
            m.d.sync += read.eq(read + 1)

        m.d.comb += self.o.payload.eq(row)
        with m.If(owing):
            m.d.comb += [
                self.o.valid.eq(self.payload.valid),
                self.payload.ready.eq(self.o.ready),
                pays.eq(self.payload.valid & self.o.ready & row.last),
            ]

        with m.FSM() as fsm:
            with m.State("ARRIVE"):
                m.d.sync += [written.eq(0), count.eq(0), handed.eq(0)]
                with m.If(self.header.valid & ~to_group):
                    m.next = "PASS"
                with m.If(self.header.valid & to_group & ~owing):
                    m.d.comb += members.start.eq(1)
                    m.next = "KEEP"
            with m.State("PASS"):
                with m.If(room):
                    m.d.comb += [self.o_header.valid.eq(1), self.header.ready.eq(self.o_header.ready)]
                    with m.If(self.o_header.ready):
                        m.d.comb += owes.eq(some)
                        m.next = "ARRIVE"
            with m.State("KEEP"):
                m.d.comb += [self.payload.ready.eq(some), ram.w_en.eq(some & self.payload.valid)]
                with m.If(~some):
                    m.next = "MEMBER"
                with m.Elif(self.payload.valid):
                    m.d.sync += [written.eq(written + 1), count.eq(count + 1)]
                    with m.If(row.last):
                        m.next = "MEMBER"
            with m.State("MEMBER"):
                header = self.o_header.payload.header
                m.d.comb += [
                    header.gid_found.eq(members.o.valid),
                    self.o_header.valid.eq(members.o.valid | (members.over & ~handed)),
                    members.o.ready.eq(self.o_header.ready),
                ]
                m.d.sync += read.eq(0)
                with m.If(members.o.valid):
                    m.d.comb += header.transport.dest_qpn.eq(members.o.payload)
                with m.If(self.o_header.valid & self.o_header.ready):
                    m.d.sync += [handed.eq(1), copying.eq(some)]
                    with m.If(some):
                        m.next = "COPY"
                with m.If(members.over & handed):
                    m.d.comb += self.header.ready.eq(1)
                    m.next = "ARRIVE"
            with m.State("COPY"):
                m.d.comb += [
                    self.o.valid.eq(prefetch.o.valid),
                    self.o.payload.eq(prefetch.o.payload),
                    prefetch.o.ready.eq(self.o.ready),
                ]
                with m.If(prefetch.o.valid & self.o.ready & prefetch.o.payload.last):
                    m.d.sync += copying.eq(0)
                    m.next = "MEMBER"
        m.d.comb += self.busy.eq(~fsm.ongoing("ARRIVE"))
        return m
