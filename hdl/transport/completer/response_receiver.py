"""What comes back for the send queues: acknowledgements, READ responses, atomic acknowledgements."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.commands import QpAction
from ...abi.contexts import QP_CONTEXT
from ...abi.cqe import Syndrome, WcStatus
from ...abi.tables import Access
from ...stream.packet import PacketBeat
from ...stream.ram import Ram
from ...stream.table import Table
from ...stream.transfer import LENGTH_BITS, AccessRequest, AttributeWrite, QpControl, ReadRequest
from ..common.layouts import LookedUp, ResponseJob, ResponseJobKind
from ..common.psn import PSN_BITS, psn_before, psn_next
from .entry_cache import EntryCache
from .read_targets import READS, ReadTargets, ReadTargetWrite
from .scatter_walk import Place, ScatterWalk

__all__ = ["NO_AETH", "ResponseReceiver"]

READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST, READ_RESPONSE_ONLY = range(0x0D, 0x11)
ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x11, 0x12

NO_AETH = 0x40
"""Syndrome in the job of a response that has no AETH: bits 6:5 are reserved on the wire."""

ReadProgress = data.StructLayout(
    {
        "head": ceil_log2(2 * READS),  # READs and atomics whose responses have all come
        "active": 1,  # of the next one some have; if not, the fields below are undefined
        "expected": PSN_BITS,
        "left": 32,  # bytes still to come
        "place": Place,
    }
)
"""How far a QP's READs and atomics are: 194 bits, six block RAMs."""


class ResponseReceiver(wiring.Component):
    """Takes one response at a time: gives its payload the place that the WQE of the READ or atomic says, and tells the
    completer what it was.

    Responses are accepted in PSN order, for the oldest READ or atomic that is not finished; a response has the length
    of the path MTU, or, if it is the last, what is left. An atomic is answered by an ATOMIC_ACKNOWLEDGE, and a READ by
    READ responses: LAST or ONLY is the one that is the last, and no other, and FIRST or ONLY is the first one, and no
    other. But where the rest of a READ was asked for, both the first of that and the one of the whole may come. An AETH
    says ACK (InfiniBand volume 1, 9.7.5.1 and 9.9.2). What is accepted goes into the WQE's scatter/gather entries, one
    after the other, with LOCAL_WRITE.

    Each response has exactly one run on ``access``, with ``tag`` 1, and exactly one job on ``job``, in the same order.
    It is taken in the cycle in which its run's last access is; the job comes a cycle later. Payload that is not
    accepted is discarded.

    ========= ==========================================================================================
    job       response
    ========= ==========================================================================================
    ACK       ACKNOWLEDGE
    DATA      the one that is expected; without AETH the syndrome is ``NO_AETH``
    FAILED    it is the expected one, but has the wrong length or opcode, or its AETH is no ACK (BAD_RESP_ERR), does
              not fit the entries (LOC_LEN_ERR), or needs entries that cannot be read (GENERAL_ERR)
    SKIPPED   later than the one that is expected
    NOTHING   earlier, or nothing is expected; not accepted by the lookup
    TOKEN     none: control token RESET
    ========= ==========================================================================================

    *Cycles* from ``response.valid`` until it is taken: 2 an ACK, and what the lookup does not accept; 9 the first
    response of a READ or atomic, 7 another; each further entry 6, an empty one 5, and once a message, or once a packet
    if several QPs need it, the time to read the WQE (:class:`.entry_cache.EntryCache`). Between two packets a cycle
    passes.

    *Buffering*: none but ``job``'s register, and 16 targets a QP. A target is taken within 4 cycles, 7 if packets come
    in the way.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    data_width : int
        64, 128, 256 or 512 bits: width of ``data``.

    Members
    -------
    attribute, attribute_en
        Broadcast of QP attributes.
    response : stream of ``LookedUp``
    reads : stream of ``ReadTargetWrite``
        Each READ or atomic, and where the rest of a READ is asked for, before its request leaves; at most 16 of a QP
        may be unfinished.
    control : stream of ``QpControl``
        RESET forgets all targets of the QP, and puts a run with ``clear`` and a job TOKEN behind what came before.
    access : stream of ``AccessRequest``
    job : stream of ``ResponseJob``
    read : stream of ``ReadRequest``; data : stream of ``PacketBeat``
        Send WQEs in host memory: to a :class:`verbena.hdl.dma.structure.StructureReader`.
    """

    def __init__(self, qps, data_width=64):
        if not isinstance(qps, int) or not 2 <= qps <= 4096 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two from 2 to 4096, not {qps!r}")
        self.qps = qps
        self.data_width = data_width
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "response": In(stream.Signature(LookedUp)),
                "reads": In(stream.Signature(ReadTargetWrite)),
                "control": In(stream.Signature(QpControl)),
                "access": Out(stream.Signature(AccessRequest)),
                "job": Out(stream.Signature(ResponseJob)),
                "read": Out(stream.Signature(ReadRequest)),
                "data": In(stream.Signature(PacketBeat(data_width))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        names = ("path_mtu", "pd", "sq_base", "log_sq_size")
        m.submodules.table = table = Table(QP_CONTEXT, names, self.qps)
        m.submodules.ram = ram = Ram(ReadProgress, self.qps)
        m.submodules.targets = targets = ReadTargets(self.qps)
        m.submodules.walk = walk = ScatterWalk()
        m.submodules.cache = cache = EntryCache(self.data_width)
        wiring.connect(m, wiring.flipped(self.reads), targets.reads)
        wiring.connect(m, cache.read, wiring.flipped(self.read))
        wiring.connect(m, wiring.flipped(self.data), cache.data)

        packet = self.response.payload
        transport = packet.transport
        opcode = transport.opcode[:5]
        target = targets.target
        qp = Signal(12)  # in the cycle in which the row is written the packet is gone
        state = Signal(ReadProgress)  # its place is the walk's
        kind = Signal(ResponseJobKind)
        resetting = Signal()
        store = Signal()
        finish = Signal()
        mtu_conflict = Signal()  # `mtu` is undefined, a cycle after the row
        m.d.sync += [mtu_conflict.eq(table.write_conflict[1]), store.eq(0)]
        m.d.comb += [
            table.write.eq(self.attribute),
            table.write_en.eq(self.attribute_en),
            table.index.eq(packet.qp),
            ram.r_addr.eq(packet.qp),
            ram.w_addr.eq(qp),
            ram.w_en.eq(store),
            ram.w_data.eq(state),
            ram.w_data.place.eq(walk.place),
            targets.qp.eq(packet.qp),
            targets.head.eq(ram.r_data.head),
            targets.reset.eq(resetting),
            targets.reset_qp.eq(qp),
        ]

        # -- The place of its payload.
        m.d.comb += [
            walk.start.address.eq(target.address),
            walk.start.key.eq(target.lkey),
            walk.start.left.eq(target.entry_length),
            walk.start.sge.eq(1),
            walk.length.eq(Mux(resetting, 0, transport.length)),
            walk.word.eq(cache.word),
            walk.take_address.eq(cache.take_address),
            walk.take_size.eq(cache.take_size),
            walk.exhausted.eq(cache.exhausted),
            cache.want.eq(walk.want & ~table.write_conflict.any() & ~mtu_conflict),
            cache.qp.eq(qp),
            cache.index.eq(target.wqe_index),
            cache.large.eq(target.large),
            cache.entry.eq(walk.place.sge),
            cache.base.eq(table.row.sq_base),
            cache.log_size.eq(table.row.log_sq_size),
        ]
        mtu = Signal(LENGTH_BITS)
        m.d.sync += mtu.eq(256)
        with m.Switch(table.row.path_mtu):
            for code in range(2, 6):
                with m.Case(code):
                    m.d.sync += mtu.eq(128 << code)
        pd = Signal(24)
        pending, equal, behind, is_last, fits_left, fits_mtu, is_atomic = (Signal() for _ in range(7))
        begins, ends, begun, refuses = Signal(), Signal(), Signal(), Signal()
        resumes = Signal()  # the rest of a READ was asked for from here on
        misplaced = Signal()
        wrong_opcode, wrong_length, accepted = (Signal() for _ in range(3))
        m.d.comb += [
            misplaced.eq((begins == begun) & ~(begun & resumes)),
            wrong_opcode.eq((is_atomic != target.atomic) | (~is_atomic & ((ends != is_last) | misplaced))),
            wrong_length.eq(~Mux(is_last, fits_left, fits_mtu)),
        ]
        m.d.sync += accepted.eq(pending & equal & ~wrong_opcode & ~wrong_length & ~refuses)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += walk.discard.eq(1)
                m.d.sync += [
                    qp.eq(Mux(self.control.valid, self.control.payload.qp, packet.qp)),
                    kind.eq(
                        Mux(
                            self.control.valid,
                            ResponseJobKind.TOKEN,
                            Mux(packet.accept, ResponseJobKind.ACK, ResponseJobKind.NOTHING),
                        )
                    ),
                ]
                with m.If(self.control.valid & (self.control.payload.action != QpAction.RESET)):
                    m.d.comb += self.control.ready.eq(1)
                with m.Elif(targets.free & ~store & ~self.job.valid):
                    with m.If(self.control.valid):
                        m.d.sync += resetting.eq(1)
                        m.next = "TOKEN"
                    with m.Elif(self.response.valid):
                        with m.If(packet.accept & (opcode != ACKNOWLEDGE)):
                            m.next = "READ"
                        with m.Else():
                            m.d.comb += walk.go.eq(1)
                            m.next = "SEND"
            with m.State("TOKEN"):
                m.d.comb += [walk.go.eq(1), walk.discard.eq(1)]
                m.d.sync += state.eq(0)
                m.next = "SEND"

            with m.State("READ"):
                m.next = "ROW"
            with m.State("ROW"):
                m.d.comb += [walk.load.eq(1), walk.start.eq(ram.r_data.place)]
                m.d.sync += [
                    state.eq(ram.r_data),
                    pending.eq(ram.r_data.head != targets.count),
                    resumes.eq(targets.again & (targets.psn == transport.psn)),
                ]
                m.next = "TARGET"
                with m.If(ram.r_data.active):
                    m.next = "CHECK"
            with m.State("TARGET"):
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += walk.load.eq(1)
                m.d.sync += [state.expected.eq(target.psn), state.left.eq(target.length)]
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [
                    pd.eq(table.row.pd),
                    equal.eq(transport.psn == state.expected),
                    behind.eq(psn_before(transport.psn, state.expected)),
                    is_last.eq(state.left <= mtu),
                    fits_left.eq(state.left == transport.length),
                    fits_mtu.eq(mtu == transport.length),
                    is_atomic.eq(opcode == ATOMIC_ACKNOWLEDGE),
                    begins.eq((opcode == READ_RESPONSE_FIRST) | (opcode == READ_RESPONSE_ONLY)),
                    ends.eq((opcode == READ_RESPONSE_LAST) | (opcode == READ_RESPONSE_ONLY)),
                    begun.eq(state.active),
                    refuses.eq((opcode != READ_RESPONSE_MIDDLE) & (transport.syndrome[5:] != 0)),
                ]
                with m.If(~table.write_conflict[1] & ~mtu_conflict):
                    m.next = "WEIGH"
            with m.State("WEIGH"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += [walk.go.eq(1), walk.discard.eq(~accepted)]
                m.d.sync += [
                    state.head.eq(state.head + is_last),
                    state.active.eq(~is_last),
                    state.expected.eq(psn_next(state.expected)),
                    state.left.eq(state.left - transport.length),
                ]
                with m.If(~pending | behind):
                    m.d.sync += kind.eq(ResponseJobKind.NOTHING)
                with m.Elif(~equal):
                    m.d.sync += kind.eq(ResponseJobKind.SKIPPED)
                with m.Elif(accepted):
                    m.d.sync += kind.eq(ResponseJobKind.DATA)
                with m.Else():
                    m.d.sync += kind.eq(ResponseJobKind.FAILED)
                m.next = "SEND"

            with m.State("SEND"):
                with m.If(walk.done):
                    m.d.comb += [
                        finish.eq(1),
                        self.response.ready.eq(~resetting),
                        self.control.ready.eq(resetting),
                    ]
                    m.d.sync += [
                        store.eq(resetting | ((kind == ResponseJobKind.DATA) & ~walk.short)),
                        resetting.eq(0),
                    ]
                    m.next = "IDLE"

        # -- Run and job. A packet waits for the job before: then there is room for its own.
        portion = walk.portion.payload
        access = self.access.payload
        m.d.comb += [
            self.access.valid.eq(walk.portion.valid),
            walk.portion.ready.eq(self.access.ready),
            access.key.eq(portion.key),
            access.address.eq(portion.address),
            access.length.eq(portion.length),
            access.span.eq(portion.length),
            access.pd.eq(pd),
            access.access.eq(Access.LOCAL_WRITE),
            access.qp.eq(qp),
            access.discard.eq(portion.discard),
            access.clear.eq(resetting),
            access.tag.eq(1),
            access.last.eq(portion.last),
        ]
        job = self.job.payload
        with m.If(~self.job.valid):
            m.d.sync += [
                job.qp.eq(qp),
                job.kind.eq(Mux(walk.short, ResponseJobKind.FAILED, kind)),
                job.psn.eq(transport.psn),
                job.msn.eq(transport.msn),
                job.syndrome.eq(Mux(opcode == READ_RESPONSE_MIDDLE, NO_AETH, transport.syndrome)),
                job.status.eq(WcStatus.BAD_RESP_ERR),
                job.wqe_index.eq(target.wqe_index),
            ]
            with m.If(walk.short):
                m.d.sync += [
                    job.syndrome.eq(Mux(cache.failed, Syndrome.RING_BUS, Syndrome.LENGTH)),
                    job.status.eq(Mux(cache.failed, WcStatus.GENERAL_ERR, WcStatus.LOC_LEN_ERR)),
                ]
            with m.Elif(kind == ResponseJobKind.FAILED):
                m.d.sync += job.syndrome.eq(
                    Mux(wrong_opcode, Syndrome.OPCODE, Mux(refuses, Syndrome.REMOTE_NAK, Syndrome.LENGTH))
                )
            m.d.sync += self.job.valid.eq(finish)
        with m.Elif(self.job.ready):
            m.d.sync += self.job.valid.eq(0)
        return m
