"""What a wire could carry at best: Ethernet's and RoCE's overhead, in cycles of the engine's bus."""

from verbena.hdl.abi.wqe import SendOpcode

__all__ = ["FRAMING", "frame_bytes", "packets", "wire_cycles"]

FRAMING = 24
"""Bytes on the wire around a frame: preamble 8, FCS 4, gap 12."""

HEADERS = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH and ICRC."""

RETH, IMMEDIATE = 16, 4
WRITES = (SendOpcode.RDMA_WRITE, SendOpcode.RDMA_WRITE_WITH_IMM)
IMMEDIATES = (SendOpcode.RDMA_WRITE_WITH_IMM, SendOpcode.SEND_WITH_IMM)


def packets(size, mtu):
    """Packets of a message of ``size`` bytes."""
    return max(1, -(-size // mtu))


def frame_bytes(opcode, size, mtu):
    """Bytes of all frames of one message, without FCS."""
    pad = -size & 3  # only the last packet is padded: MTUs are multiples of 4
    total = packets(size, mtu) * HEADERS + size + pad
    return total + RETH * (opcode in WRITES) + IMMEDIATE * (opcode in IMMEDIATES)


def wire_cycles(opcode, size, mtu, data_width):
    """Cycles for which one message occupies a wire as fast as a bus of ``data_width`` bits."""
    return (frame_bytes(opcode, size, mtu) + FRAMING * packets(size, mtu)) * 8 / data_width
