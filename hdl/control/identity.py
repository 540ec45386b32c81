"""What the engine tells of itself in its registers."""

from dataclasses import dataclass

from amaranth.utils import ceil_log2

from ..abi import registers as abi
from ..abi.contexts import QpType
from ..abi.gids import GID_COUNT
from ..abi.wqe import WQE_DEFAULT

__all__ = ["Identity"]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a driver must know of an engine.

    Parameters
    ----------
    data_width, qps, cqs, window, responses, requests, atomics, physical, address_width : int or bool
        What ``capabilities`` tells.
    table : bool
        Each QP has a record in host memory.
    transports : iterable of QpType
        What ``transports`` tells of them.
    wqe_bytes : int
        Of the largest WQE.
    srqs : int
        Shared receive queues, up to 256.
    key_operations : bool
        WQEs that make and end keys.
    gids, roce_v1, multicast : bool
        There is a table of GIDs; its rows may be of RoCEv1; and there is a table of group members.
    raw : bool
        There are QPs of type RAW_PACKET.
    event_queues, cq_moderation, interrupt_moderation : int, bool, bool
        What ``queues`` tells of event queues.
    """

    data_width: int
    qps: int
    cqs: int
    window: int
    responses: int = 256
    requests: bool = True
    atomics: bool = True
    physical: bool = False
    address_width: int = 64
    table: bool = False
    transports: tuple = (QpType.RC,)
    wqe_bytes: int = WQE_DEFAULT
    srqs: int = 0
    key_operations: bool = False
    gids: bool = False
    roce_v1: bool = False
    multicast: bool = False
    raw: bool = False
    event_queues: int = 1
    cq_moderation: bool = False
    interrupt_moderation: bool = False

    @classmethod
    def of(cls, config):
        """Of the engine that a :class:`verbena.hdl.config.Config` describes."""
        here = {name: getattr(config, name) for name in cls.__dataclass_fields__ if hasattr(config, name)}
        return cls(**here, table=config.swaps, gids=config.ipv6, raw=config.raw_packets)

    @property
    def event_table(self):
        """There is a table of event queues."""
        return self.event_queues > 1 or self.interrupt_moderation

    @property
    def words(self):
        """Registers that never change, by name; see :mod:`verbena.hdl.abi.registers`."""
        return {
            "magic": abi.MAGIC,
            "version": abi.VERSION,
            "capabilities": self._capabilities(),
            "transports": self._transports(),
            "queues": self._queues(),
        }

    def _capabilities(self):
        sizes = {"qps": self.qps, "cqs": self.cqs, "data_bytes": self.data_width // 8, "window": self.window}
        sizes["responses"] = self.responses
        able = abi.CAN_PUSH if self.requests else abi.RESPONDS_ONLY
        able |= 0 if self.atomics else abi.NO_ATOMICS
        able |= abi.QP_TABLE if self.table else 0
        able |= self.address_width << abi.REACH
        able |= abi.PHYSICAL if self.physical else 0
        return sum(ceil_log2(sizes[name]) << bit for name, bit in abi.LOG_CAPABILITIES.items()) | able

    def _transports(self):
        able = sum(1 << kind for kind in self.transports)
        able |= GID_COUNT << abi.GID_ROWS if self.gids else 0
        able |= abi.ROCE_V1 if self.roce_v1 else 0
        able |= abi.MULTICAST if self.multicast else 0
        able |= abi.KEY_OPERATIONS if self.key_operations else 0
        return able | ceil_log2(self.wqe_bytes) << abi.LOG_WQE_BYTES

    def _queues(self):
        able = self.srqs | ceil_log2(self.event_queues) << abi.LOG_EVENT_QUEUES
        able |= abi.CQ_MODERATION if self.cq_moderation else 0
        return able | (abi.INTERRUPT_MODERATION if self.interrupt_moderation else 0)
