"""What a wire could carry at best: Ethernet's and RoCE's overhead, in cycles of the engine's bus.

A wire has two directions. What a message needs in the requester's is its requests, in the other its responses; the one
that is occupied longer limits the rate.
"""

from typing import NamedTuple

from verbena.hdl.abi.wqe import SendOpcode

__all__ = [
    "ACK",
    "DETH",
    "FRAMING",
    "Directions",
    "both_ways_cycles",
    "directions",
    "frame_bytes",
    "go_back_n",
    "packets",
    "request_bytes",
    "wire_cycles",
]

FRAMING = 24
"""Bytes on the wire around a frame: preamble 8, FCS 4, gap 12."""

HEADERS = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC."""

RETH, IMMEDIATE, AETH, DETH = 16, 4, 4, 8
ATOMIC_ETH, ATOMIC_VALUE = 28, 8
ACK = HEADERS + AETH
"""Bytes of an acknowledgement's frame, without FCS."""

WRITES = (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM)
ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
IMMEDIATES = (SendOpcode.RDMA_WRITE_WITH_IMM, SendOpcode.SEND_WITH_IMM)
RESPONDED = (SendOpcode.RDMA_READ, *ATOMICS)
"""Operations whose data comes back."""


class Directions(NamedTuple):
    """Cycles for which a message occupies a wire, each direction of it."""

    requests: float
    responses: float


def packets(size, mtu):
    """Packets of a message of ``size`` bytes."""
    return max(1, -(-size // mtu))


def frame_bytes(opcode, size, mtu):
    """Bytes of all frames that carry the data of one message, without FCS: of a READ or atomic, of its responses."""
    pad = -size & 3  # only the last packet is padded: MTUs are multiples of 4
    if opcode in ATOMICS:
        return HEADERS + AETH + ATOMIC_VALUE
    if opcode == SendOpcode.RDMA_READ:
        return packets(size, mtu) * HEADERS + size + pad + AETH * min(2, packets(size, mtu))  # first and last
    total = packets(size, mtu) * HEADERS + size + pad
    return total + RETH * (opcode in WRITES) + IMMEDIATE * (opcode in IMMEDIATES)


def request_bytes(opcode, size, mtu):
    """Bytes of all frames that a requester sends for one message, without FCS."""
    if opcode in ATOMICS:
        return HEADERS + ATOMIC_ETH
    if opcode == SendOpcode.RDMA_READ:
        return HEADERS + RETH
    return frame_bytes(opcode, size, mtu)


def directions(opcode, size, mtu, data_width, messages_per_ack=None):
    """:class:`Directions` of one message on a wire as fast as a bus of ``data_width`` bits.

    ``messages_per_ack`` says how often a WRITE or SEND is acknowledged; None leaves the ACKs out: an adapter may join
    as many as it likes.
    """
    count = packets(size, mtu)
    data = frame_bytes(opcode, size, mtu) + FRAMING * count
    if opcode in RESPONDED:
        both = request_bytes(opcode, size, mtu) + FRAMING, data
    else:
        both = data, (ACK + FRAMING) / messages_per_ack if messages_per_ack else 0
    return Directions(*(length * 8 / data_width for length in both))


def wire_cycles(opcode, size, mtu, data_width, messages_per_ack=None):
    """Cycles for which one message occupies the tighter direction of a wire; parameters of :func:`directions`."""
    return max(directions(opcode, size, mtu, data_width, messages_per_ack))


def both_ways_cycles(opcode, size, mtu, data_width, messages_per_ack=None):
    """Cycles for which a pair of messages, one each way, occupies each direction of a wire: the requests of the one and
    the responses or ACKs of the other share it.
    """
    return sum(directions(opcode, size, mtu, data_width, messages_per_ack))


def go_back_n(loss, packet_cycles, round_trip):
    """Share of the loss-free rate that an ideal go-back-N reaches: every loss costs the packets that were sent from the
    lost one on until it is sent again, and nothing else.

    The receiver sees the gap at the next packet, and its NAK is there after ``round_trip``: 2 packets and as many more
    as fit that time are sent in vain (Tanenbaum, Bertsekas and others: 1 / (1 + N p / (1 - p))).

    Parameters
    ----------
    loss : float
        Probability that a packet is lost.
    packet_cycles : float
        Time of a packet on the wire.
    round_trip : float
        Cycles from a packet's end on the wire until what answers it can be on the wire.
    """
    vain = 2 + round_trip / packet_cycles
    return (1 - loss) / (1 - loss + loss * vain)
