"""The timers of all QPs: local ACK timeouts, and waiting after an RNR NAK."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.contexts import QP_CONTEXT, QpState
from ...stream.ram import Ram
from ...stream.transfer import AttributeWrite
from ..common.layouts import TimerFired, Watch
from ..common.live_row import LiveRow
from ..common.psn import PSN_BITS, Sent, psn_next
from .rnr import RnrTicks

__all__ = ["VISIT", "Timers"]

NEVER = (1 << 32) - 1

VISIT = 8
"""Cycles of the scan for each QP."""


class Timers(wiring.Component):
    """Visits the QPs one after the other, 8 cycles each, and says whose time is over.

    Time is counted in ticks of ``tick`` cycles. A QP's timer runs while the QP waits after an RNR NAK, or has a timeout
    and PSNs outstanding; not while it is dead, nor outside RTS and SQD. It starts when a visit finds that it must run,
    or finds another ``unacked``, ``generation`` or ``waiting`` than the last one did, and when it has fired. It fires
    when the time of the NAK's code is over, or ``4.096 us << timeout``: never earlier, and at most one tick and two
    scans later.

    Outstanding are the PSNs from ``unacked`` to the last one that ``sent`` told. What it told before the QP came to RTS
    is forgotten, if a visit fell in between.

    Parameters
    ----------
    qps : int
        QPs, a power of two, at least 2.

    Members
    -------
    attribute, attribute_en
        The command block's broadcast.
    watch_qp, watch
        The completer's row of this QP, 1 cycle later; it follows the completer's writes.
    sent, sent_en : ``Sent``
        Last PSN that may be acknowledged. A QP is named in every third cycle at most.
    tick : 32
        Cycles a tick, 4.096 us; 0 is as good as 1. A new value holds from the next tick on.
    fired : stream of ``TimerFired``
        ``generation`` is the one in which the time was over. While it waits, the scan comes as far as the next one.
    next_due : 32
        No timer that was seen to run in the last scan fires before so many ticks have passed since that scan began; 0
        if one fired in it; all ones: none runs.
    count_timeouts : 1
        Strobe: a local ACK timeout.
    """

    def __init__(self, qps):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        self.qps = qps
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "watch_qp": Out(12),
                "watch": In(Watch),
                "sent": In(Sent),
                "sent_en": In(1),
                "tick": In(32, init=512),
                "fired": Out(stream.Signature(TimerFired)),
                "next_due": Out(32, init=NEVER),
                "count_timeouts": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        qp = Signal(range(self.qps))

        now = Signal(32)
        cycles = Signal(33)  # left of this tick, less 1; negative: it ends
        end = cycles[-1]
        m.d.sync += cycles.eq(Mux(end, self.tick, cycles) - Mux(end, 2, 1))
        with m.If(end):
            m.d.sync += now.eq(now + 1)

        # What is known of a QP: when its timer started, and what it was like then; the last PSN sent; attributes.
        remembered = data.StructLayout({"reference": 32, "unacked": PSN_BITS, "generation": 4, "waiting": 1, "idle": 1})
        m.submodules.rows = rows = Ram(remembered, self.qps)
        progress = data.StructLayout({"last": PSN_BITS, "any": 1})
        m.submodules.ends = ends = LiveRow(progress, self.qps)
        attributes = data.StructLayout({"timeout": 5, "runs": 1})
        m.submodules.attributes = settings = LiveRow(attributes, self.qps)
        word = QP_CONTEXT.fields["state"].offset // 32
        fields = data.View(attributes, settings.row)
        told = data.View(progress, ends.row)
        row = rows.r_data

        def of_word(name):
            field = QP_CONTEXT.fields[name]
            return self.attribute.data[field.offset % 32 :][: field.width]

        state = of_word("state")
        runs = (state == QpState.RTS) | (state == QpState.SQD)
        forget = Signal()
        idle = Signal()
        watch = Signal(Watch)  # a cycle late: it comes late in its cycle
        m.d.sync += watch.eq(self.watch)
        m.d.comb += [
            self.watch_qp.eq(qp),
            rows.r_addr.eq(qp),
            rows.w_addr.eq(qp),
            rows.w_data.reference.eq(now),
            rows.w_data.unacked.eq(watch.unacked),
            rows.w_data.generation.eq(watch.generation),
            rows.w_data.waiting.eq(watch.waiting),
            rows.w_data.idle.eq(idle),
            settings.r_addr.eq(qp),
            settings.w_addr.eq(self.attribute.index),
            settings.w_data.eq(Cat(of_word("timeout"), runs)),
            settings.w_en.eq(self.attribute_en & (self.attribute.word == word)),
            ends.r_addr.eq(qp),
            ends.w_addr.eq(Mux(self.sent_en, self.sent.qp, qp)),
            ends.w_data.eq(Cat(self.sent.psn, self.sent_en)),
            ends.w_en.eq(self.sent_en | forget),
        ]

        elapsed = Signal(32)
        left = Signal(33)
        changed = Signal()
        waits = Signal()
        timeout = Signal(5)
        due = Signal()
        closer = Signal()
        best = Signal(32, init=NEVER)
        m.submodules.rnr = rnr = RnrTicks()
        code = Signal(5)
        outstanding = told.any & (psn_next(told.last) != watch.unacked)
        m.d.comb += [rnr.code.eq(code), due.eq(~idle & left[-1])]
        with m.If(self.fired.ready):
            m.d.sync += self.fired.valid.eq(0)
        with m.FSM():
            with m.State("ADDRESS"):
                m.next = "WATCH"
            with m.State("WATCH"):
                m.next = "ROWS"
            with m.State("ROWS"):  # a row that was written as it was addressed comes a cycle later
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.comb += forget.eq(~fields.runs)
                m.d.sync += [
                    elapsed.eq(now - row.reference),
                    changed.eq(
                        row.idle
                        | (row.unacked != watch.unacked)
                        | (row.generation != watch.generation)
                        | (row.waiting != watch.waiting)
                    ),
                    idle.eq(watch.dead | ~fields.runs | (~watch.waiting & (~outstanding | (fields.timeout == 0)))),
                    waits.eq(watch.waiting),
                    code.eq(watch.rnr_timer),
                    timeout.eq(fields.timeout),
                ]
                m.next = "START"
            with m.State("START"):
                with m.If(changed | idle):
                    m.d.sync += elapsed.eq(0)
                m.next = "LEFT"
            with m.State("LEFT"):
                m.d.sync += left.eq(Mux(waits, rnr.ticks, 1 << timeout) - elapsed)
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += closer.eq(~idle & ~left[-1] & (left[:32] < best))
                with m.If(~(due & self.fired.valid)):
                    m.d.comb += [rows.w_en.eq(changed | idle | due), self.count_timeouts.eq(due & ~waits)]
                    with m.If(due):
                        # The generation is the one that was compared; `watch` may have moved on.
                        m.d.sync += [
                            self.fired.valid.eq(1),
                            self.fired.payload.qp.eq(qp),
                            self.fired.payload.generation.eq(row.generation),
                        ]
                    m.next = "STEP"
            with m.State("STEP"):
                m.d.sync += qp.eq(qp + 1)
                with m.If(closer):
                    m.d.sync += best.eq(left)
                with m.If(due):  # it has just started again; what is left of that is told in the next scan
                    m.d.sync += best.eq(0)
                with m.If(qp == self.qps - 1):
                    m.d.sync += [self.next_due.eq(Mux(closer, left, best)), best.eq(NEVER)]
                    with m.If(due):
                        m.d.sync += self.next_due.eq(0)
                m.next = "ADDRESS"
        return m
