"""Oracle of the send queue: from WQEs to packets as the specification has them. Knows nothing of the hardware."""

import struct
from dataclasses import dataclass, field

from verbena.hdl.abi.wqe import SEND_WQE, SGE, SendFlag, SendOpcode
from verbena.hdl.wire.opcodes import opcode as wire_opcode

__all__ = ["ATOMICS", "ONE_SIDED", "Wqe", "datagram_of", "gather", "packets_of", "psns_of", "resend_of", "target_of"]

NAMES = {
    SendOpcode.RDMA_WRITE: "RDMA_WRITE",
    SendOpcode.RDMA_WRITE_WITH_IMM: "RDMA_WRITE",
    SendOpcode.SEND: "SEND",
    SendOpcode.SEND_WITH_IMM: "SEND",
    SendOpcode.RDMA_READ: "RDMA_READ_REQUEST",
    SendOpcode.ATOMIC_CMP_AND_SWP: "COMPARE_SWAP",
    SendOpcode.ATOMIC_FETCH_AND_ADD: "FETCH_ADD",
}

ATOMICS = (SendOpcode.ATOMIC_CMP_AND_SWP, SendOpcode.ATOMIC_FETCH_AND_ADD)
ONE_SIDED = (SendOpcode.RDMA_READ, *ATOMICS)


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
    compare_add: int = 0
    swap: int = 0
    traffic_class: int = 0
    dest_mac: int = 0
    source_port: int = 0
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
            traffic_class=self.traffic_class,
            dest_mac=self.dest_mac,
            source_port=self.source_port,
            length=self.true_length if self.length is None else self.length,
        )[:32]
        if self.data is not None:
            fixed += self.data
        else:
            fixed += b"".join(SGE.pack(address=a, length=n, lkey=k) for a, n, k in self.sges)
        if self.opcode in ATOMICS:
            fixed = fixed[:48].ljust(48, b"\0") + struct.pack("<QQ", self.compare_add, self.swap)
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


def psns_of(wqe, mtu):
    """PSNs that a message takes: those of its packets, or of a READ's responses."""
    return max(1, -(-wqe.true_length // mtu))


def request_of(wqe, mtu, psn, skip):
    """The packet of a READ, of which ``skip`` responses are there already, or of an atomic."""
    start = skip * mtu
    packet = {
        "opcode": wire_opcode(f"RC_{NAMES[wqe.opcode]}"),
        "psn": (psn + skip) % (1 << 24),
        "last_psn": (psn + psns_of(wqe, mtu) - 1) % (1 << 24),
        "length": 0,
        "solicited": 0,
        "ack_request": 1,
        "message_last": 1,
        "pieces": [],
        "data": None,
        "address": (wqe.remote_address + start) % (1 << 64),
        "rkey": wqe.rkey,
    }
    if wqe.opcode == SendOpcode.RDMA_READ:
        return packet | {"dma_length": wqe.true_length - start}
    first = wqe.swap if wqe.opcode == SendOpcode.ATOMIC_CMP_AND_SWP else wqe.compare_add
    second = wqe.compare_add if wqe.opcode == SendOpcode.ATOMIC_CMP_AND_SWP else 0
    return packet | {"length": 16, "data": struct.pack(">QQ", first, second)}


def resend_of(wqe, mtu, psn, skip, *, unreliable=False):
    """Packets of a message, of whose PSNs the first ``skip`` are acknowledged already."""
    if wqe.opcode in ONE_SIDED:
        return [request_of(wqe, mtu, psn, skip)]
    return packets_of(wqe, mtu, psn, unreliable=unreliable)[skip:]


def target_of(wqe, psn, index, stride):
    """The ``ReadTarget`` of a READ or atomic; without ``second`` if there is no second entry."""
    address, length, key = wqe.sges[0] if wqe.sges else (0, 0, 0)
    second = {"second": dict(zip(("address", "length", "lkey"), wqe.sges[1]))} if wqe.sges[1:] else {}
    return second | {
        "psn": psn,
        "wqe_index": index % 65536,
        "length": wqe.true_length,
        "address": address,
        "entry_length": length,
        "lkey": key,
        "stride": stride,
        "atomic": int(wqe.opcode in ATOMICS),
        "sge_count": len(wqe.sges),
    }


def datagram_of(wqe, psn):
    """The packet of a message of UD; where it goes stands in fields that it does not need otherwise."""
    (packet,) = packets_of(wqe, max(1, wqe.true_length), psn, unreliable=True)
    suffix = "_WITH_IMMEDIATE" if wqe.opcode == SendOpcode.SEND_WITH_IMM else ""
    return packet | {
        "opcode": wire_opcode(f"UD_SEND_ONLY{suffix}"),
        "address": wqe.remote_address,
        "rkey": wqe.rkey,
        "dma_length": wqe.dest_mac % (1 << 32),
        "msn": wqe.dest_mac >> 32 | wqe.source_port % 256 << 16,
        "syndrome": wqe.source_port >> 8,
    }


def packets_of(wqe, mtu, psn, *, unreliable=False):
    """Packets of one message: dictionaries of header fields; ``pieces`` as of :func:`gather`, ``data`` if inline.
    ``unreliable``: of UC, where nothing is to be acknowledged, and there are no READs and atomics."""
    if wqe.opcode in ONE_SIDED:
        return [request_of(wqe, mtu, psn, 0)]
    transport = "UC" if unreliable else "RC"
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
            "opcode": wire_opcode(f"{transport}_{NAMES[wqe.opcode]}_{position}{suffix}"),
            "psn": here,
            "last_psn": here,
            "length": end - start,
            "solicited": int(last and solicits),
            "ack_request": int(not unreliable and (last or (here + 1) % min(8, 8192 // mtu) == 0)),
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
