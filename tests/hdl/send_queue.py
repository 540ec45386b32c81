"""Oracle of the send queue: from WQEs to packets as the specification has them. Knows nothing of the hardware."""

from dataclasses import dataclass, field

from verbena.hdl.abi.wqe import SEND_WQE, SGE, SendFlag, SendOpcode
from verbena.hdl.roce.opcodes import opcode as wire_opcode

__all__ = ["Wqe", "gather", "packets_of"]

NAMES = {
    SendOpcode.RDMA_WRITE: "RDMA_WRITE",
    SendOpcode.RDMA_WRITE_WITH_IMM: "RDMA_WRITE",
    SendOpcode.SEND: "SEND",
    SendOpcode.SEND_WITH_IMM: "SEND",
}


@dataclass
class Wqe:
    """A send work request. ``sges``: (address, length, key); ``data``: inline bytes, or None."""

    opcode: int = SendOpcode.SEND
    flags: int = 0
    sges: list = field(default_factory=list)
    data: bytes | None = None
    immediate: int = 0
    remote_address: int = 0
    rkey: int = 0
    length: int | None = None  # to lie about it
    sge_count: int | None = None

    @property
    def true_length(self):
        return len(self.data) if self.data is not None else sum(sge[1] for sge in self.sges)

    def pack(self, size):
        """Bytes of the WQE in a ring of ``size`` bytes each."""
        flags = self.flags | (SendFlag.INLINE if self.data is not None else 0)
        fixed = SEND_WQE.pack(
            opcode=self.opcode,
            flags=flags,
            sge_count=len(self.sges) if self.sge_count is None else self.sge_count,
            immediate=self.immediate,
            remote_address=self.remote_address,
            rkey=self.rkey,
            length=self.true_length if self.length is None else self.length,
        )[:32]
        if self.data is not None:
            fixed += self.data
        else:
            fixed += b"".join(SGE.pack(address=a, length=n, lkey=k) for a, n, k in self.sges)
        return fixed[:size].ljust(size, b"\0")


def gather(sges, start, end):
    """(key, address, length) of the bytes ``start`` to ``end`` of what ``sges`` hold one behind the other."""
    pieces = []
    at = 0
    for address, length, key in sges:
        low, high = max(start, at), min(end, at + length)
        if low < high:
            pieces.append((key, address + low - at, high - low))
        at += length
    return pieces


def packets_of(wqe, mtu, psn):
    """Packets of one message: dictionaries of header fields; ``pieces`` as of :func:`gather`, ``data`` if inline."""
    length = wqe.true_length
    count = max(1, -(-length // mtu))
    has_immediate = wqe.opcode in (SendOpcode.SEND_WITH_IMM, SendOpcode.RDMA_WRITE_WITH_IMM)
    packets = []
    for number in range(count):
        first, last = number == 0, number == count - 1
        position = "ONLY" if first and last else "FIRST" if first else "LAST" if last else "MIDDLE"
        suffix = "_WITH_IMMEDIATE" if has_immediate and last else ""
        start, end = number * mtu, min(length, (number + 1) * mtu)
        here = (psn + number) % (1 << 24)
        solicits = bool(wqe.flags & SendFlag.SOLICITED) and wqe.opcode != SendOpcode.RDMA_WRITE
        packet = {
            "opcode": wire_opcode(f"RC_{NAMES[wqe.opcode]}_{position}{suffix}"),
            "psn": here,
            "length": end - start,
            "solicited": int(last and solicits),
            "ack_request": int(last or here % 32 == 31),
            "message_last": int(last),
            "pieces": [] if wqe.data is not None else gather(wqe.sges, start, end),
            "data": wqe.data,
        }
        if suffix:
            packet["immediate"] = wqe.immediate
        if first and NAMES[wqe.opcode] == "RDMA_WRITE":
            packet |= {"address": wqe.remote_address, "rkey": wqe.rkey, "dma_length": length}
        packets.append(packet)
    return packets
