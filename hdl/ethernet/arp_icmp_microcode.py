"""The microcode of ARP and ICMP echo: what is done with a frame, step by step.

A frame stands in memory as words of 16 bits, in the order of the wire: 0 to 2 destination, 3 to 5 source, 6 ethertype.
An answer is made in its place. The layouts are those of RFC 826 (ARP), RFC 791 (IPv4) and RFC 792 (ICMP). A tag of a
VLAN is no word of these: from the ethertype on a word stands two places further behind in a frame that has one.
"""

from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data

from ..abi.gids import TPID

__all__ = [
    "GROUP",
    "MAC",
    "MASKS",
    "TAG",
    "TAG_WORDS",
    "Kind",
    "Operand",
    "Step",
    "copy",
    "equal",
    "instruction",
    "programs4",
    "put",
    "service_programs",
]


class Kind(IntEnum):
    """What is to be done; also the number of the program."""

    ASK = 0  # somebody wants to know a MAC address: send an ARP request
    REQUEST = 1  # an ARP request came
    REPLY = 2  # an ARP reply came
    ECHO = 3  # an ICMP packet came
    SERVICE = 4  # a UDP packet came
    ANSWER = 5  # the service has answered it
    ASK6 = 6  # the same as ASK for an IPv6 address: send a neighbour solicitation
    SOLICITATION = 7  # a neighbour solicitation came
    ADVERTISEMENT = 8  # a neighbour advertisement came
    ECHO6 = 9  # an ICMPv6 echo request came


class Operand(IntEnum):
    """What a word is compared with or replaced by. Of an address, word 0 is the first on the wire."""

    MAC_0 = 0  # own addresses
    MAC_1 = 1
    MAC_2 = 2
    IP_0 = 3
    IP_1 = 4
    TARGET_0 = 5  # the address that is asked for
    TARGET_1 = 6
    LITERAL = 7
    LENGTH = 8  # of the service's answer, as an IP packet
    NOT_LENGTH = 9  # its complement
    UDP_LENGTH = 10
    SOUGHT_LAST = 11  # 0xff, and the third last byte of the IPv6 address that is sought
    VLAN = 12  # of the address that is asked from
    SOUGHT_0 = 16  # of the address that is sought, of which an IPv4 address is the last two words
    SOUGHT_1 = 17
    SOUGHT_2 = 18
    SOUGHT_3 = 19
    SOUGHT_4 = 20
    SOUGHT_5 = 21
    SOUGHT_6 = 22
    SOUGHT_7 = 23
    SOURCE_0 = 24  # of the own address that is asked from
    SOURCE_1 = 25
    SOURCE_2 = 26
    SOURCE_3 = 27
    SOURCE_4 = 28
    SOURCE_5 = 29
    SOURCE_6 = 30
    SOURCE_7 = 31


MASKS = (0xC000, 0x3E00, 0x0100, 0x00FF)
"""Groups of bits of a word that are compared together."""


TAG = (62, 63)
"""The words of the tag, of 802.1Q; in a frame without one they are those from the ethertype on."""

TAG_WORDS = 2


def instruction(ipv6=False):
    """Layout of an instruction; with ``ipv6`` it reaches words up to 63, and knows ``less`` and ``match``."""
    place = 6 if ipv6 else 5
    return data.StructLayout(
        {
            "read": place,
            "operand": 5 if ipv6 else 4,
            "literal": 16,
            "check": len(MASKS),
            "write": place,
            "write_en": 1,
            "write_operand": 1,
            "write_sum": 1,
            "load": 1,
            "add": 1,
            "size": 1,
            "learn": 1,
            "last": 1,
            **({"less": 1, "match": 1} if ipv6 else {}),
        }
    )


@dataclass(frozen=True)
class Step:
    """Reads a word, and does with it what is asked for.

    Members
    -------
    read : int
        The word.
    operand : Operand or int
        A number is a ``LITERAL``.
    mask : int
        The program ends in vain unless word and operand agree in these bits: some of :data:`MASKS`.
    write : int or None
        Word that is written.
    source : "word", "operand" or "sum"
        What is written to it; of the sum, what the steps before have made of it.
    load, add : bool
        The sum becomes the operand; the word is added to it, as a ones' complement.
    size : bool
        The word is the length of the IP packet.
    learn : bool
        The word is the next one of the MAC address that was asked for.
    less : bool
        The word, or the operand if that is written, is taken from the sum.
    match : int or None
        The word is that of an address with this number, 0 to 7, or 6 and 7 of IPv4; the program ends in vain unless one
        of the own addresses has all that have been looked at.
    """

    read: int = 0
    operand: int = 0
    mask: int = 0
    write: int | None = None
    source: str = "word"
    load: bool = False
    add: bool = False
    size: bool = False
    learn: bool = False
    less: bool = False
    match: int | None = None

    def fields(self, *, last, ipv6=False):
        """The fields of an :func:`instruction`."""
        check = sum(1 << n for n, bits in enumerate(MASKS) if self.mask & bits)
        assert self.mask == sum(bits for n, bits in enumerate(MASKS) if check >> n & 1)
        named = isinstance(self.operand, Operand)
        assert ipv6 or (self.match is None and not self.less)
        more = {"less": self.less, "match": self.match is not None} if ipv6 else {}
        assert self.match is None or not (self.operand or self.mask)
        return {
            "read": self.read,
            "operand": self.operand if named else Operand.LITERAL,
            "literal": (0 if named else self.operand) | (self.match or 0),
            "check": check,
            "write": self.write or 0,
            "write_en": self.write is not None,
            "write_operand": self.source == "operand",
            "write_sum": self.source == "sum",
            "load": self.load,
            "add": self.add,
            "size": self.size,
            "learn": self.learn,
            "last": last,
            **more,
        }


def equal(word, operand, mask=0xFFFF, **more):
    return Step(word, operand, mask, **more)


def copy(word, to, **more):
    return Step(word, write=to, **more)


def put(words, operands):
    return [Step(write=word, operand=operand, source="operand") for word, operand in zip(words, operands, strict=True)]


MAC = (Operand.MAC_0, Operand.MAC_1, Operand.MAC_2)
IP = (Operand.IP_0, Operand.IP_1)
TARGET = (Operand.TARGET_0, Operand.TARGET_1)
GROUP = 0x0100
"""In the first word of a MAC address: it is not that of a single host."""

# ARP: 7 to 9 hardware, protocol, and their sizes; 10 operation; 11 to 13 and 14, 15 sender's addresses; 16 to 18 and
# 19, 20 target's.
ARP = {6: 0x0806, 7: 1, 8: 0x0800, 9: 0x0604}
ARP_REQUEST, ARP_REPLY = 1, 2


def own(places, table, **more):
    """The IPv4 address at these words is an own one."""
    if table:
        return [Step(word, match=number, **more) for word, number in zip(places, (6, 7), strict=True)]
    return [equal(word, half, **more) for word, half in zip(places, IP, strict=True)]


def about_us(table):
    """ARP that is meant for an own address."""
    return [*own((19, 20), table), *[equal(word, value) for word, value in ARP.items()]]


# IPv4: 7 version, header length and TOS; 8 length; 10 fragment; 11 TTL and protocol; 12 checksum; 13, 14 source; 15, 16
# destination. ICMP: 17 type and code; 18 checksum.
# UDP: 17 and 18 source and destination port; 19 length; 20 checksum.
TTL_AND_ICMP, TTL_AND_UDP = 64 << 8 | 1, 64 << 8 | 17
ECHO_REQUEST, ECHO_REPLY = 0x0800, 0x0000


def turn(own, theirs, table, **more):
    """A word of the own address and one of the peer's change places, for which word 3 lends itself. Without a table the
    own one is known, and put there later.
    """
    if table:
        return [copy(own, 3), copy(theirs, own, **more), copy(3, theirs)]
    return [copy(theirs, own, **more)]


def from_peer(protocol, table):
    """An IP packet to us is right, and its sender becomes the receiver, and with a ``table`` we the sender.
    ``protocol`` is its word 11, with any TTL.
    """
    return [
        *[equal(word, value) for word, value in zip((0, 1, 2), MAC)],
        equal(3, 0, GROUP, write=0),
        copy(4, 1),
        copy(5, 2, load=True),
        # The words of the header, its checksum among them, add up to all ones.
        equal(7, 0x4500, 0xFF00, add=True),
        Step(8, add=True, size=True),
        Step(9, add=True),
        equal(10, 0, 0x3FFF, add=True),
        equal(11, protocol, 0x00FF, add=True),
        Step(12, add=True),
        *own((15, 16), table, add=True),
        *turn(15, 13, table, add=True),
        *turn(16, 14, table, add=True),
        Step(write=3, source="sum"),
        equal(3, 0xFFFF),
    ]


def programs4(table=False):
    """The programs of ARP and ICMP, by their :class:`Kind`. With a ``table`` of GIDs the own addresses are those there,
    and it is asked from one of them; otherwise there is one.
    """
    source = (Operand.SOURCE_6, Operand.SOURCE_7) if table else IP
    sought = (Operand.SOUGHT_6, Operand.SOUGHT_7) if table else TARGET
    back = put((3, 4, 5, 11, 12, 13), (*MAC, *MAC))
    return {
        Kind.ASK: [
            *(put(TAG, (TPID, Operand.VLAN)) if table else ()),
            *put((0, 1, 2), (0xFFFF, 0xFFFF, 0xFFFF)),
            *put(ARP, ARP.values()),
            *put((10, 16, 17, 18, 19, 20), (ARP_REQUEST, 0, 0, 0, *sought)),
            *back,
            *put((14, 15), source),
        ],
        Kind.REQUEST: [
            *about_us(table),
            equal(10, ARP_REQUEST),
            equal(11, 0, GROUP, write=0),
            copy(12, 1),
            copy(13, 2),
            *[copy(word, word + 5) for word in (11, 12, 13)],
            *turn(19, 14, table),
            *turn(20, 15, table),
            *put((10,), (ARP_REPLY,)),
            *back,
            *([] if table else put((14, 15), IP)),
        ],
        Kind.REPLY: [
            *about_us(table),
            equal(10, ARP_REPLY),
            *[equal(word, half) for word, half in zip((14, 15), sought)],
            equal(11, 0, GROUP, learn=True),
            Step(12, learn=True),
            Step(13, learn=True),
        ],
        Kind.ECHO: [
            *from_peer(TTL_AND_ICMP, table),
            # A word less and another more: the checksum changes the other way (RFC 1624).
            Step(operand=~TTL_AND_ICMP & 0xFFFF, load=True),
            Step(11, TTL_AND_ICMP, add=True, write=11, source="operand"),
            Step(12, add=True),
            Step(write=12, source="sum"),
            equal(17, ECHO_REQUEST, load=True),
            Step(18, add=True),
            Step(write=18, source="sum"),
            *put((17,), (ECHO_REPLY,)),
            *put((3, 4, 5), MAC),
            *([] if table else put((13, 14), IP)),
        ],
    }


def service_programs(udp_port, table=False):
    """What is done with UDP packets to this port, and with the answers; see :func:`programs4`."""
    service = [*from_peer(TTL_AND_UDP, table), equal(18, udp_port), copy(17, 18), *put((17,), (udp_port,))]
    answer = [
        # Word 3 lends itself: its own content comes last.
        *put((3,), (~TTL_AND_UDP & 0xFFFF,)),
        Step(8, Operand.NOT_LENGTH, load=True),
        Step(8, Operand.LENGTH, add=True, write=8, source="operand"),
        Step(11, TTL_AND_UDP, add=True, write=11, source="operand"),
        Step(12, add=True),
        Step(3, add=True),
        Step(write=12, source="sum"),
        *put((19, 20), (Operand.UDP_LENGTH, 0)),
        *put((3, 4, 5), MAC),
        *([] if table else put((13, 14), IP)),
    ]
    return {Kind.SERVICE: service, Kind.ANSWER: answer}
