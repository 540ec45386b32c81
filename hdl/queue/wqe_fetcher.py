"""Work queues: from rings in host memory to blocks on chip, ahead of need."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.commands import QpAction
from ..abi.contexts import QP_CONTEXT
from ..abi.wqe import WQE_DEFAULT
from ..stream.packet import PacketBeat
from ..stream.skid import Skid
from ..stream.table import Table
from ..stream.transfer import AttributeWrite, QpControl, ReadRequest
from ..stream.waiting_set import WaitingSet
from ..stream.words import WORD_BITS, SavedWord
from .block_pool import BlockPool
from .ring import PushDoorbell, PushWord, RingIndex, RingStatus, receive_batch, send_batch, word_address
from .ring_calls import RingCalls
from .ring_doorbell import RingDoorbell
from .ring_halt import RingHalt
from .ring_indices import RingIndices
from .ring_read import RingRead
from .ring_swap import RingState, RingSwap
from .room_watch import RoomWatch
from .wqe_landing import WqeLanding
from .wqe_reads import WqeReads

__all__ = ["RingIndex", "RingPrefetcher", "RingStatus"]


class RingPrefetcher(wiring.Component):
    """Fetches the WQEs of ``qps`` rings in host memory into ``blocks`` blocks of ``size`` bytes that all rings share.

    The WQE with index *i* stands in host memory at ``base + ((i mod size of the ring) << stride)`` and, from when it is
    fetched until it is consumed, at byte ``(i << stride) mod size`` of a block. Fetching is greedy: whenever WQEs are
    posted and there is a block, one read takes as many as stand up to the end of the block (or of the ring, if that
    comes first), so a read wraps neither ring nor block nor crosses 4 KiB. QPs take turns, a read a turn.

    *Sharing*: a QP has up to ``quota`` blocks while nobody waits for a first one; who waits gets the next that is free,
    in turn. A QP that holds blocks and does not use them, because its peer is silent, stops nobody: if nothing has
    become free for ``patience`` cycles, one QP after the other forgets what was fetched for it, unless it is in use.
    Its WQEs are fetched again when the consumer finds that they are ``wanted``, or when more are posted.

    With ``on_demand`` (receive queues, which are posted long before they are used) a QP has one block until some of its
    WQEs are consumed, and only those wait whose WQEs are wanted.

    *Latency*: ``doorbell`` to ``read``: 5 cycles, if no QP waits for a turn: the doorbell is a turn itself then. Last
    beat of ``data`` to ``arrived``: 1. A turn takes 3 cycles; a doorbell is taken every 6 cycles at least, whatever the
    reads do. ``reads`` reads are in flight at once, of one QP or of many.

    *Errors*: a doorbell that claims more than the ring holds, or that meets a stride outside ``min_stride`` to
    ``max_stride``, changes nothing but the ring's ``error``; so does a read that ends in ``error``, and after that
    nothing is fetched for the QP. A doorbell that is stale, repeated, or for a QP in state RESET, is ignored.

    *RESET*: the token is accepted when all reads of the QP have come back, and been dropped, and its indices and errors
    are zero. Until then the status is the old one: whoever feeds ``consumed`` must have left the QP alone before, and
    must not look at it again while its state is RESET. Other actions are accepted in the next cycle.

    *SAVE and LOAD* (``swaps``): SAVE does as RESET, and gives away a word: how far the ring is. LOAD sets the ring to
    what was given away, and its WQEs are fetched again, as if a doorbell had just told of them; if it was in error, it
    is on ``arrived``. Both are taken when the ring is set, SAVE before its word goes. What was consumed must have been
    told before SAVE comes.

    *Shared rings* (``shared``) are rings like all others, but that they are never saved. A QP whose WQEs come from one
    has its own ring in the table of their WQEs, and no doorbells: ``point`` sets that ring to a WQE, as if it alone
    were posted, and is taken when that is done. What was consumed must have been told before.

    *Going back* (``sends``): ``rewind`` sets ``fetched`` to an index at or after the oldest WQE that the host may not
    reuse yet, and all from there on is fetched again. It is taken when all reads of the QP have come back, and been
    dropped, and then said on ``rewound``, which the consumer must take whatever it waits for. From when ``rewind`` is
    valid until then nothing that is said to be ``consumed`` of the QP counts. The producer index and errors stay.

    *Pushes* (``sends``): a doorbell may say that its WQE was pushed before. If it is the only WQE of its ring that is
    not consumed, and nobody else has begun to push meanwhile (:class:`.wqe_push.WqePush`), it goes from there to the
    block that is kept aside for this, ``doorbell`` to ``arrived`` in 13 cycles, or 21 if it has 128 bytes or more, of
    which the first 128 are pushed, one more for
    each beat of ``data`` that comes meanwhile, and for a turn that meets its end. Otherwise the doorbell is one like
    all others. The WQE stands in host memory in any case: who goes back fetches it from there.

    Parameters
    ----------
    data_width : int
        Bits of ``data``: 64, 128, 256 or 512.
    qps : int
        QPs, a power of two, at least 2.
    blocks, size : int
        Blocks on chip, and bytes of each, at least ``1 << max_stride``; powers of two.
    quota : int
        Most blocks of a QP, at least 2, and less than there are.
    base, size, stride : str
        Fields of :data:`verbena.hdl.abi.contexts.QP_CONTEXT` that describe the ring.
    min_stride, max_stride : int
        Bytes of the smallest and the largest WQE, 16 to 512.
    reads : int
        Most reads in flight.
    patience : int
        Cycles, at least 8.
    on_demand : bool
    sends : bool
        With ``rewind``, ``rewound`` and ``push``, for WQEs of 64 bytes and more.
    swaps : bool
        With ``saved`` and ``loaded``.
    shared : int
        Rings behind those of the QPs, from number ``qps`` on, with ``point``.

    Members
    -------
    attribute, attribute_en
        The command block's broadcast.
    doorbell : stream of ``PushDoorbell`` (``sends``) or ``RingIndex``
        Producer index, as rung.
    push : stream of ``PushWord``
        Words pushed. They and doorbells come in the order in which they are written: a word waits for the doorbells
        before it.
    count_pushes, count_push_fetches : 1
        Strobes: a pushed WQE is on chip; it must be fetched all the same.
    consumed : stream of ``RingIndex``
        All WQEs before ``index`` may be overwritten. It must arrive here before the host learns that it may reuse them,
        unless the ring has gone back meanwhile.
    control : stream of ``QpControl``
    saved : stream of ``SavedWord``; loaded : stream of words
        With ``swaps``: one word a ring.
    point : stream of ``RingIndex``
        With ``shared``.
    rewind, rewound : stream of ``RingIndex``
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        Reads and, in the same order, a packet for each. ``data`` is accepted unless two items of ``arrived`` wait.
    arrived : stream of QP index
        WQEs of this QP can be read from the next cycle on, or its ring is in error. After a RESET an old entry may
        still come out.
    status_qp, status
        ``RingStatus``, 1 cycle later.
    shared_ring, shared_ring_en
        With ``shared``: in place of ``status_qp`` this ring.
    places
        Of the QP at ``status_qp``, 2 cycles later: the blocks of what is to be consumed next, that of pieces of
        ``size`` bytes of the ring whose number is even, and that of those whose number is odd. A WQE that is fetched,
        and not further than a block behind the first that is not consumed, stands in one of them.
    reading, reading_qp
        WQEs of this QP are being read, or are about to be ``consumed``. The QP at ``status_qp`` counts as such as well.
    wanted : stream of QP index
        WQEs of the QP are posted and not there. Always taken within a few cycles; with ``on_demand`` when the one
        before has had its turn.
    word_addr, word
        Reads 64 bits, ``word_addr.word`` of ``word_addr.block``, 2 cycles later.
    """

    def __init__(
        self,
        data_width,
        qps,
        blocks,
        *,
        size,
        quota,
        base,
        log_size,
        stride,
        min_stride,
        max_stride,
        reads=16,
        patience=128,
        on_demand=False,
        sends=False,
        swaps=False,
        shared=0,
    ):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        for name, field in ("base", base), ("log_size", log_size), ("stride", stride):
            if field not in QP_CONTEXT.fields:
                raise ValueError(f"{name} must name a field of the QP context, not {field!r}")
        if min_stride not in (16, 32, 64, 128):
            raise ValueError(f"min_stride must be 16, 32, 64 or 128, not {min_stride!r}")
        if max_stride not in (16, 32, 64, 128, 256, 512) or max_stride < min_stride:
            raise ValueError(f"max_stride must be 16 to 512, and not below min_stride, not {max_stride!r}")
        if not isinstance(reads, int) or not 2 <= reads <= 64:
            raise ValueError(f"reads must be 2 to 64, not {reads!r}")
        if not isinstance(patience, int) or patience < 8:
            raise ValueError(f"patience must be at least 8, not {patience!r}")
        if sends and not min_stride == 64 < max_stride:
            raise ValueError(
                f"min_stride and max_stride of sends must be 64 and more, not {min_stride!r}, {max_stride!r}"
            )
        beat = PacketBeat(data_width)
        self.data_width = data_width
        self.qps = qps
        self.shared = shared
        self.rings = qps + shared
        self.blocks = blocks
        self.size = size
        self.quota = quota
        self.base = base
        self.log_size = log_size
        self.stride = stride
        self.min_stride = min_stride
        self.max_stride = max_stride
        self.reads = reads
        self.patience = patience
        self.on_demand = on_demand
        self.sends = sends
        self.swaps = swaps
        strides = range(ceil_log2(min_stride), ceil_log2(max_stride) + 1)
        self._pool = BlockPool(self.rings, blocks, size, strides)
        self._turns = RingRead(self.rings, blocks, size, quota, strides)
        self._indices = RingIndices(self.rings, lands=sends, swaps=swaps or shared > 0)
        self._arrivals = Skid(range(self.rings))
        back = {"rewind": In(stream.Signature(RingIndex)), "rewound": Out(stream.Signature(RingIndex))}
        swap = {"saved": Out(stream.Signature(SavedWord)), "loaded": In(stream.Signature(WORD_BITS))}
        push = {"push": In(stream.Signature(PushWord)), "count_pushes": Out(1), "count_push_fetches": Out(1)}
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "doorbell": In(stream.Signature(PushDoorbell if sends else RingIndex)),
                "consumed": In(stream.Signature(RingIndex)),
                "control": In(stream.Signature(QpControl)),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(beat)),
                "arrived": Out(stream.Signature(12)),
                "status_qp": In(12),
                "status": Out(RingStatus),
                "places": Out(self._pool.places.shape()),
                "reading": In(1),
                "reading_qp": In(12),
                "wanted": In(stream.Signature(12)),
                "word_addr": In(word_address(blocks, size)),
                "word": Out(64),
            }
            | (back | push if sends else {})
            | (swap if swaps else {})
            | (
                {"point": In(stream.Signature(RingIndex)), "shared_ring": In(12), "shared_ring_en": In(1)}
                if shared
                else {}
            )
        )

    @classmethod
    def send(cls, data_width, qps, blocks=32, quota=10, wqe_bytes=WQE_DEFAULT, **kwargs):
        """For send queues, which can go back, and whose WQEs may be pushed."""
        fields = {"base": "sq_base", "log_size": "log_sq_size", "stride": "log_sq_stride"}
        fields |= {"size": send_batch(wqe_bytes), "min_stride": 64, "max_stride": wqe_bytes}
        return cls(data_width, qps, blocks, quota=quota, **fields, sends=True, **kwargs)

    @classmethod
    def receive(cls, data_width, qps, blocks=64, quota=10, wqe_bytes=WQE_DEFAULT, **kwargs):
        """For receive queues."""
        fields = {"base": "rq_base", "log_size": "log_rq_size", "stride": "log_rq_stride"}
        fields |= {"size": (size := receive_batch(wqe_bytes)), "min_stride": 16, "max_stride": size}
        fields |= {"patience": 8, "on_demand": True} | kwargs
        return cls(data_width, qps, blocks, quota=quota, **fields)

    def elaborate(self, platform):
        m = Module()
        qp_bits = ceil_log2(self.rings)
        strides = range(ceil_log2(self.min_stride), ceil_log2(self.max_stride) + 1)

        names = ("state", self.base, self.log_size, self.stride)
        m.submodules.table = table = Table(QP_CONTEXT, names, self.rings, late=[self.base])
        m.submodules.calls = calls = RingCalls(self.rings, on_demand=self.on_demand)
        m.submodules.arrivals = arrivals = self._arrivals
        m.submodules.halt = halt = RingHalt(self.rings, swaps=self.swaps or self.shared > 0)
        m.submodules.indices = indices = self._indices
        m.submodules.doorbells = doorbell = RingDoorbell(self.rings, strides, self.sends)
        m.submodules.turns = turns = self._turns
        m.submodules.pool = pool = self._pool
        m.submodules.waiting = waiting = WaitingSet(1 << qp_bits)
        m.submodules.reads = reads = WqeReads(
            self.data_width, self.rings, self.blocks, self.size, self.reads, puts=self.sends
        )
        pointing = self._connect_control(m, halt)
        m.d.comb += [
            doorbell.doorbell.valid.eq(self.doorbell.valid),
            doorbell.doorbell.payload.eq(self.doorbell.payload),
            self.doorbell.ready.eq(doorbell.doorbell.ready),
        ]
        wiring.connect(m, turns.read, wiring.flipped(self.read))
        if self.sends:
            wiring.connect(m, wiring.flipped(self.rewind), halt.rewind)
            wiring.connect(m, halt.rewound, wiring.flipped(self.rewound))
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            self.arrived.valid.eq(arrivals.o.valid),
            self.arrived.payload.eq(arrivals.o.payload),
            arrivals.o.ready.eq(self.arrived.ready),
        ]

        # A turn: pick a QP, read its indices, and its attributes a cycle later, the ring's address another one later.
        # Doorbells use the look-up in between, or are a turn themselves. `again` is a turn that met another one before
        # it. Nobody begins while attributes are written: a row that is read while it is written is undefined.
        turn = Signal(qp_bits)
        again = Signal()
        granted = Signal()  # the turn is of one that has waited for a block
        grant, grant_qp = Signal(), Signal(qp_bits)
        evicts = Signal()  # it is of one that is to make room
        evict = Signal()
        stopped = Signal()  # the turn is of one that stands still for that
        looking = Signal()  # a turn was looked up, or is being
        rings = Signal()  # the turn is a doorbell's
        late = Signal()
        stop = Signal()
        idle = Signal()
        look_qp = Signal(qp_bits)
        # Between turns: who rings, or, as then nobody may ring, the ring that stands still. A cycle later it is there.
        between, between_qp, here = Signal(), Signal(qp_bits), Signal()
        posted, used = Signal(16), Signal.like(turns.used)
        holds, tail = Signal(), Signal.like(pool.tail)
        m.d.comb += between_qp.eq(Mux(halt.setting, halt.qp, self.doorbell.payload.qp))
        m.d.sync += [
            look_qp.eq(table.index),
            here.eq(between & halt.setting & doorbell.idle),
            posted.eq(Mux(rings, doorbell.index, indices.producer) - indices.issued),
            used.eq(indices.issued - indices.consumed),
            holds.eq(pool.holds),
            tail.eq(pool.tail),
        ]
        # Who is granted a block finds it: nobody takes one meanwhile.
        m.d.sync += [
            grant.eq(waiting.o.valid & pool.any & ~(turns.en | turns.deciding | turns.take)),
            grant_qp.eq(waiting.o.payload),
        ]
        m.d.comb += [
            indices.look_qp.eq(look_qp),
            idle.eq(~again & ~evict & ~grant & ~calls.o.valid),
            turns.qp.eq(turn),
            turns.issued.eq(indices.issued),
            turns.posted.eq(posted),
            turns.used.eq(used),
            turns.base.eq(table.row[self.base]),
            turns.log_size.eq(table.row[self.log_size]),
            turns.log_stride.eq(table.row[self.stride]),
            turns.holds.eq(holds),
            turns.tail.eq(tail),
            turns.granted.eq(granted),
            turns.may_wait.eq((calls.asked & (calls.asked_qp == turns.inside)) | (not self.on_demand)),
            turns.doubtful.eq(rings),
            turns.sure.eq(doorbell.accept & ~doorbell.pushed),
        ]
        with m.FSM(name="turn"):
            with m.State("PICK"):
                m.d.comb += [
                    between.eq(idle),
                    waiting.o.ready.eq(~again & ~evict & grant & ~table.writing),
                    calls.o.ready.eq(~again & ~evict & ~grant & ~table.writing),
                    doorbell.open.eq(idle & ~halt.setting & ~table.writing),
                ]
                # Who rings is known last, and comes from far.
                others = Mux(
                    again,
                    turn,
                    Mux(evict, pool.owner, Mux(grant, grant_qp, Mux(calls.o.valid, calls.o.payload, halt.qp))),
                )
                m.d.comb += table.index.eq(Mux(idle & ~halt.setting, self.doorbell.payload.qp, others))
                m.d.sync += [turn.eq(table.index), rings.eq(idle)]
                with m.If(~again):
                    m.d.sync += [granted.eq(grant & ~evict), evicts.eq(evict)]
                with m.If((~idle & ~table.writing) | doorbell.take):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [table.index.eq(turn), table.apart.eq(1), looking.eq(1)]
                m.d.sync += [
                    late.eq(
                        table.writing
                        | ((~turns.clean | turns.give) & (turns.inside == turn))
                        | (doorbell.pushed & (doorbell.qp == turn))
                    ),
                    stop.eq(indices.failed | (halt.halting & (halt.qp == turn))),
                    stopped.eq(halt.evicting & (halt.qp == turn)),
                ]
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += [
                    doorbell.open.eq(~halt.setting & ~table.writing),
                    between.eq(1),
                    table.index.eq(between_qp),
                    looking.eq(1),
                    turns.en.eq(turns.clean & ~late & ~stop & ~evicts),
                    pool.step.eq(evicts),
                    halt.evict.eq(evicts & halt.idle & ~self.consumed.valid),
                    calls.missed.eq(stopped),
                    calls.stopped.eq(stop & ~stopped),
                ]
                m.d.sync += again.eq(~turns.en & ~stop & ~rings & ~evicts)
                m.next = "PICK"

        self._connect_pool(m, halt, indices, turns, pool, waiting)
        m.d.comb += [
            pool.look_qp.eq(look_qp),
            pool.hold.eq(
                (looking & (turn == self.consumed.payload.qp)) | (turns.deciding & (turns.inside == pool.done_qp))
            ),
            halt.evict_qp.eq(turn),
            halt.evict_index.eq(indices.consumed),
        ]

        m.submodules.room = room = RoomWatch(self.patience)
        m.d.comb += [
            room.waits.eq(waiting.o.valid),
            room.any.eq(pool.any),
            room.busy.eq(halt.halting),
            room.stepped.eq(pool.step),
            room.missed.eq(calls.misses),
            evict.eq(room.evict),
        ]

        # Who has consumed something just now, of receive queues, is in use, and may have more than one block.
        recent = Signal(qp_bits)
        m.d.comb += turns.more.eq((recent == turns.inside) | (not self.on_demand))
        with m.If(self.consumed.valid & self.consumed.ready):
            m.d.sync += recent.eq(self.consumed.payload.qp)

        wiring.connect(m, wiring.flipped(self.wanted), calls.wanted)
        m.d.comb += [
            doorbell.consumed.eq(indices.consumed),
            doorbell.producer.eq(indices.producer),
            doorbell.state.eq(table.row.state),
            doorbell.log_size.eq(turns.log_size),
            doorbell.log_stride.eq(turns.log_stride),
            doorbell.hold_accept.eq(~turns.doubting & ~calls.may_ring),
            doorbell.hold_reject.eq(reads.ends | ~arrivals.i.ready),
            calls.repeat.eq(turns.repeat),
            calls.repeat_qp.eq(turns.repeat_qp),
            calls.heard.eq(self.consumed.valid & pool.heard),
            calls.heard_qp.eq(self.consumed.payload.qp),
            calls.rung.eq(doorbell.accept & ~doorbell.pushed & ~turns.doubting),
            calls.rung_qp.eq(doorbell.qp),
            calls.missed_qp.eq(turn),
            calls.still.eq(halt.evicting),
            calls.decided.eq(turns.deciding & ~turns.doubting),
            calls.decided_qp.eq(turns.inside),
            calls.stopped_qp.eq(turn),
            self.consumed.ready.eq(calls.may_hear & pool.heard),
        ]
        if self.swaps:
            swap = self._connect_swap(m, halt, indices, here, pointing)
        loads = halt.reset & swap.loads & ~pointing if self.swaps else 0
        if self.shared:
            with m.If(pointing):
                m.d.comb += [halt.later.eq(0), halt.to.eq(self.point.payload.index), indices.then.eq(0)]
                m.d.comb += indices.then.producer.eq(self.point.payload.index + 1)
        m.d.comb += [calls.back.eq(halt.rewind.ready | loads | (halt.reset & pointing)), calls.back_qp.eq(halt.qp)]

        # While a ring's indices are set, nobody else writes; nor is a doorbell inside then.
        landed = Signal()  # a pushed WQE is on chip
        ignore_consumed = halt.ignore_consumed & (self.consumed.payload.qp == halt.qp)
        m.d.comb += [
            halt.clean.eq(turns.clean),
            halt.reading.eq(reads.reading),
            reads.ask.eq(halt.qp),
            # Blocks go back in the cycle after the indices are written, in which no turn may ask for one; and the ring
            # is called then.
            halt.may.eq(doorbell.idle & ~turns.en & pool.may_drop & ~calls.returns & (swap.seen if self.swaps else 1)),
            halt.hold.eq(self.consumed.valid | reads.ends | ~arrivals.i.ready),
            turns.hold.eq(halt.armed),
            indices.rings.eq(~doorbell.idle),
            indices.rung_qp.eq(doorbell.qp),
            indices.rung_index.eq(doorbell.index),
            indices.accept.eq(doorbell.accept),
            indices.reject.eq(doorbell.reject),
            indices.start.eq(turns.start),
            indices.start_qp.eq(turns.flight.qp),
            indices.start_end.eq(turns.flight.end),
            indices.consumes.eq(self.consumed.valid),
            indices.consumes_en.eq(self.consumed.valid & self.consumed.ready & ~ignore_consumed),
            indices.consumed_qp.eq(self.consumed.payload.qp),
            indices.consumed_index.eq(self.consumed.payload.index),
            indices.set_qp.eq(halt.qp),
            indices.set_index.eq(halt.index),
            indices.set.eq(halt.set),
            indices.reset.eq(halt.reset),
            indices.arm.eq(halt.armed & ~halt.evicting),  # who makes room forgets nothing that is consumed
            reads.flight.eq(turns.flight),
            reads.start.eq(turns.start),
            turns.room.eq(reads.room),
        ]

        # Data: the blocks take all of it that can be told; `fetched` moves only over what is good, and has no hole
        # before it.
        counts, alive = Signal(), Signal()
        wiring.connect(m, wiring.flipped(self.data), reads.data)
        m.d.comb += [
            reads.hold.eq(~arrivals.i.ready),
            reads.word_addr.eq(self.word_addr),
            self.word.eq(reads.word),
            indices.ends.eq(reads.ends),
            indices.end_qp.eq(reads.qp),
            indices.end.eq(reads.end),
            indices.good.eq(alive & ~reads.error),
            indices.bad.eq(counts & reads.error),
            # Of a ring that makes room all arrives: who is told of it will find out that it is wanted.
            counts.eq(reads.ends & ~(halt.halting & ~halt.evicting & (reads.qp == halt.qp))),
            alive.eq(counts & ~indices.end_failed),
            arrivals.i.valid.eq(Mux(reads.ends, alive, doorbell.reject | landed)),
            arrivals.i.payload.eq(Mux(reads.ends, reads.qp, doorbell.qp)),
        ]
        if self.swaps:
            # A ring that comes back in error: who waits for its WQEs must look. Neither data nor a doorbell ends then.
            with m.If(loads & (swap.then.misrung | swap.then.failed)):
                m.d.comb += [arrivals.i.valid.eq(1), arrivals.i.payload.eq(halt.qp)]

        if self.sends:
            self._connect_push(m, halt, doorbell, turns, pool, reads, reads.ends | ~arrivals.i.ready, landed)
            m.d.comb += indices.land.eq(landed)
            m.d.comb += pool.refill.eq(waiting.empty & ~granted & ~turns.deciding)

        m.d.comb += self.status.eq(indices.status)
        return m

    def _connect_control(self, m, halt):
        """Tokens, and what is done as one is: a ring of a QP is set to a WQE of a shared one. Returns 1 for such a."""
        pointing = Signal()
        wiring.connect(m, wiring.flipped(self.control), halt.control)
        if self.shared:
            with m.If(pointing):
                m.d.comb += [
                    halt.control.valid.eq(1),
                    halt.control.payload.qp.eq(self.point.payload.qp),
                    halt.control.payload.action.eq(QpAction.LOAD),
                    self.control.ready.eq(0),
                    self.point.ready.eq(halt.control.ready),
                ]
                m.d.sync += pointing.eq(~halt.control.ready)
            with m.Else():
                m.d.sync += pointing.eq(self.point.valid & ~self.control.valid)
        return pointing

    def _connect_swap(self, m, halt, indices, here, pointing):
        """The ring that stands still gives away how far it is, or gets it back."""
        m.submodules.swap = swap = RingSwap()
        m.d.comb += [
            swap.token.eq(self.control.valid),
            swap.action.eq(self.control.payload.action),
            swap.done.eq(self.control.ready),
            swap.setting.eq(halt.setting),
            swap.here.eq(here),
            swap.reset.eq(halt.reset & ~pointing),
            *(swap.state[name].eq(getattr(indices, name)) for name in RingState.members),
            indices.then.eq(swap.then),
            halt.later.eq(swap.later),
            halt.to.eq(swap.then.consumed),
        ]
        wiring.connect(m, swap.saved, wiring.flipped(self.saved))
        wiring.connect(m, wiring.flipped(self.loaded), swap.loaded)
        return swap

    def _connect_pool(self, m, halt, indices, turns, pool, waiting):
        """Blocks: to the turns, from what is consumed, and back when a ring is set."""
        said = self.consumed.payload
        looked_at, is_looked_at = self.status_qp, self.status_qp[: len(halt.qp)] == halt.qp
        if self.shared:  # which of two it is, is known last
            looked_at = Mux(self.shared_ring_en, self.shared_ring, looked_at)
            is_looked_at = Mux(self.shared_ring_en, self.shared_ring[: len(halt.qp)] == halt.qp, is_looked_at)
        m.d.comb += [
            indices.status_qp.eq(looked_at),
            turns.any.eq(pool.any),
            turns.offer.eq(pool.offer),
            turns.waiting.eq(~waiting.empty),
            pool.take.eq(turns.take),
            pool.first.eq(turns.first),
            pool.give.eq(turns.give),
            pool.qp.eq(turns.inside),
            pool.behind.eq(turns.behind),
            pool.index.eq(turns.index),
            pool.log_stride.eq(turns.stride),
            pool.done.eq(self.consumed.valid),
            pool.done_qp.eq(said.qp),
            pool.done_index.eq(said.index),
            pool.ignore_consumed.eq(halt.ignore_consumed & (said.qp == halt.qp)),
            pool.drop.eq(halt.drop),
            pool.drop_qp.eq(halt.qp),
            pool.place_qp.eq(looked_at),
            self.places.eq(pool.places),
            waiting.i.valid.eq(turns.waits),
            waiting.i.payload.eq(turns.inside),
            halt.stalled.eq(self.consumed.valid & ~self.consumed.ready),
            halt.in_use.eq(
                is_looked_at
                | (self.reading & (self.reading_qp[: len(halt.qp)] == halt.qp))
                | (self.consumed.valid & (said.qp == halt.qp))
            ),
        ]

    def _connect_push(self, m, halt, doorbell, turns, pool, reads, tells, landed):
        """While a doorbell is inside, the words wait. When the WQE is there its ring's indices move."""
        strides = doorbell.strides
        m.submodules.landing = landing = WqeLanding(self.rings, self.blocks, self.size, strides, swaps=self.swaps)
        if self.swaps:  # words that came while the QP was away are missing
            action = self.control.payload.action
            moves = (action == QpAction.SAVE) | (action == QpAction.LOAD)
            m.d.sync += [
                landing.moved.eq(self.control.valid & self.control.ready & moves),
                landing.moved_qp.eq(self.control.payload.qp),
            ]
        wiring.connect(m, wiring.flipped(self.push), landing.push)
        m.d.comb += [
            landing.hold.eq(~doorbell.idle | self.doorbell.valid),
            landing.qp.eq(doorbell.qp),
            landing.index.eq(doorbell.index),
            landing.stride.eq(doorbell.stride),
            landing.spare.eq(pool.spare),
            landing.spare_valid.eq(pool.spare_valid),
            landing.heard.eq(doorbell.heard),
            landing.pushed.eq(doorbell.pushed),
            landing.forget.eq(halt.reset),
            landing.room.eq(~self.data.valid),
            landing.busy.eq(turns.start | turns.take | turns.give | tells),
            doorbell.mine.eq(landing.mine),
            doorbell.copied.eq(landing.lands),
            reads.put_en.eq(landing.put_en),
            reads.put_addr.eq(landing.put_addr),
            reads.put_word.eq(landing.put_word),
            landed.eq(landing.lands & ~(halt.halting & (halt.qp == doorbell.qp))),
            pool.land.eq(landed),
            pool.land_qp.eq(doorbell.qp),
            pool.land_index.eq(landing.wqe_index),
            pool.land_log_stride.eq(doorbell.stride),
        ]
        m.d.sync += [
            landing.free.eq(~pool.holds),
            self.count_pushes.eq(landed),
            self.count_push_fetches.eq(doorbell.fell_back | (landing.lands & ~landed)),
        ]
