"""Doorbells: which of them are true."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.contexts import QpState
from .ring import PushDoorbell

__all__ = ["RingDoorbell"]


class RingDoorbell(wiring.Component):
    """Takes a doorbell, compares it with its ring, and accepts, rejects or ignores it.

    Accepted is what claims more than is known and no more than the ring holds. A doorbell that claims more than the
    ring holds, or that meets a stride outside ``strides``, is rejected; one that is stale, repeated, or for a QP in
    state RESET, is ignored. The verdict stands 3 cycles after the doorbell was taken, and until it has been heard.

    What the ring holds is counted from the first WQE that is not consumed. In a ring that ``rewinds`` the host may know
    of more consumed WQEs than the ring does, which is behind; there it is counted from the last WQE known.

    *Pushes*: ``pushed`` comes with the verdict if the doorbell says so, the WQE's words are there, and it is the only
    one of its ring that is not consumed. Then nothing of that ring is on its way, and no read has failed: what is
    consumed was fetched before. The doorbell stays inside until the words are ``copied``.

    Parameters
    ----------
    qps : int
        QPs.
    strides : range
        Logarithms of the sizes that a WQE may have.
    rewinds : bool
        Rings may go back.

    Members
    -------
    doorbell : stream of ``PushDoorbell``
    open : 1
        It may be taken in this cycle: the look-up is free for it.
    idle, take : 1
        None is inside; one is taken.
    qp, index
        The one inside, from the cycle after ``take`` on.
    consumed, producer : 16
        Its ring's indices, 1 cycle after ``take``.
    state, log_size, log_stride
        Its QP's attributes, 2 cycles after ``take``.
    accept, reject : 1
        The verdict.
    hold_accept, hold_reject : 1
        It cannot be heard in this cycle. A push is heard in any.
    mine : 1
        Words have been pushed for ``qp``, and there is a place for them.
    heard, fell_back : 1
        Strobes, of a doorbell that says that its WQE has been pushed: the verdict is heard; and it is accepted, but the
        WQE must be fetched.
    pushed : 1
        The WQE is to be taken from the words that were pushed; from the verdict until ``copied``.
    stride : 4
        Logarithm of its size.
    copied : 1
        They are in their place.
    """

    def __init__(self, qps, strides, rewinds):
        self.qps = qps
        self.strides = strides
        self.rewinds = rewinds
        super().__init__(
            {
                "doorbell": In(stream.Signature(PushDoorbell)),
                "open": In(1),
                "idle": Out(1),
                "take": Out(1),
                "qp": Out(ceil_log2(qps)),
                "index": Out(16),
                "consumed": In(16),
                "producer": In(16),
                "state": In(4),
                "log_size": In(4),
                "log_stride": In(4),
                "accept": Out(1),
                "reject": Out(1),
                "hold_accept": In(1),
                "hold_reject": In(1),
                "mine": In(1),
                "heard": Out(1),
                "fell_back": Out(1),
                "pushed": Out(1),
                "stride": Out(4),
                "copied": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.doorbell.ready.eq(self.idle & self.open),
            self.take.eq(self.doorbell.valid & self.doorbell.ready),
        ]
        # How many WQEs it claims behind the last one known, and of those that are not consumed, less one each: all ones
        # claims nothing. A claim that fits is news if it is ahead of the last one known.
        ahead, last = Signal(16), Signal(16)
        unused = Signal()  # all that is known is consumed
        m.d.sync += [ahead.eq(self.index + ~self.producer), unused.eq(self.producer == self.consumed)]
        if self.rewinds:
            m.d.comb += last.eq(ahead)
        else:
            m.d.sync += last.eq(self.index + ~self.consumed)
        push = Signal()
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.idle.eq(1)
                m.d.sync += [self.qp.eq(self.doorbell.payload.qp), self.index.eq(self.doorbell.payload.index)]
                m.d.sync += push.eq(self.doorbell.payload.push)
                with m.If(self.take):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "CHECK"
            with m.State("CHECK"):
                # A claim of 32,768 or more lies behind, unless the ring has room for it.
                known = self.state != QpState.RESET
                proper = (self.log_stride >= self.strides[0]) & (self.log_stride <= self.strides[-1])
                fits = (last & ~Cat(self.log_size > k for k in range(16))) == 0
                behind = last[15] | last[:15].all()
                m.d.sync += [
                    self.accept.eq(known & proper & fits & ~ahead[15]),
                    self.reject.eq(known & (~proper | (~fits & ~behind))),
                    self.pushed.eq(known & proper & push & self.mine & (ahead == 0) & unused),
                    self.stride.eq(self.log_stride),
                ]
                m.next = "APPLY"
            with m.State("APPLY"):
                hold = (self.accept & ~self.pushed & self.hold_accept) | (self.reject & self.hold_reject)
                with m.If(~hold):
                    m.d.comb += [self.heard.eq(push), self.fell_back.eq(push & self.accept & ~self.pushed)]
                    m.d.sync += [self.accept.eq(0), self.reject.eq(0)]
                    m.next = "TAKE"
                    with m.If(self.pushed):
                        m.next = "COPY"
            with m.State("COPY"):
                with m.If(self.copied):
                    m.d.sync += self.pushed.eq(0)
                    m.next = "TAKE"
        return m
