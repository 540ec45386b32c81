"""ARP, neighbour discovery and ICMP echo: requests and pings are answered, MAC addresses are asked for."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.gids import MAPPED
from ..stream.arbiter import pick
from ..stream.packet import PacketBeat
from ..stream.ram import Ram
from ..stream.transfer import GID_INDEX_BITS, GidWrite
from .arp_icmp_filter import TAG_BYTES, ArpIcmpFilter
from .arp_icmp_microcode import MASKS, TAG, TAG_WORDS, Kind, Operand, instruction, programs4, service_programs
from .neighbour_microcode import PROGRAMS6
from .own_gids import OwnGids

__all__ = ["ArpIcmp", "Service"]

ARP_BYTES = 42
ETHERNET_BYTES, IP_BYTES, IPV6_BYTES, UDP_BYTES = 14, 20, 40, 8
SOLICITATION_BYTES = 14 + 40 + 24 + 8
ETHERTYPE_WORD = 6


class Service(wiring.Signature):
    """What whoever answers UDP packets is given: the frame, in words of 16 bits as of :mod:`.arp_icmp_microcode`.
    Addresses and ports are turned already: words 15 and 16 are the sender's address, word 8 is the length of its IP
    packet, which the frame holds; from word 21 on there is the payload.

    Members
    -------
    start : 1
        A packet is there.
    place, r_data : 11, 16
        A word, 3 cycles later.
    w_data, w_en : 16, 1
        A new value for the word at ``place``.
    done, size : 1, 12
        The answer stands there, so many bytes of payload; 0: there is none. The block waits for it.
    """

    def __init__(self):
        super().__init__(
            {
                "start": Out(1),
                "place": In(11),
                "r_data": Out(16),
                "w_data": In(16),
                "w_en": In(1),
                "done": In(1),
                "size": In(12),
            }
        )


class ArpIcmp(wiring.Component):
    """Answers ARP requests (RFC 826) and ICMP echo requests (RFC 792) to its own address, and sends ARP requests.

    It watches the received frames and cannot hold them up. It has room for one frame, and works on it word by word: an
    ARP request takes a cycle, and 5 for each of 24 words, from its last beat to the answer's first, an echo request for
    each of 31; then a beat comes out every third cycle. What it does not answer ends earlier, ARP requests for others
    after 1 or 2 words. An ARP packet or ICMP packet that ends meanwhile, or is larger than the room, is dropped and
    counted; all other frames are ignored. Whatever comes in, what goes out is a whole frame.

    With ``ipv6`` it does so for each address of the table of GIDs, in the VLAN of its row, and answers neighbour
    solicitations (RFC 4861) and ICMPv6 echo requests, too, and sends solicitations: 5 cycles for each of 51 words, and
    of 46. Solicitations and advertisements have the option with the MAC address, and no other; what duplicate address
    detection sends has none, and is not answered. An advertisement's checksum must be right. An answer has the tag of
    its question, with its priority; a question has priority 0.

    An echo reply has TTL 64 and keeps ID, TOS and payload of its request. It is not made of packets with IP options,
    fragments, packets with a wrong IP checksum, a length beyond the frame, or from a group address. A wrong ICMP
    checksum is not mended and not noticed: it is as wrong in the answer. Frames are not padded to the least size of a
    frame on the way out, and filling behind a packet is not sent back.

    Parameters
    ----------
    data_width : int
    depth : int
        Largest frame in bytes; a power of two, 256 to 4096. 4096 take 2 block RAMs at 64 bits, and so does less.
    udp_port : int or None
        UDP packets to this port are answered by ``service``. Their UDP checksum is not looked at, and the answer has
        none.
    ipv6 : bool
        With a table of GIDs.

    Members
    -------
    enable : 1
        The addresses are known.
    mac, ip : 48, 32
        Own addresses, as numbers.
    i, i_valid : ``PacketBeat(data_width)``
        Frames without FCS; a beat a cycle. Those with ``error`` are ignored.
    o : stream of ``PacketBeat(data_width)``
    neighbour_ip : 32
        Whom to ask for, and whose reply to wait for; without a table.
    gid, gid_en : ``GidWrite``, 1
        A word of the table of GIDs is written.
    neighbour_gid, neighbour_row : 128, 4
        With a table: whom to ask for, of IPv4 if it is an IPv4-mapped GID, from the own address in this row. The reply
        must come in the row's VLAN.
    neighbour_ask : 1
        Forget the last answer and send an ARP request or a solicitation, as soon as what is under way is done.
    neighbour_mac, neighbour_valid : 48, 1
        The answer, and whether it is there. Replies that nobody asked for are ignored, also a second one.
    service : ``Service``, with a ``udp_port``
    count_arp_replies, count_echo_replies : 1
        One was sent.
    count_drop_station : 1
    """

    def __init__(self, data_width, depth=4096, udp_port=None, ipv6=False):
        if not isinstance(depth, int) or not 256 <= depth <= 4096 or depth & depth - 1:
            raise ValueError(f"depth must be a power of two, 256 to 4096, not {depth!r}")
        self.data_width = data_width
        self.depth = depth
        self.udp_port = udp_port
        self.ipv6 = ipv6
        table = {"gid": In(GidWrite), "gid_en": In(1), "neighbour_gid": In(128), "neighbour_row": In(GID_INDEX_BITS)}
        super().__init__(
            {
                "enable": In(1),
                "mac": In(48),
                "ip": In(32),
                "i": In(PacketBeat(data_width)),
                "i_valid": In(1),
                "o": Out(stream.Signature(PacketBeat(data_width))),
                "neighbour_ask": In(1),
                "neighbour_mac": Out(48),
                "neighbour_valid": Out(1),
                **({} if udp_port is None else {"service": Out(Service())}),
                **(table if ipv6 else {"neighbour_ip": In(32)}),
                "count_arp_replies": Out(1),
                "count_echo_replies": Out(1),
                "count_drop_station": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, words = self.data_width // 8, self.data_width // 16
        lane_bits, word_bits = ceil_log2(lanes), ceil_log2(words)
        m.submodules.ram = ram = Ram(self.data_width, self.depth // lanes, granularity=16)
        kinds, layout = self._programs(), instruction(self.ipv6)
        steps_bits = 6 if self.ipv6 else 5
        m.submodules.program = program = memory.Memory(
            shape=layout,
            depth=(max(kinds) + 1) << steps_bits,
            attrs={"ram_style": "block" if self.ipv6 else "logic"},
            init=[
                layout.const(steps[n].fields(last=n == len(steps) - 1, ipv6=self.ipv6) if n < len(steps) else {})
                for steps in (kinds.get(kind, ()) for kind in range(max(kinds) + 1))
                for n in range(1 << steps_bits)
            ],
        )
        fetch = program.read_port()

        m.submodules.filter = filter_ = ArpIcmpFilter(self.data_width, self.udp_port, self.ipv6)
        beat, valid, seen = filter_.o, filter_.o_valid, filter_.seen
        m.d.comb += [filter_.i.eq(self.i), filter_.i_valid.eq(self.i_valid)]
        open_ = Signal()  # an answer is waited for
        pending = Signal()  # the question has not been begun
        six, answers, tagged = Const(0), open_, Const(0)
        if self.ipv6:
            six = Signal()  # it is for an IPv6 address
            tagged = Signal()  # the frame at work has a tag
            asked_vlan = Signal(12)
            m.d.sync += six.eq(self.neighbour_gid[32:] != MAPPED)
            answers = open_ & (seen.vlan == asked_vlan)
        wanted, kind = Signal(), Signal(Kind)
        m.d.comb += wanted.eq(
            self.enable
            & (
                (seen.arp & (seen.request | (seen.reply & answers & ~six)))
                | (seen.ipv4 & (seen.icmp | (seen.udp & seen.port)))
                | (seen.ipv6 & seen.icmpv6 & (seen.solicitation | seen.echo6 | (seen.advertisement & answers & six)))
            )
        )

        row = Signal(range(self.depth // lanes))  # of the beat that comes, or goes
        count = Signal(range(lanes + 1))  # bytes in the last one
        inside, unusable = Signal(), Signal()  # a frame is under way; it cannot be taken
        receiving = Signal()
        take = Signal()
        m.d.comb += take.eq(receiving & valid & beat.last & ~beat.error & wanted & ~unusable)
        m.d.comb += self.count_drop_station.eq(valid & beat.last & ~beat.error & wanted & ~take)
        with m.If(valid):
            m.d.sync += inside.eq(~beat.last)
            with m.If(beat.last):
                m.d.sync += unusable.eq(0)
            with m.Elif(~receiving | row.all()):
                m.d.sync += unusable.eq(1)

        # A step goes through five phases: instruction, two cycles of the memory, the word, and what is done with it. It
        # is fetched while the one before is at work, the first one as the frame ``starts``.
        starts, phase = Signal(), Signal(5)
        step = Signal(steps_bits)
        now = Signal(layout)
        word, operand, total, carry = Signal(16), Signal(16), Signal(16), Signal()
        failed, done = Signal(), Signal()
        end = Signal(ceil_log2(self.depth) + 1)  # number of the last byte to send
        too_long, fits = Signal(), Signal()
        length = Signal(16)  # of the service's answer, as an IP packet
        act = phase[4]
        # Whose word is read and written.
        place, put_place, put_en = Signal(range(self.depth // 2)), Signal(range(self.depth // 2)), Signal()
        m.d.comb += [
            place.eq(self._placed(now.read, tagged)),
            put_place.eq(self._placed(now.write, tagged)),
            put_en.eq(act & now.write_en),
        ]
        raw = pick([ram.r_data.word_select(n, 16) for n in range(words)], place[:word_bits])
        m.d.comb += fetch.addr.eq(Cat(step, kind))
        differ = Cat(((word ^ operand) & mask).any() & now.check[n] for n, mask in enumerate(MASKS))
        own, summand = None, Mux(act & now.add, word, 0)
        asks, fails = pending, failed
        if self.ipv6:
            fails = Signal()
            m.submodules.own = own = OwnGids()
            number = Signal(3)
            asks, row_vlan = Signal(), Signal(12)  # who asks knows its VLAN
            m.d.sync += [
                number.eq(Mux(now.match, now.literal, now.operand)),
                asks.eq(pending & receiving),
                row_vlan.eq(own.row_vlan),
            ]
            m.d.comb += [
                own.write.eq(self.gid),
                own.write_en.eq(self.gid_en),
                own.ip.eq(self.ip),
                own.begin.eq(receiving),
                own.six.eq(seen.ipv6),
                own.vlan.eq(seen.vlan),
                own.row.eq(self.neighbour_row),
                own.number.eq(number),
                own.look.eq(act & now.match),
                own.word.eq(word),
            ]
            m.d.comb += fails.eq(failed | own.unknown)
            written = Mux(now.write_operand, operand, word)
            summand = Mux(act, Mux(now.less, ~written, Mux(now.add, word, 0)), 0)
        of_ipv6 = kind.matches(*(each for each in PROGRAMS6)) if self.ipv6 else Const(0)
        m.d.sync += [
            word.eq(Cat(raw[8:], raw[:8])),
            operand.eq(self._operand(now, length, own, asked_vlan if self.ipv6 else None)),
            Cat(total, carry).eq(total + summand + carry),
            # The frame holds the packet, and the packet what an answer needs.
            fits.eq(~too_long & (end >= ARP_BYTES - 1) & (Cat(end[:lane_bits], 0, end[lane_bits:]) < Cat(count, row))),
        ]
        with m.If(phase[0]):
            m.d.sync += [now.eq(fetch.data), step.eq(step + 1)]
        with m.If(act):
            m.d.sync += [failed.eq(differ.any()), done.eq(now.last)]
            with m.If(now.load):
                m.d.sync += Cat(total, carry).eq(operand)
            with m.If(now.size):
                six_before, four_before = (
                    self._end(size, tagged) for size in (ETHERNET_BYTES + IPV6_BYTES, ETHERNET_BYTES)
                )
                m.d.sync += [
                    end.eq(word[: len(end) - 1] + Mux(of_ipv6, six_before, four_before)),
                    too_long.eq(word[len(end) - 1 :].any()),
                ]
            with m.If(now.learn):
                m.d.sync += self.neighbour_mac.eq(Cat(word, self.neighbour_mac))

        value = Signal(16)
        m.d.comb += [
            value.eq(Mux(now.write_sum, total, Mux(now.write_operand, operand, word))),
            ram.r_addr.eq(place >> word_bits),
            ram.w_addr.eq(Mux(receiving, row, put_place >> word_bits)),
            ram.w_data.eq(Mux(receiving, beat.data, Cat(value[8:], value[:8]).replicate(words))),
            ram.w_en.eq(Mux(receiving, valid.replicate(words), put_en << put_place[:word_bits])),
        ]
        sending = Signal()
        with m.If(sending):
            m.d.comb += ram.r_addr.eq(row)
        o = self.o
        m.d.comb += o.payload.data.eq(ram.r_data)
        m.d.sync += [
            o.payload.last.eq(row == end[lane_bits:]),
            o.payload.count.eq(Mux(row == end[lane_bits:], end[:lane_bits] + 1, lanes)),
        ]

        new = (Kind.ASK6, Kind.ADVERTISEMENT, Kind.SOLICITATION, Kind.ECHO6)
        asks6, replies6, answers6, echoes6 = (([each] if self.ipv6 else []) for each in new)
        with m.FSM() as fsm:
            with m.State("RECEIVE"):
                m.d.comb += receiving.eq(1)
                m.d.sync += [end.eq(ARP_BYTES - 1), too_long.eq(0), step.eq(0), failed.eq(0), done.eq(0)]
                with m.If(valid):
                    m.d.sync += [row.eq(Mux(beat.last & ~take, 0, row + ~beat.last)), count.eq(beat.count)]
                with m.If(take):
                    m.d.sync += [
                        *([tagged.eq(seen.tagged), end.eq(self._end(ARP_BYTES, seen.tagged))] if self.ipv6 else []),
                        starts.eq(1),
                        kind.eq(
                            Mux(
                                seen.ipv4,
                                Mux(seen.icmp, Kind.ECHO, Kind.SERVICE),
                                Mux(seen.reply, Kind.REPLY, Kind.REQUEST),
                            )
                        ),
                    ]
                    with m.If(seen.ipv6):
                        m.d.sync += kind.eq(
                            Mux(seen.echo6, Kind.ECHO6, Mux(seen.advertisement, Kind.ADVERTISEMENT, Kind.SOLICITATION))
                        )
                    m.next = "RUN"
                with m.Elif(pending & asks & self.enable):
                    m.d.sync += [starts.eq(1), kind.eq(Mux(six, Kind.ASK6, Kind.ASK)), pending.eq(0)]
                    if self.ipv6:
                        in_vlan = row_vlan != 0
                        six_end, four_end = (self._end(size, in_vlan) for size in (SOLICITATION_BYTES, ARP_BYTES))
                        m.d.sync += [
                            asked_vlan.eq(row_vlan),
                            tagged.eq(in_vlan),
                            end.eq(Mux(six, six_end, four_end)),
                        ]
                    with m.If(Mux(valid, ~beat.last, inside)):
                        m.d.sync += unusable.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.sync += [phase.eq(Cat(phase[-1] | starts, phase[:-1])), starts.eq(0)]
                with m.If(phase[0] & (fails | done)):
                    m.d.sync += [phase.eq(0), row.eq(0)]
                    m.next = "RECEIVE"
                    with m.If(~fails & (fits | kind.matches(Kind.ASK, Kind.ANSWER, *asks6))):
                        with m.If(kind.matches(Kind.REPLY, *replies6)):
                            m.d.sync += [self.neighbour_valid.eq(~pending), open_.eq(pending)]
                        with m.Else():
                            m.d.sync += [phase.eq(1), o.payload.first.eq(1)]
                            m.next = "SEND"
                        if self.udp_port is not None:
                            with m.If(kind == Kind.SERVICE):
                                m.d.sync += phase.eq(0)
                                m.next = "SERVE"
            with m.State("SEND"):
                m.d.comb += sending.eq(1)
                m.d.sync += phase.eq(Cat(0, phase[0]))
                with m.If(phase[1]):
                    m.d.sync += o.valid.eq(1)
                with m.If(o.valid & o.ready):
                    m.d.sync += [o.valid.eq(0), o.payload.first.eq(0), row.eq(row + 1), phase.eq(1)]
                    with m.If(o.payload.last):
                        m.d.sync += [row.eq(0), phase.eq(0)]
                        m.d.comb += [
                            self.count_arp_replies.eq(kind.matches(Kind.REQUEST, *answers6)),
                            self.count_echo_replies.eq(kind.matches(Kind.ECHO, *echoes6)),
                        ]
                        m.next = "RECEIVE"
            if self.udp_port is not None:
                service = self.service
                starting = Signal(init=1)
                m.d.comb += [service.start.eq(fsm.ongoing("SERVE") & starting), service.r_data.eq(word)]
                m.d.sync += starting.eq(~fsm.ongoing("SERVE"))
                with m.State("SERVE"):
                    m.d.comb += [
                        place.eq(self._moved(service.place, tagged)),
                        put_place.eq(self._moved(service.place, tagged)),
                        put_en.eq(service.w_en),
                        value.eq(service.w_data),
                    ]
                    m.d.sync += [
                        kind.eq(Kind.ANSWER),
                        step.eq(0),
                        done.eq(0),
                        end.eq(service.size + self._end(ETHERNET_BYTES + IP_BYTES + UDP_BYTES, tagged)),
                        length.eq(service.size + (IP_BYTES + UDP_BYTES)),
                    ]
                    with m.If(service.done):
                        m.d.sync += starts.eq(1)
                        m.next = "RUN"
                        with m.If(service.size == 0):
                            m.next = "RECEIVE"
        with m.If(self.neighbour_ask):
            m.d.sync += [pending.eq(1), open_.eq(1), self.neighbour_valid.eq(0)]
        return m

    def _moved(self, word, tagged):
        """Where a word of a frame without tag stands in one with it."""
        return word + Mux(tagged & (word >= ETHERTYPE_WORD), TAG_WORDS, 0) if self.ipv6 else word

    def _placed(self, word, tagged):
        """Where a word that an instruction names stands."""
        return Mux(word >= TAG[0], word[:3], self._moved(word, tagged)) if self.ipv6 else word

    def _end(self, size, tagged):
        """Number of the last of ``size`` bytes of a frame without tag."""
        return Mux(tagged, size + TAG_BYTES - 1, size - 1) if self.ipv6 else size - 1

    def _programs(self):
        """The steps of each :class:`.arp_icmp_microcode.Kind`."""
        service = {} if self.udp_port is None else service_programs(self.udp_port, self.ipv6)
        return programs4(self.ipv6) | service | (PROGRAMS6 if self.ipv6 else {})

    def _operand(self, now, length, own, vlan):
        values = {Operand.LITERAL: now.literal}
        addresses = {Operand.MAC_0: self.mac, Operand.IP_0: self.ip}
        addresses |= {} if self.ipv6 else {Operand.TARGET_0: self.neighbour_ip}
        for first, address in addresses.items():
            count = len(address) // 16
            values |= {first + n: address.word_select(count - 1 - n, 16) for n in range(count)}
        if self.ipv6:
            values |= {
                Operand.LENGTH: length,
                Operand.NOT_LENGTH: ~length,
                Operand.UDP_LENGTH: (length - IP_BYTES)[:16],
            }
            sought = [self.neighbour_gid.word_select(7 - n, 16) for n in range(8)]
            values[Operand.SOUGHT_LAST] = Cat(sought[6][:8], Const(0xFF, 8))
            values[Operand.VLAN] = vlan
            low = pick([values.get(operand, 0) for operand in range(Operand.VLAN + 1)], now.operand[:4])
            return Mux(now.operand[4], Mux(now.operand[3], own.source, pick(sought, now.operand[:3])), low)
        if self.udp_port is None:
            return pick([values[operand] for operand in Operand if operand in values], now.operand[:3])
        values |= {Operand.LENGTH: length, Operand.NOT_LENGTH: ~length, Operand.UDP_LENGTH: (length - IP_BYTES)[:16]}
        return pick([values[operand] for operand in Operand if operand in values], now.operand)
