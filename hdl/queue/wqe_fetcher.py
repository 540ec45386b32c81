"""Work queues: from rings in host memory to an area on chip, ahead of need."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT, QpState
from ..stream.fifo import Queue
from ..stream.packet import PacketBeat
from ..stream.ready import ReadyQueue
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, QpControl, ReadRequest
from .wqe_area import WqeArea

__all__ = ["RingIndex", "RingPrefetcher", "RingStatus"]

BATCH = 256
"""Most bytes of one read: long enough to hide the memory's latency, and no QP keeps the bus from others for long."""

RingIndex = data.StructLayout({"qp": 12, "index": 16})
"""A free-running index into a QP's ring."""

RingStatus = data.StructLayout({"producer": 16, "fetched": 16, "error": 1})
"""WQEs before ``producer`` are posted, before ``fetched`` can be read. ``error``: the ring is unusable until RESET."""


class RingPrefetcher(wiring.Component):
    """Fetches the WQEs of ``qps`` rings in host memory into an area of ``area`` bytes a QP.

    The WQE with index *i* stands in host memory at ``base + ((i mod size) << stride)`` and, from when it is fetched
    until it is consumed, in the QP's area at byte ``(i << stride) mod area``. Fetching is greedy: whenever WQEs are
    posted and the area has room, one read takes as many as stand in one aligned block of 256 bytes (or in the whole
    ring, if that is smaller), so a read wraps neither ring nor area nor crosses 4 KiB. QPs take turns, a read a turn.

    *Latency*: ``doorbell`` to ``read``: 7 cycles. Last beat of ``data`` to ``arrived``: 2. A turn takes 3 cycles, a
    doorbell 4. ``reads`` reads are in flight at once, of one QP or of many.

    *Errors*: a doorbell that claims more than the ring holds, or that meets a stride outside ``min_stride`` to
    ``max_stride``, changes nothing but the ring's ``error``; so does a read that ends in ``error``, and after that
    nothing is fetched for the QP. A doorbell that is stale, repeated, or for a QP in state RESET, is ignored.

    *RESET*: the token is accepted when all reads of the QP have come back, and been dropped, and its indices and errors
    are zero. Other actions are accepted at once. Until then the status is the old one: whoever feeds ``consumed`` must
    have left the QP alone before, and must not look at it again while its state is RESET.

    Parameters
    ----------
    data_width : int
        Bits of ``data``: 64, 128, 256 or 512.
    qps : int
        QPs, a power of two, at least 2.
    area : int
        Bytes a QP on chip, a power of two, at least 256.
    base, size, stride : str
        Fields of :data:`verbena.hdl.abi.contexts.QP_CONTEXT` that describe the ring.
    min_stride, max_stride : int
        Bytes of the smallest and the largest WQE, 16 to 128.
    reads : int
        Most reads in flight.

    Members
    -------
    attribute, attribute_en
        The command block's broadcast.
    doorbell : stream of ``RingIndex``
        Producer index, as rung.
    consumed : stream of ``RingIndex``
        All WQEs before ``index`` may be overwritten. It must arrive here before the host learns that it may reuse them.
    control : stream of ``QpControl``
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        Reads and, in the same order, a packet for each. ``data`` is always accepted.
    arrived : stream of QP index
        WQEs of this QP can be read, or its ring is in error. Each QP waits here at most once; after a RESET an old
        entry may still come out.
    status_qp, status
        ``RingStatus``, 1 cycle later.
    word_addr, word
        Reads 64 bits of an area, 2 cycles later. ``word_addr.word`` is the byte in the area divided by 8.
    """

    def __init__(self, data_width, qps, area, *, base, size, stride, min_stride, max_stride, reads=16):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        if not isinstance(area, int) or area < BATCH or area & area - 1:
            raise ValueError(f"area must be a power of two, at least {BATCH}, not {area!r}")
        for name, field in ("base", base), ("size", size), ("stride", stride):
            if field not in QP_CONTEXT.fields:
                raise ValueError(f"{name} must name a field of the QP context, not {field!r}")
        if min_stride not in (16, 32, 64, 128):
            raise ValueError(f"min_stride must be 16, 32, 64 or 128, not {min_stride!r}")
        if max_stride not in (16, 32, 64, 128) or max_stride < min_stride:
            raise ValueError(f"max_stride must be 16, 32, 64 or 128, and not below min_stride, not {max_stride!r}")
        if not isinstance(reads, int) or not 2 <= reads <= 64:
            raise ValueError(f"reads must be 2 to 64, not {reads!r}")
        beat = PacketBeat(data_width)
        self.data_width = data_width
        self.qps = qps
        self.area = area
        self.base = base
        self.size = size
        self.stride = stride
        self.min_stride = min_stride
        self.max_stride = max_stride
        self.reads = reads
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "doorbell": In(stream.Signature(RingIndex)),
                "consumed": In(stream.Signature(RingIndex)),
                "control": In(stream.Signature(QpControl)),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(beat)),
                "arrived": Out(stream.Signature(12)),
                "status_qp": In(12),
                "status": Out(RingStatus),
                "word_addr": In(data.StructLayout({"qp": 12, "word": ceil_log2(area // 8)})),
                "word": Out(64),
            }
        )

    @classmethod
    def send(cls, data_width, qps, area=1024, **kwargs):
        """For send queues."""
        fields = {"base": "sq_base", "size": "log_sq_size", "stride": "log_sq_stride"}
        return cls(data_width, qps, area, **fields, min_stride=64, max_stride=128, **kwargs)

    @classmethod
    def receive(cls, data_width, qps, area=256, **kwargs):
        """For receive queues."""
        fields = {"base": "rq_base", "size": "log_rq_size", "stride": "log_rq_stride"}
        return cls(data_width, qps, area, **fields, min_stride=16, max_stride=128, **kwargs)

    def _index(self, m, name, shape, reads):
        """A LUT RAM of one index a QP: its write port and its read ports."""
        m.submodules[name] = rows = memory.Memory(shape=shape, depth=self.qps, init=[])
        return rows.write_port(), [rows.read_port(domain="comb") for _ in range(reads)]

    def elaborate(self, platform):
        m = Module()
        qp_bits = ceil_log2(self.qps)
        strides = range(ceil_log2(self.min_stride), ceil_log2(self.max_stride) + 1)
        area_bits = ceil_log2(self.area)
        batch_bits = ceil_log2(BATCH) - strides[0]  # of the index of a WQE in a batch
        room_bits = area_bits - strides[0] + 1

        # Each memory has one writer: doorbells `producer` and `misrung`, turns `issued`, data `fetched` and `failed`.
        producer, (producer_look, producer_status) = self._index(m, "producer", 16, 2)
        misrung, (misrung_status,) = self._index(m, "misrung", 1, 1)
        issued, (issued_look,) = self._index(m, "issued", 16, 1)
        fetched, (fetched_status,) = self._index(m, "fetched", 16, 1)
        failed, (failed_turn, failed_head, failed_status) = self._index(m, "failed", 1, 3)
        consumed, (consumed_look,) = self._index(m, "consumed", 16, 1)

        words = Table.words_of(QP_CONTEXT, "state", self.base, self.size, self.stride)
        m.submodules.table = table = Table(QP_CONTEXT, words, self.qps)
        m.submodules.ready = ready = ReadyQueue(self.qps)
        m.submodules.arrivals = arrivals = ReadyQueue(self.qps)
        flight = data.StructLayout({"qp": qp_bits, "word": area_bits - 3, "end": 16})
        m.submodules.flights = flights = Queue(flight, self.reads)
        row = Signal(table.layout)
        log_size, log_stride = row[self.size], row[self.stride]
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            row.eq(table.row),
            self.arrived.valid.eq(arrivals.o.valid),
            self.arrived.payload.eq(arrivals.o.payload),
            arrivals.o.ready.eq(self.arrived.ready),
        ]

        # RESET: no turn of this QP starts any more; when the reads in flight at that time are back, zero everything.
        reset_qp = self.control.payload.qp[:qp_bits]
        resetting = Signal()
        clean = Signal()  # nothing is between a turn's lookup and its read
        pop = Signal()
        zeroing = Signal()
        zero = Signal()
        doorbell_idle = Signal()
        left = Signal(range(self.reads + 1))
        ending = self.data.valid & self.data.payload.last
        m.d.comb += resetting.eq(self.control.valid & (self.control.payload.action == QpAction.RESET))
        with m.FSM(name="reset"):
            with m.State("WATCH"):
                m.d.comb += self.control.ready.eq(~resetting)
                m.d.sync += left.eq(flights.level - pop)
                with m.If(resetting & clean):
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.sync += left.eq(left - pop)
                with m.If(left == 0):
                    m.d.sync += left.eq(0)
                    m.next = "ZERO"
            with m.State("ZERO"):
                m.d.comb += zeroing.eq(1)
                with m.If(doorbell_idle & ~ending):
                    m.d.comb += [zero.eq(1), self.control.ready.eq(1)]
                    m.next = "WATCH"

        # A turn: look up, decide, read. `again` is a turn whose lookup met a full pipeline.
        turn = Signal(qp_bits)
        again = Signal()
        looking = Signal()
        idle = Signal()  # the lookup is free for a doorbell, in this cycle and the next
        wide, found = Signal(), Signal()
        doorbell_qp = Signal(qp_bits)
        look_qp = Signal(qp_bits)
        m.d.sync += look_qp.eq(self.doorbell.payload.qp)
        m.d.comb += [
            clean.eq(~wide & ~found),
            producer_look.addr.eq(look_qp),
            consumed_look.addr.eq(look_qp),
            issued_look.addr.eq(turn),
            failed_turn.addr.eq(turn),
            table.index.eq(Mux(idle, self.doorbell.payload.qp, Mux(again, turn, ready.o.payload))),
        ]
        with m.FSM(name="turn"):
            with m.State("PICK"):
                m.d.comb += [ready.o.ready.eq(~again), idle.eq(~again & ~ready.o.valid)]
                with m.If(~again):
                    m.d.sync += turn.eq(ready.o.payload)
                with m.If(again | ready.o.valid):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += look_qp.eq(turn)
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [looking.eq(1), idle.eq(1)]
                m.d.sync += again.eq(~clean)
                m.next = "PICK"

        # First stage: what is posted, what room there is, where the block ends; all in WQEs.
        posted = Signal(16)
        room = Signal(room_bits)
        block = Signal(batch_bits + 1)
        slot = Signal(16)
        at = Signal(flight)
        base = Signal(64)
        shift = Signal(4)
        with m.If(looking & clean):
            used = Signal(room_bits)
            mask = Cat((log_size > k) & (log_stride < 8 - k) for k in range(batch_bits))
            m.d.comb += used.eq(issued_look.data - consumed_look.data)
            m.d.sync += [
                wide.eq(~failed_turn.data & ~(resetting & (turn == reset_qp))),
                posted.eq(producer_look.data - issued_look.data),
                block.eq((~issued_look.data[:batch_bits] & mask) + 1),
                slot.eq(issued_look.data & Cat(log_size > k for k in range(16))),
                at.qp.eq(turn),
                at.end.eq(issued_look.data),
                base.eq(row[self.base]),
                shift.eq(log_stride),
            ]
            with m.Switch(log_stride):
                for stride in strides:
                    with m.Case(stride):
                        m.d.sync += [
                            room.eq((self.area >> stride) - used),
                            at.word.eq(issued_look.data << (stride - 3)),
                        ]

        # Second stage: how many, and where.
        several = Signal(room_bits)
        offset = Signal(16 + strides[-1])
        with m.If(wide):
            m.d.sync += [wide.eq(0), found.eq(1), several.eq(Mux(posted < room, posted, room))]
            with m.Switch(shift):
                for stride in strides:
                    with m.Case(stride):
                        m.d.sync += offset.eq(slot << stride)

        # Third stage: the read.
        count = Signal(batch_bits + 1)
        more = Signal()
        leave = Signal()
        start = Signal()
        repeat = Signal()
        repeat_qp = Signal(qp_bits)
        m.d.comb += [
            more.eq(several > block),
            count.eq(Mux(more, block, several)),
            start.eq(found & (count != 0) & (~self.read.valid | self.read.ready) & flights.i.ready),
            leave.eq(start | (count == 0)),
            flights.i.payload.eq(at),
            flights.i.payload.end.eq(at.end + count),
            flights.i.valid.eq(start),
        ]
        with m.If(self.read.ready):
            m.d.sync += self.read.valid.eq(0)
        m.d.sync += repeat.eq(0)
        with m.If(found & leave):
            m.d.sync += found.eq(0)
        with m.If(start):
            m.d.sync += [
                self.read.valid.eq(1),
                self.read.payload.address.eq(Cat(offset[:12], base[12:] + offset[12:])),
                repeat.eq(more),
                repeat_qp.eq(at.qp),
            ]
            with m.Switch(shift):
                for stride in strides:
                    with m.Case(stride):
                        m.d.sync += self.read.payload.length.eq(count << stride)

        # Who adds a QP to those that wait for a turn: the turn itself, what frees room, what brings work.
        rung = Signal()
        m.d.sync += [
            ready.i.valid.eq(repeat | self.consumed.valid | rung),
            ready.i.payload.eq(
                Mux(repeat, repeat_qp, Mux(self.consumed.valid, self.consumed.payload.qp, self.doorbell.payload.qp))
            ),
        ]
        m.d.comb += [
            consumed.addr.eq(Mux(zero, reset_qp, self.consumed.payload.qp)),
            consumed.data.eq(Mux(zero, 0, self.consumed.payload.index)),
            consumed.en.eq(zero | (self.consumed.valid & self.consumed.ready)),
            self.consumed.ready.eq(~repeat & ~zeroing),
            issued.addr.eq(Mux(zero, reset_qp, at.qp)),
            issued.data.eq(Mux(zero, 0, flights.i.payload.end)),
            issued.en.eq(zero | start),
        ]

        # A doorbell joins the wait when it is taken: its turn looks 4 cycles later, and `producer` is written after 3.
        index = Signal(16)
        claim = Signal(16)
        claimed = Signal(16)
        accept, reject = Signal(), Signal()
        rejected = Signal()
        m.d.comb += [
            producer.addr.eq(Mux(zero, reset_qp, doorbell_qp)),
            producer.data.eq(Mux(zero, 0, index)),
            producer.en.eq(zero),
            misrung.addr.eq(Mux(zero, reset_qp, doorbell_qp)),
            misrung.data.eq(~zero),
            misrung.en.eq(zero),
        ]
        with m.FSM(name="doorbell"):
            with m.State("TAKE"):
                m.d.comb += [
                    doorbell_idle.eq(1),
                    self.doorbell.ready.eq(idle & ~repeat & ~self.consumed.valid & ~zeroing),
                    rung.eq(self.doorbell.valid & self.doorbell.ready),
                ]
                m.d.sync += [doorbell_qp.eq(self.doorbell.payload.qp), index.eq(self.doorbell.payload.index)]
                with m.If(rung):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += [
                    claim.eq(index - consumed_look.data),
                    claimed.eq(producer_look.data - consumed_look.data),
                ]
                m.next = "JUDGE"
            with m.State("JUDGE"):
                # A claim with its highest bit set lies behind `consumed`, unless the ring has room for it.
                known = row.state != QpState.RESET
                proper = (log_stride >= strides[0]) & (log_stride <= strides[-1])
                fits = claim <= (Const(1, 16) << log_size)
                m.d.sync += [
                    accept.eq(known & proper & fits & (claim > claimed)),
                    reject.eq(known & (~proper | (~fits & ~claim[15]))),
                ]
                m.next = "APPLY"
            with m.State("APPLY"):
                m.d.comb += [rejected.eq(reject & ~ending), producer.en.eq(accept), misrung.en.eq(rejected)]
                with m.If(~reject | rejected):
                    m.next = "TAKE"

        # Data: the area takes all of it; `fetched` moves only over what is good, and has no hole before it.
        head = flights.o.payload
        alive = Signal()
        good = Signal()
        bad = Signal()
        m.submodules.store = store = WqeArea(self.data_width, self.qps, self.area)
        m.d.comb += [
            self.data.ready.eq(1),
            flights.o.ready.eq(ending),
            pop.eq(ending),
            store.start.eq(Cat(head.word, head.qp)),
            store.beat.eq(self.data.payload),
            store.beat_en.eq(self.data.valid),
            store.word_addr.eq(Cat(self.word_addr.word, self.word_addr.qp)),
            self.word.eq(store.word),
            failed_head.addr.eq(head.qp),
            alive.eq(ending & ~failed_head.data & ~(resetting & (head.qp == reset_qp))),
            good.eq(alive & ~self.data.payload.error),
            bad.eq(alive & self.data.payload.error),
            fetched.addr.eq(Mux(zero, reset_qp, head.qp)),
            fetched.data.eq(Mux(zero, 0, head.end)),
            fetched.en.eq(zero | good),
            failed.addr.eq(fetched.addr),
            failed.data.eq(~zero),
            failed.en.eq(zero | bad),
        ]
        m.d.sync += [
            arrivals.i.valid.eq(good | bad | rejected),
            arrivals.i.payload.eq(Mux(ending, head.qp, doorbell_qp)),
        ]

        m.d.comb += [port.addr.eq(self.status_qp) for port in (producer_status, fetched_status)]
        m.d.comb += [port.addr.eq(self.status_qp) for port in (misrung_status, failed_status)]
        m.d.sync += [
            self.status.producer.eq(producer_status.data),
            self.status.fetched.eq(fetched_status.data),
            self.status.error.eq(misrung_status.data | failed_status.data),
        ]
        return m
