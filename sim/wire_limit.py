"""What a wire could carry at best: Ethernet's and RoCE's overhead, in cycles of the engine's bus."""

from verbena.hdl.abi.wqe import SendOpcode

__all__ = ["FRAMING", "frame_bytes", "go_back_n", "packets", "wire_cycles"]

FRAMING = 24
"""Bytes on the wire around a frame: preamble 8, FCS 4, gap 12."""

HEADERS = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC."""

RETH, IMMEDIATE, AETH = 16, 4, 4
ATOMIC_VALUE = 8
WRITES = (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM)
ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
IMMEDIATES = (SendOpcode.RDMA_WRITE_WITH_IMM, SendOpcode.SEND_WITH_IMM)


def packets(size, mtu):
    """Packets of a message of ``size`` bytes."""
    return max(1, -(-size // mtu))


def frame_bytes(opcode, size, mtu):
    """Bytes of all frames of one message, without FCS; of a READ or atomic, of its responses."""
    pad = -size & 3  # only the last packet is padded: MTUs are multiples of 4
    if opcode in ATOMICS:
        return HEADERS + AETH + ATOMIC_VALUE
    if opcode == SendOpcode.RDMA_READ:
        return packets(size, mtu) * HEADERS + size + pad + AETH * min(2, packets(size, mtu))  # first and last
    total = packets(size, mtu) * HEADERS + size + pad
    return total + RETH * (opcode in WRITES) + IMMEDIATE * (opcode in IMMEDIATES)


def wire_cycles(opcode, size, mtu, data_width):
    """Cycles for which one message occupies a wire as fast as a bus of ``data_width`` bits."""
    return (frame_bytes(opcode, size, mtu) + FRAMING * packets(size, mtu)) * 8 / data_width


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
