"""The parameters of an engine."""

from dataclasses import dataclass

from .abi.contexts import QpType
from .abi.eqe import EVENT_QUEUES_MAX
from .abi.qpc import INDEX_BITS
from .abi.wqe import WQE_DEFAULT, WQE_SIZES

__all__ = ["DATA_WIDTHS", "Config"]

DATA_WIDTHS = (64, 128, 256, 512)

BURST = 4096
"""Bytes of the largest packet, and of the largest burst, for which the payload reader keeps room free. (AXI lets no
burst cross a multiple of 4 KiB; at 64 bits 256 beats are half of that.)"""

READ_PATH = 16
"""Cycles that a read of payload takes in the engine besides the memory's."""

PACKET_PATH = 80
"""Cycles of a packet from its turn to the wire besides the memory's."""

PACKET = 11
"""Cycles in which the engine does a packet: the budget of its blocks, whatever the width."""

RESPONSE = 9
"""Cycles in which it does the response to a READ."""

STREAM_BYTES = 256
"""Payload of a packet at the least path MTU: in a long message each is followed by the page's next one."""

TRANSLATION_PATH = 38
"""Cycles of a translation that is not in its cache, besides the memory's."""

PAGE = 4096
"""Bytes of the smallest page."""

WAITING_MIN = 4
"""Least accesses of a client that wait in front of a cache."""

QUEUE_MAX = 64
"""Most items of a queue in LUT RAM."""

RECEIVE_BEATS = 2048
"""Least beats of received payload that wait."""

RECEIVE_MAX = 1 << 18
"""Most bytes of it."""

SWAP = 320
"""Cycles in which a QP gets another one's slot, besides the memory's."""

SWAPS_WAITED = 8
"""QPs that come one after the other while what the wire brings must wait."""

ATOMIC = 13
"""Cycles in which the wire brings an atomic."""

ATOMIC_PATH = 25
"""Cycles from the cut of an atomic's response to its value, besides its read and its write."""

SEND_WQE, RECEIVE_WQE = 64, 32
"""Bytes of a usual WQE."""

WQE_BEATS_MIN = 128
"""Least beats of WQEs on their way: at 64 bits a quarter of them holds what is fetched at once."""

FETCH_PATH = 40
"""Cycles from when a block of WQEs becomes free until the next ones can be read, besides the memory's."""

BLOCKS_MAX = 128
"""Most blocks of WQEs that are derived."""

RECEIVE_BLOCKS = 64
"""Least blocks of receive WQEs, unless there are two a slot: so many QPs have theirs on chip before anybody sends."""

SLOTS, SLOTS_MAX = 64, 1024

SRQS_MAX = 256
"""Shared receive queues, at most: their numbers have 8 bits."""


def _least_power(value):
    return 1 << max(0, value - 1).bit_length()


def _power_of_two(name, value, low, high):
    if not (isinstance(value, int) and low <= value <= high and value & value - 1 == 0):
        raise ValueError(f"{name} must be a power of two from {low} to {high}, not {value!r}")


@dataclass(frozen=True)
class Config:
    """Sizes of one engine; the defaults are the standard configuration.

    Parameters
    ----------
    data_width : int
        Bits of the datapath, of AXI and of the packet streams: 64, 128, 256 or 512.
    qps : int or None
        Queue pairs, a power of two, 2 to 16,384. Derived: 16,384, or 64 if there are no ``requests``.
    slots : int or None
        Queue pairs that are on chip at a time, a power of two, 2 to 1024, and not more than ``qps``. If there are fewer
        slots than queue pairs the others are in host memory, and come when they are needed; only with ``requests``, and
        at least 4. Derived: 64, or ``qps`` if that is less, or if there are no ``requests``.
    cqs : int
        Completion queues that are on chip at a time, a power of two, 2 to 512. There may be 16,384 completion queues.
    window : int
        Most messages a QP may have unacknowledged, a power of two.
    mpt_sets, mtt_sets : int
        Sets of the key and the translation cache, of 2 ways each.
    read_targets, responses : int or None
        READs and atomics that all QPs that are on chip may together have outstanding, and their peers here, and one
        more; powers of two from 4 a slot to 4096. A QP may have 16; each may have one whatever the others have.
        Derived: 256, or 4 a slot.
    memory_latency : int
        Cycles, 16 to 4096, that the memory may take for a read or a write while the engine runs at full rate. What
        follows is derived from it where it is None.
    send_blocks, receive_blocks : int or None
        Blocks of WQEs on chip, of 256 bytes for send and 128 for receive queues, or of the largest WQE if that has
        more, that all QPs share; powers of two from 8 to 512. Derived: two times the quota, rounded up, at most 128; of
        receive queues at least 64, or two a QP.
    send_quota, receive_quota : int or None
        Most blocks that one QP has, at least 2 and at most half of all. Derived: what one QP alone needs if its WQEs
        have 128 bytes, two a block: as many as are done in ``memory_latency`` and 40 cycles, and two more blocks.
    transmit_buffer : int or None
        Bytes of payload that are read ahead, a power of two, at least 4096 and two of the largest bursts. Derived: what
        the bus moves in ``memory_latency`` and 16 cycles, and a burst, rounded up.
    receive_buffer : int or None
        Bytes of payload that are received and not yet written, a power of two. Derived: 2048 beats, the wire's time of
        a dozen reads of host memory, or what it brings in 8 of the ``memory_latency``. Where QPs come and go, what it
        brings while 8 of them come: a packet whose QP is away holds up all behind it.
    headers : int or None
        Packets between their turn and their payload's arrival, and their verdicts, a power of two from 4 to 64, 11
        cycles each. Derived: ``messages``; 64 cover 704 cycles, so beyond a latency of 312 small packets are slower.
    unanswered : int or None
        Received packets whose writes the memory has not answered, and CQEs likewise, a power of two from 16 to 64, 11
        cycles each. Derived: those of ``memory_latency``, rounded up; 64 cover 704 cycles.
    wqe_bytes : int
        Bytes of the largest send WQE, 128, 256 or 512: it holds 6, 14 or 16 scatter/gather entries, or 96, 224 or 480
        bytes of inline data. Of a receive WQE it is the same, but at most 256, which hold 16 entries.
    address_width : int
        Bits of bus addresses that are kept, 32 to 64: those above are 0 on the bus, whatever the driver says. It learns
        from ``capabilities`` how many these are.
    requests : bool
        There are send queues. Without them the engine only responds: peers SEND, WRITE, READ and do atomics here, and
        what is posted to a send queue is never looked at.
    atomics : bool
        Atomics of peers are executed. Without, they are refused as invalid requests (NAK 0x61); the engine's own, on
        peers' memory, do not depend on it.
    uc, ud : bool
        There are QPs of type UC, of type UD, beside RC.
    srqs : int
        Shared receive queues, a power of two, 2 to 256, not more than ``slots``; 0: none.
    key_operations : bool
        Work requests register and invalidate regions and bind memory windows, and peers invalidate by SEND; only with
        ``requests``.
    raw_packets : bool
        There are QPs of type RAW_PACKET, which send whole Ethernet frames, and of which one gets those that are not
        RoCE; only with ``requests``.
    event_queues : int
        Event queues, each with an interrupt: 1, 2, 4 or 8. A completion queue chooses one for its completion events;
        all other events go to the first.
    cq_moderation : bool
        A completion event may wait for several CQEs, or for a time.
    interrupt_moderation : bool
        An event queue's interrupt may be held back for a time after the last one.
    physical : bool
        Memory regions may be told by their bus address, without translation tables.
    swap_every : int
        For tests: so many cycles after the last one another queue pair leaves its slot, whatever it is doing, and comes
        back when it is needed; 0: never. With fewer than a swap and the read of a WQE take nothing gets on. Only with
        ``requests``.
    ipv6 : bool
        There is a table of 16 GIDs, of IPv4 and of IPv6; in front of datagrams the engine writes their headers. Without
        it there is one IPv4 address.
    roce_v1 : bool
        Rows of the table may be of RoCEv1; only with ``ipv6``.
    multicast : bool
        Queue pairs of type UD may be in multicast groups; only with ``ipv6``.
    udp_port : int or None
        UDP packets to this port are answered by whoever is at the engine's ``service``.

    Attributes
    ----------
    run_ahead : int
        Beats of payload of requests that may wait: a translation and the payload, each with the memory's latency, and
        the way of a packet. More would be sent in vain whenever a queue has to go back, and would only delay what comes
        behind it.
    respond_ahead : int
        The same of responses, but without a translation: other queue pairs' small messages wait behind them, and a READ
        of many packets has its translations before it needs them.
    send_reads : int
        Reads of send queues in flight: the quota, rounded up to a power of two, 16 to 64.
    atomics_in_flight : int
        Atomics in flight: those that the wire brings in a read, of ``memory_latency``, and a write, of a quarter of it;
        rounded up to a power of two, 16 to 64.
    messages : int
        Packets, each a message of its own, in ``run_ahead``, rounded up to a power of two.
    translating : int
        Accesses that wait for their page, of each of transmit and receive, and reads of pages under way: the packets of
        ``memory_latency`` and 38 cycles, 11 cycles each, or 9 from 256 bits on, rounded up to a power of two, from 8 to
        64. So if each packet misses, their rate stays as it is.
    renew : bool
        Accesses that have found their page, and wait, are looked up once more when all translations are dropped, so
        that their misses overlap: if a page's payload comes in less time than its translation, of ``memory_latency``
        and 38 cycles. If not, one miss after the other keeps up with the bus.
    placing : int
        Received packets that have been decided on, and whose payload is not in memory, of each of requests and
        responses: ``unanswered``, or, if that is more, those of 256 bytes of a translation and of a write of a quarter
        of ``memory_latency``, rounded up to a power of two, at most 64.
    swaps : bool
        Queue pairs leave their slots, and come back.
    transports : tuple of QpType
        Types of queue pairs.
    checking : int
        Accesses that wait for their key, and reads of keys: half as many. Keys are few, and stay in their cache.
    send_wqe_beats, receive_wqe_beats : int
        Beats of WQEs on their way from the memory: those of ``messages``, at least 128. With more, a send queue of many
        WQEs would have them all fetched before its first one's payload.

    Raises
    ------
    ValueError
        A parameter is not a power of two or out of range.
    """

    data_width: int = 64
    qps: int | None = None
    slots: int | None = None
    cqs: int = 64
    window: int = 32
    mpt_sets: int = 256
    mtt_sets: int = 256
    memory_latency: int = 128
    send_blocks: int | None = None
    receive_blocks: int | None = None
    send_quota: int | None = None
    receive_quota: int | None = None
    read_targets: int | None = None
    responses: int | None = None
    transmit_buffer: int | None = None
    receive_buffer: int | None = None
    headers: int | None = None
    unanswered: int | None = None
    wqe_bytes: int = WQE_DEFAULT
    address_width: int = 64
    requests: bool = True
    atomics: bool = True
    uc: bool = True
    ud: bool = True
    srqs: int = 0
    key_operations: bool = False
    raw_packets: bool = False
    event_queues: int = 1
    cq_moderation: bool = False
    interrupt_moderation: bool = False
    physical: bool = False
    udp_port: int | None = None
    ipv6: bool = False
    roce_v1: bool = False
    multicast: bool = False
    swap_every: int = 0

    @property
    def swaps(self):
        return self.swap_every > 0 or self.slots < self.qps

    @property
    def transports(self):
        others = {QpType.UC: self.uc, QpType.UD: self.ud, QpType.RAW_PACKET: self.raw_packets}
        return (QpType.RC, *(kind for kind, there in others.items() if there))

    @property
    def run_ahead(self):
        return 2 * self.memory_latency + PACKET_PATH

    @property
    def respond_ahead(self):
        return self.memory_latency + PACKET_PATH

    @property
    def messages(self):
        return _least_power(-(-self.run_ahead // PACKET))

    @property
    def translating(self):
        packets = -(-(self.memory_latency + TRANSLATION_PATH) // min(PACKET, self._stream_packet))
        return min(QUEUE_MAX, max(2 * WAITING_MIN, _least_power(packets)))

    @property
    def renew(self):
        return 8 * PAGE // self.data_width < self.memory_latency + TRANSLATION_PATH

    @property
    def placing(self):
        time = self.memory_latency + TRANSLATION_PATH + self.memory_latency // 4
        return min(QUEUE_MAX, max(self.unanswered, _least_power(-(-time // self._stream_packet))))

    @property
    def checking(self):
        return self.translating // 2

    @property
    def send_reads(self):
        return min(64, max(16, _least_power(self.send_quota)))

    @property
    def atomics_in_flight(self):
        time = self.memory_latency + self.memory_latency // 4 + ATOMIC_PATH
        return min(QUEUE_MAX, max(16, _least_power(-(-time // ATOMIC))))

    @property
    def send_wqe_beats(self):
        return max(WQE_BEATS_MIN, self.messages * SEND_WQE * 8 // self.data_width)

    @property
    def receive_wqe_beats(self):
        return max(WQE_BEATS_MIN, self.messages * RECEIVE_WQE * 8 // self.data_width)

    @property
    def _stream_packet(self):
        """Least cycles of a packet of a long message."""
        return max(RESPONSE, 8 * STREAM_BYTES // self.data_width)

    def _derive(self, name, value):
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def __post_init__(self):
        _power_of_two("data_width", self.data_width, 64, 512)
        if not (isinstance(self.memory_latency, int) and 16 <= self.memory_latency <= 4096):
            raise ValueError(f"memory_latency must be 16 to 4096, not {self.memory_latency!r}")
        size = self.data_width // 8
        moved = (self.memory_latency + READ_PATH) * size
        self._derive("transmit_buffer", _least_power(moved + BURST))
        self._derive("headers", min(QUEUE_MAX, self.messages))
        self._derive("unanswered", min(QUEUE_MAX, max(16, _least_power(-(-self.memory_latency // PACKET)))))
        if self.udp_port is not None and not (isinstance(self.udp_port, int) and 0 < self.udp_port < 1 << 16):
            raise ValueError(f"udp_port must be None or 1 to 65535, not {self.udp_port!r}")
        if not (isinstance(self.address_width, int) and 32 <= self.address_width <= 64):
            raise ValueError(f"address_width must be 32 to 64, not {self.address_width!r}")
        if self.wqe_bytes not in WQE_SIZES:
            raise ValueError(f"wqe_bytes must be 128, 256 or 512, not {self.wqe_bytes!r}")
        switches = ("requests", "atomics", "uc", "ud", "physical", "ipv6", "roce_v1", "multicast", "key_operations")
        for name in (*switches, "raw_packets", "cq_moderation", "interrupt_moderation"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} must be a bool, not {value!r}")
        if not (isinstance(self.swap_every, int) and 0 <= self.swap_every <= 1 << 24):
            raise ValueError(f"swap_every must be 0 to {1 << 24}, not {self.swap_every!r}")
        self._derive("qps", 1 << INDEX_BITS if self.requests else SLOTS)
        _power_of_two("qps", self.qps, 2, 1 << INDEX_BITS)
        self._derive("slots", min(self.qps, SLOTS) if self.requests else self.qps)
        _power_of_two("slots", self.slots, 2, min(self.qps, SLOTS_MAX))
        waits = SWAPS_WAITED * (self.memory_latency + SWAP) if self.swaps else 8 * self.memory_latency
        self._derive("receive_buffer", min(RECEIVE_MAX, size * max(RECEIVE_BEATS, _least_power(waits))))
        if self.roce_v1 and not self.ipv6:
            raise ValueError("roce_v1 needs ipv6")
        if self.multicast and not (self.ipv6 and self.ud):
            raise ValueError("multicast needs ipv6 and ud")
        if self.key_operations and not self.requests:
            raise ValueError("key_operations need requests")
        if self.raw_packets and not self.requests:
            raise ValueError("raw_packets need requests")
        if self.swaps and not self.requests:
            raise ValueError("swap_every, and more qps than slots, need requests")
        if self.slots < self.qps and self.slots < 4:
            raise ValueError(f"slots must be at least 4 where there are more qps, not {self.slots!r}")
        _power_of_two("cqs", self.cqs, 2, 512)
        _power_of_two("event_queues", self.event_queues, 1, EVENT_QUEUES_MAX)
        quota = -(-(self.memory_latency + FETCH_PATH) // (2 * PACKET)) + 2
        for name, least in ("send", 8), ("receive", min(RECEIVE_BLOCKS, 2 * self.slots)):
            blocks = f"{name}_blocks"
            self._derive(blocks, max(least, min(BLOCKS_MAX, _least_power(2 * quota))))
            _power_of_two(blocks, getattr(self, blocks), 8, 512)
            most = getattr(self, blocks) // 2
            self._derive(f"{name}_quota", min(quota, most))
            value = getattr(self, f"{name}_quota")
            if not (isinstance(value, int) and 2 <= value <= most):
                raise ValueError(f"{name}_quota must be 2 to {most}, half of the blocks, not {value!r}")
        for name in ("read_targets", "responses"):
            self._derive(name, max(256, 4 * self.slots))
            _power_of_two(name, getattr(self, name), 4 * self.slots, 4096)
        if self.srqs != 0:
            _power_of_two("srqs", self.srqs, 2, min(SRQS_MAX, self.slots))
        _power_of_two("window", self.window, 2, 1024)
        _power_of_two("mpt_sets", self.mpt_sets, 4, 512)
        _power_of_two("mtt_sets", self.mtt_sets, 4, 512)
        _power_of_two("transmit_buffer", self.transmit_buffer, 2 * min(BURST, 256 * size), 1 << 19)
        _power_of_two("headers", self.headers, 4, QUEUE_MAX)
        _power_of_two("unanswered", self.unanswered, 16, QUEUE_MAX)
        _power_of_two("receive_buffer", self.receive_buffer, 8192, RECEIVE_MAX)
