"""The timers of all QPs: local ACK timeouts, and waiting after an RNR NAK."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...abi.contexts import QP_CONTEXT, QpState
from ...context.bank import ContextBank
from ...context.fetch import ContextFetch
from ...stream.transfer import AttributeWrite, QpControl
from ...stream.words import WORD_BITS, SavedWord
from ..common.layouts import TimerFired, Watch
from ..common.psn import PSN_BITS, Sent, psn_next
from .rnr import RnrTicks

__all__ = ["VISIT", "Timers"]

NEVER = (1 << 32) - 1

VISIT = 5
"""Cycles of the scan for each QP, if nothing is written meanwhile."""

ROWS = 2
"""Rows of block RAM for each context: in 4, what was sent would have to be told more rarely."""

Remembered = data.StructLayout({"reference": 32, "unacked": PSN_BITS, "generation": 4, "waiting": 1, "ran": 1})
"""When a timer started, and what its QP was like then."""


class Timers(wiring.Component):
    """Visits the QPs one after the other, 5 cycles each, and says whose time is over. What a visit needs is fetched
    during the one before (:class:`verbena.hdl.context.fetch.ContextFetch`), and once more if it is written meanwhile;
    that takes 4 cycles more, and each cycle in which an attribute is written 1.

    Time is counted in ticks of ``tick`` cycles. A QP's timer runs while the QP waits after an RNR NAK, or has a timeout
    and PSNs outstanding; not while it is dead, nor outside RTS and SQD. It starts when a visit finds that it must run,
    or finds another ``unacked``, ``generation`` or ``waiting`` than the last one did, and when it has fired. It fires
    when the time of the NAK's code is over, or ``4.096 us << timeout``: never earlier, and at most one tick and two
    scans later.

    Outstanding are the PSNs from ``unacked`` to the last one that ``sent`` told.

    With ``swaps`` a QP that is ``closed`` is not visited. SAVE gives away when its timer started, if it runs; LOAD has
    it run on since then, whatever the completer says anew.

    Parameters
    ----------
    qps : int
        QPs, a power of two, at least 2.
    swaps : bool

    Members
    -------
    attribute, attribute_en
        The command block's broadcast.
    watch_qp, watch, watch_en : 12, ``Watch``, 1
        What the QP has in the completer from now on. Not in two cycles in succession.
    sent, sent_en : ``Sent``
        Last PSN that may be acknowledged; of a QP that starts, the one before its first. Not in two cycles in
        succession.
    rest : 1
        From reset on: no QP is visited, as what is known of them is of a former life.
    tick : 32
        Cycles a tick, 4.096 us; 0 is as good as 1. A new value holds from the next tick on.
    closed, closed_qp : 1, 12
        With ``swaps``, as of 2 cycles ago.
    control : stream of ``QpControl``
        With ``swaps``: SAVE and LOAD, of the QP that is closed; taken when they are done.
    saved : stream of ``SavedWord``; loaded : stream of words
        With ``swaps``.
    left : 5
        With ``swaps``, of the last SAVE: how many bits the number of ticks has that were left, 1 to 31; 0: its timer
        did not run.
    fired : stream of ``TimerFired``
        ``generation`` is the one in which the time was over. While it waits, the scan comes as far as the next one.
    next_due : 32
        No timer that was seen to run in the last scan fires before so many ticks have passed since that scan began; 0
        if one fired in it; all ones: none runs.
    count_timeouts : 1
        Strobe: a local ACK timeout.
    """

    def __init__(self, qps, *, swaps=False):
        if not isinstance(qps, int) or qps < 2 or qps & qps - 1:
            raise ValueError(f"qps must be a power of two, at least 2, not {qps!r}")
        self.qps = qps
        states = {"timer": Remembered, "watch": Watch, "latest": PSN_BITS}
        bank = ContextBank(QP_CONTEXT, ("state", "timeout"), states, qps, ROWS)
        self.swaps = swaps
        item = data.StructLayout({"last": 1} | ({"control": 1, "load": 1} if swaps else {}))
        self._fetch = ContextFetch(item, bank, others=("watch", "latest"))
        swap = {
            "closed": In(1),
            "closed_qp": In(12),
            "control": In(stream.Signature(QpControl)),
            "saved": Out(stream.Signature(SavedWord)),
            "loaded": In(stream.Signature(WORD_BITS)),
            "left": Out(5),
        }
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "watch_qp": In(12),
                "watch": In(Watch),
                "watch_en": In(1),
                "sent": In(Sent),
                "sent_en": In(1),
                "rest": In(1),
                "tick": In(32, init=512),
                "fired": Out(stream.Signature(TimerFired)),
                "next_due": Out(32, init=NEVER),
                "count_timeouts": Out(1),
            }
            | (swap if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetch = fetch = self._fetch
        qp = Signal(range(self.qps))  # that is visited next

        now = Signal(32)
        cycles = Signal(33)  # left of this tick, less 1; negative: it ends
        end = cycles[-1]
        m.d.sync += cycles.eq(Mux(end, self.tick, cycles) - Mux(end, 2, 1))
        with m.If(end):
            m.d.sync += now.eq(now + 1)

        # What is known of a QP: when its timer started, and what it was like then; what it is like now.
        last = qp == self.qps - 1
        here = fetch.o.payload
        before, watch, attributes = here.states.timer, here.states.watch, here.attributes
        after = fetch.write.timer
        idle, runs = Signal(), Signal()
        outstanding = psn_next(here.states.latest) != watch.unacked
        m.d.comb += [
            fetch.attribute.eq(self.attribute),
            fetch.attribute_en.eq(self.attribute_en),
            fetch.other.watch.slot.eq(self.watch_qp),
            fetch.other.watch.data.eq(self.watch),
            fetch.other.watch.en.eq(self.watch_en),
            fetch.other.latest.slot.eq(self.sent.qp),
            fetch.other.latest.data.eq(self.sent.psn),
            fetch.other.latest.en.eq(self.sent_en),
            fetch.i.valid.eq(~self.rest),
            fetch.i.payload.slot.eq(qp),
            fetch.i.payload.item.last.eq(last),
            after.data.reference.eq(now),
            after.data.unacked.eq(watch.unacked),
            after.data.generation.eq(watch.generation),
            after.data.waiting.eq(watch.waiting),
            after.data.ran.eq(~idle),
            runs.eq((attributes.state == QpState.RTS) | (attributes.state == QpState.SQD)),
        ]
        visited = Signal(init=1)  # what is fetched next is a visit
        counts = Signal(init=1)  # what is here is one, of a QP that is not closed
        if self.swaps:
            # A token comes between two visits, and stays where it is until it is done.
            asked = Signal()
            with m.If(self.control.valid & ~asked):
                m.d.comb += [
                    visited.eq(0),
                    fetch.i.payload.slot.eq(self.control.payload.qp),
                    fetch.i.payload.item.eq(Cat(0, 1, self.control.payload.action == QpAction.LOAD)),
                ]
                m.d.sync += asked.eq(fetch.i.valid & fetch.i.ready)
            with m.If(self.control.ready):
                m.d.sync += asked.eq(0)
            # They come from far, and many keep them: of registers that are the same only one is left.
            heard, heard_qp = Signal(), Signal.like(here.slot)
            closed, closed_qp = Signal(), Signal.like(here.slot)
            m.d.sync += [heard.eq(self.closed), heard_qp.eq(self.closed_qp), closed.eq(heard), closed_qp.eq(heard_qp)]
            m.d.comb += counts.eq(~here.item.control & ~(closed & (here.slot == closed_qp)))
        with m.If(fetch.i.valid & fetch.i.ready & visited):
            m.d.sync += qp.eq(qp + 1)

        elapsed = Signal(32)
        left = Signal(33)
        changed = Signal()
        waits = Signal()
        timeout = Signal(5)
        due = Signal()
        closer = Signal()
        best = Signal(32, init=NEVER)
        m.submodules.rnr = rnr = RnrTicks()
        code, whole = Signal(5), Signal(32)  # whole: how long the timer runs
        m.d.comb += [rnr.code.eq(code), due.eq(counts & ~idle & left[-1])]
        if self.swaps:
            bits = Signal(5, init=1)  # of the number of ticks that are left
            for number in range(1, 32):
                with m.If(left[number] & ~left[-1]):
                    m.d.comb += bits.eq(min(number + 1, 31))
        m.d.sync += whole.eq(Mux(waits, rnr.ticks, 1 << timeout))
        with m.If(self.fired.ready):
            m.d.sync += self.fired.valid.eq(0)
        # Whether it is over comes late, and is not needed for whose it would be.
        with m.If(~self.fired.valid):
            m.d.sync += [
                self.fired.payload.qp.eq(here.slot),
                self.fired.payload.generation.eq(watch.generation),
            ]
        with m.FSM():
            with m.State("COMPARE"):
                m.d.sync += [
                    elapsed.eq(now - before.reference),
                    changed.eq(
                        ~before.ran
                        | (before.unacked != watch.unacked)
                        | (before.generation != watch.generation)
                        | (before.waiting != watch.waiting)
                    ),
                    idle.eq(watch.dead | ~runs | (~watch.waiting & (~outstanding | (attributes.timeout == 0)))),
                    waits.eq(watch.waiting),
                    code.eq(watch.rnr_timer),
                    timeout.eq(attributes.timeout),
                ]
                with m.If(fetch.o.valid):
                    m.next = "START"
            with m.State("START"):
                with m.If(changed | idle):
                    m.d.sync += elapsed.eq(0)
                m.next = "LEFT"
            with m.State("LEFT"):
                m.d.sync += left.eq(whole - elapsed)
                m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += closer.eq(counts & ~idle & ~left[-1] & (left[:32] < best))
                with m.If(fetch.settled & ~(due & self.fired.valid)):
                    m.d.comb += self.count_timeouts.eq(due & ~waits)
                    with m.If(due):
                        m.d.sync += self.fired.valid.eq(1)
                    m.next = "STEP"
                    if self.swaps:
                        with m.If(here.item.control):
                            m.next = "SWAP"
            if self.swaps:
                self._swap(m, fetch, Mux(changed | idle, now, before.reference), ~idle, bits)
            with m.State("STEP"):
                m.d.comb += [fetch.o.ready.eq(1), after.en.eq(counts & (changed | idle | due))]
                with m.If(closer):
                    m.d.sync += best.eq(left)
                with m.If(due):  # it has just started again; what is left of that is told in the next scan
                    m.d.sync += best.eq(0)
                with m.If(here.item.last):
                    m.d.sync += [self.next_due.eq(Mux(closer, left, best)), best.eq(NEVER)]
                    with m.If(due):
                        m.d.sync += self.next_due.eq(0)
                m.next = "COMPARE"
        return m

    def _swap(self, m, fetch, started, runs, bits):
        """The state in which a token is done: the time when the timer started, and whether it runs."""
        after, done = fetch.write.timer, Signal()
        word = Signal(data.StructLayout({"reference": 32, "ran": 1}))
        m.d.sync += [word.reference.eq(started), word.ran.eq(runs)]  # time may go on while it waits
        came = data.View(word.shape(), self.loaded.payload[: word.shape().size])
        with m.State("SWAP"):
            m.d.sync += word.eq(word)
            with m.If(fetch.o.payload.item.load):
                m.d.comb += [
                    self.loaded.ready.eq(1),
                    after.data.reference.eq(came.reference),
                    after.data.ran.eq(came.ran),
                    after.en.eq(self.loaded.valid),
                    done.eq(self.loaded.valid),
                ]
            with m.Else():
                m.d.comb += [
                    self.saved.valid.eq(1),
                    self.saved.payload.data.eq(word.as_value()),
                    self.saved.payload.last.eq(1),
                    done.eq(self.saved.ready),
                ]
                m.d.sync += self.left.eq(Mux(word.ran, bits, 0))
            with m.If(done):
                m.d.comb += [fetch.o.ready.eq(1), self.control.ready.eq(1)]
                m.next = "COMPARE"
