"""What the requester gives away of a queue pair, and gets back, and when it may."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...stream.slice import Slice
from ...stream.transfer import QpControl
from ...stream.words import WORD_BITS, SavedWord, StateWords
from .requester_context import RequesterContext

__all__ = ["RequesterSwap"]


class RequesterSwap(wiring.Component):
    """Stands before the requester's tokens and retries, and keeps a state while its words go or come: so no other QP
    waits for words.

    SAVE passes when no retry waits, and no ring is going back: it may be that of the QP. A set of QPs waits at
    ``retry`` (:class:`...stream.waiting_set.WaitingSet`), so those before the SAVE have all come after ``4 * qps``
    retries, and one that had been taken and not passed yet; if more come, they wait until it has passed. LOAD passes
    when its words have come. All other tokens wait for nothing, unless a SAVE or LOAD has passed and is not done.

    The words are the state, its lowest bits first.

    *Cycles*: a token or a retry passes 1 cycle after it came, SAVE 2. A word a cycle, from the cycle after ``save`` on;
    LOAD passes 2 cycles after its last word.

    Parameters
    ----------
    qps : int
        QPs.

    Members
    -------
    control, token : streams of ``QpControl``
        What comes, and what passes.
    retry, retried : streams of QP index
        The same.
    rewind, rewound : 1
        Strobes: a ring is told to go back; it is heard that one has.
    state, wake, save : ``RequesterContext``, 1, 1
        Strobe of a SAVE that has passed: it is done, and this is given away. ``wake`` as of a ``SavedWord``.
    value, load : ``RequesterContext``, 1
        What came for the LOAD that has passed; strobe: it is done. It stays for two more cycles.
    saved : stream of ``SavedWord``; loaded : stream of words
    """

    def __init__(self, qps):
        self.qps = qps
        token, index = stream.Signature(QpControl), stream.Signature(range(qps))
        super().__init__(
            {
                "control": In(token),
                "token": Out(token),
                "retry": In(index),
                "retried": Out(index),
                "rewind": In(1),
                "rewound": In(1),
                "state": In(RequesterContext),
                "wake": In(1),
                "save": In(1),
                "value": Out(RequesterContext),
                "load": In(1),
                "saved": Out(stream.Signature(SavedWord)),
                "loaded": In(stream.Signature(WORD_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = StateWords(RequesterContext)
        wiring.connect(m, wiring.flipped(self.loaded), words.loaded)
        wiring.connect(m, words.saved, wiring.flipped(self.saved))
        m.d.comb += [
            words.state.eq(self.state),
            words.wake.eq(self.wake),
            words.save.eq(self.save),
            self.value.eq(words.value),
        ]

        # -- Retries, and rings that go back: one is heard of while the next one goes, and one more may be said by then.
        action = self.control.payload.action
        saves, loads, passes = Signal(), Signal(), Signal()
        rewinds = Signal(2)
        retries = Signal(range(4 * self.qps))  # since a SAVE waits
        hold, calm = Signal(), Signal()  # those that it waits for have come
        passing = Signal()  # a SAVE is to pass; retries wait
        m.submodules.passed = passed = Slice(range(self.qps))
        free = Signal()  # no words go or come, as of a cycle ago: none begin between two tokens
        m.d.sync += free.eq(~words.busy)
        m.d.comb += [
            saves.eq(self.control.valid & (action == QpAction.SAVE) & free),
            loads.eq(self.control.valid & (action == QpAction.LOAD) & free),
            calm.eq((rewinds == 0) & (hold | ~self.retry.valid) & ~passed.o.valid),
            passed.i.payload.eq(self.retry.payload),
            passed.i.valid.eq(self.retry.valid & ~hold & ~passing),
            self.retry.ready.eq(passed.i.ready & ~hold & ~passing),
        ]
        wiring.connect(m, passed.o, wiring.flipped(self.retried))
        with m.If(self.rewind & ~self.rewound):
            m.d.sync += rewinds.eq(rewinds + 1)
        with m.Elif(self.rewound & ~self.rewind):
            m.d.sync += rewinds.eq(rewinds - 1)
        with m.If(~saves | passing):
            m.d.sync += [retries.eq(0), hold.eq(0)]
        with m.Elif(self.retry.valid & self.retry.ready):
            m.d.sync += [retries.eq(retries + 1), hold.eq(retries == 4 * self.qps - 1)]

        # -- Tokens. Whether one passes is a register, as of retries: to choose among them and turns takes its time.
        moves, taken = Signal(), Signal()
        m.d.comb += [
            moves.eq((action == QpAction.SAVE) | (action == QpAction.LOAD)),
            taken.eq(self.control.valid & self.control.ready),
            self.token.payload.eq(self.control.payload),
            self.token.valid.eq(passes),
            self.control.ready.eq(self.token.ready & passes),
        ]
        m.d.sync += passes.eq(0)
        with m.FSM():
            with m.State("PASS"):
                m.d.comb += words.load.eq(loads)
                m.d.sync += passes.eq(self.control.valid & ~moves & ~taken)
                with m.If(loads):
                    m.next = "TAKE"
                with m.Elif(saves & calm):
                    m.d.sync += passing.eq(1)
                    m.next = "SAVE"
            with m.State("SAVE"):
                # A retry that had passed before may still tell a ring to go back. No token is taken in that cycle.
                m.d.sync += passes.eq((rewinds == 0) & ~taken)
                with m.If(taken):
                    m.d.sync += passing.eq(0)
                    m.next = "PASSED"
            with m.State("TAKE"), m.If(~words.busy):
                m.next = "TAKEN"
            with m.State("TAKEN"):
                m.d.sync += passes.eq(~taken)
                with m.If(taken):
                    m.next = "PASSED"
            with m.State("PASSED"), m.If(self.save | self.load):
                m.next = "PASS"
        return m
