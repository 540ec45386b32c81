"""The microcode of neighbour discovery and ICMPv6 echo, as that of :mod:`.arp_icmp_microcode`.

The layouts are those of RFC 8200 (IPv6), RFC 4443 (ICMPv6) and RFC 4861 (neighbour discovery). Checksums are changed by
what changes in the packet (RFC 1624), so a wrong one is as wrong in the answer.
"""

from ..abi.gids import TPID
from .arp_icmp_microcode import GROUP, MAC, TAG, Kind, Operand, Step, copy, equal, put

__all__ = ["PROGRAMS6"]

# IPv6: 7, 8 version, traffic class and flow label; 9 payload length; 10 next header and hop limit; 11 to 18 source; 19
# to 26 destination. ICMPv6: 27 type and code; 28 checksum. Of a solicitation and an advertisement: 29, 30 flags; 31 to
# 38 target; 39 option and its length; 40 to 42 MAC address.
ETHERTYPE, VERSION = 0x86DD, 0x6000
LENGTH, HEADER, HOP_LIMIT, TYPE, CHECKSUM, FLAGS, OPTION = 9, 10, 10, 27, 28, 29, 39
SOURCE, DESTINATION, TARGET = range(11, 19), range(19, 27), range(31, 39)
LINK_ADDRESS = range(40, 43)
DISCOVERY = 0x3AFF
"""Next header ICMPv6, and hop limit 255: it comes from this link."""

ICMPV6, ANY_HOP = 0x3A00, 0x3A40
SOLICITATION, ADVERTISEMENT = 0x8700, 0x8800
ECHO_REQUEST, ECHO_REPLY = 0x8000, 0x8100
SOLICITED = 0x6000
"""Flags of an answer: it was asked for, and counts instead of what was known."""

FROM, TO = 0x0101, 0x0201
"""Options: the MAC address of the sender, or of the target; 8 bytes."""

BODY = 24 + 8
"""Bytes of a solicitation or advertisement with its option."""

PSEUDO = BODY + 58
"""Of the pseudo header, besides the addresses: length and next header."""

OWN, THEIR = range(Operand.SOURCE_0, Operand.SOURCE_0 + 8), range(Operand.SOUGHT_0, Operand.SOUGHT_0 + 8)


def total(values):
    """Sum of numbers of 16 bits, as a ones' complement."""
    result = sum(values)
    while result >> 16:
        result = (result & 0xFFFF) + (result >> 16)
    return result


def minus(value):
    return ~value & 0xFFFF


def put_less(words, operands):
    """Puts, and takes what is put from the sum."""
    return [
        Step(write=word, operand=operand, source="operand", less=True)
        for word, operand in zip(words, operands, strict=True)
    ]


def right_sum():
    """The packet adds up to all ones; word 3 lends itself."""
    return [Step(write=3, source="sum"), equal(3, 0xFFFF)]


GROUP_OF_NODES = (0xFF02, 0, 0, 0, 0, 1, Operand.SOUGHT_LAST, Operand(Operand.SOUGHT_0 + 7))
"""The address at which who has the one that is sought listens (RFC 4291, 2.7.1)."""

PROGRAMS6 = {
    Kind.ASK6: [
        *put(TAG, (TPID, Operand.VLAN)),
        *put((0, 1, 2), (0x3333, *GROUP_OF_NODES[6:])),
        *put((3, 4, 5), MAC),
        *put((6, 7, 8, 9, 10, 30), (ETHERTYPE, VERSION, 0, BODY, DISCOVERY, 0)),
        Step(operand=minus(PSEUDO), load=True),
        *put_less(SOURCE, map(Operand, OWN)),
        *put_less(DESTINATION, GROUP_OF_NODES),
        *put_less((TYPE, FLAGS, OPTION), (SOLICITATION, 0, FROM)),
        *put_less(TARGET, map(Operand, THEIR)),
        *put_less(LINK_ADDRESS, MAC),
        Step(write=CHECKSUM, source="sum"),
    ],
    Kind.SOLICITATION: [
        equal(HEADER, DISCOVERY),
        equal(LENGTH, BODY, size=True),
        equal(TYPE, SOLICITATION),
        equal(OPTION, FROM),
        Step(
            operand=total((SOLICITATION, FROM, minus(ADVERTISEMENT), minus(TO), minus(SOLICITED))),
            load=True,
        ),
        *(Step(word, add=True) for word in (CHECKSUM, FLAGS, FLAGS + 1, *DESTINATION)),
        *(copy(old, new) for old, new in zip(SOURCE, DESTINATION)),
        *(Step(old, match=n, write=new, less=True) for n, (old, new) in enumerate(zip(TARGET, SOURCE))),
        equal(LINK_ADDRESS[0], 0, GROUP, write=0, add=True),
        copy(LINK_ADDRESS[1], 1, add=True),
        copy(LINK_ADDRESS[2], 2, add=True),
        *put_less(LINK_ADDRESS, MAC),
        Step(write=CHECKSUM, source="sum"),
        *put((TYPE, FLAGS, FLAGS + 1, OPTION), (ADVERTISEMENT, SOLICITED, 0, TO)),
        *put((3, 4, 5), MAC),
    ],
    Kind.ADVERTISEMENT: [
        equal(HEADER, DISCOVERY),
        equal(LENGTH, BODY, size=True),
        Step(operand=PSEUDO, load=True),
        *(Step(word, add=True) for word in (*SOURCE, *DESTINATION)),
        equal(TYPE, ADVERTISEMENT, add=True),
        *(Step(word, add=True) for word in (CHECKSUM, FLAGS, FLAGS + 1)),
        *(equal(word, Operand(operand), add=True) for word, operand in zip(TARGET, THEIR)),
        equal(OPTION, TO, add=True),
        *(Step(word, add=True) for word in LINK_ADDRESS),
        *right_sum(),
        equal(LINK_ADDRESS[0], 0, GROUP, learn=True),
        *(Step(word, learn=True) for word in LINK_ADDRESS[1:]),
    ],
    Kind.ECHO6: [
        *(equal(word, value) for word, value in zip((0, 1, 2), MAC)),
        equal(3, 0, GROUP, write=0),
        copy(4, 1),
        copy(5, 2),
        Step(LENGTH, size=True),
        equal(TYPE, ECHO_REQUEST),
        Step(operand=total((ECHO_REQUEST, minus(ECHO_REPLY))), load=True),
        Step(CHECKSUM, add=True),
        Step(write=CHECKSUM, source="sum"),
        # Word 3 lends itself.
        *(
            step
            for n, (source, destination) in enumerate(zip(SOURCE, DESTINATION))
            for step in (Step(destination, match=n, write=3), copy(source, destination), copy(3, source))
        ),
        *put((HOP_LIMIT, TYPE), (ANY_HOP, ECHO_REPLY)),
        *put((3, 4, 5), MAC),
    ],
}
