"""What the requester deals with next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..abi.commands import QpAction
from ..queue.ring import RingIndex
from ..stream.transfer import QpControl
from .psn import PSN_BITS
from .retry_set import RetrySet

__all__ = ["Order", "Orders"]


class Order(enum.Enum):
    """What is dealt with."""

    TURN = 0
    CONTROL = 1
    RETRY = 2
    REWOUND = 3


class Orders(wiring.Component):
    """Chooses one of what waits: a ring that has been rewound, a control token, a retry, a turn.

    The first three wait until nothing is under way. That ``rewound`` goes first frees the prefetcher, for which tokens
    and retries may wait. Retries are collected in a set, so that whoever says one never waits for what waits for him.

    Parameters
    ----------
    qps : int

    Members
    -------
    rewound, control, retry, ready : streams
        As of the requester.
    open : 1
        Something may be taken.
    idle : 1
        Nothing is under way, and all that was said is taken.
    busy, busy_qp : 1, 12
        A packet of this QP is under way: it gets no turn.
    rewind_free, reply_free : 1
        What the requester says on these streams has been taken.
    qp : QP index
        Whose turn it would be; combinational.
    take : 1
        It is taken: from the next cycle on the following hold.
    order, action, operand : ``Order``, 4, 24
        ``operand`` is the ring's index, or the token's PSN, but 0 with RESET.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "rewound": In(stream.Signature(RingIndex)),
                "control": In(stream.Signature(QpControl)),
                "retry": In(stream.Signature(range(qps))),
                "ready": In(stream.Signature(range(qps))),
                "open": In(1),
                "idle": In(1),
                "busy": In(1),
                "busy_qp": In(12),
                "rewind_free": In(1),
                "reply_free": In(1),
                "qp": Out(range(qps)),
                "take": Out(1),
                "order": Out(Order),
                "action": Out(QpControl.members["action"]),
                "operand": Out(PSN_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.retries = retries = RetrySet(self.qps)
        wiring.connect(m, wiring.flipped(self.retry), retries.i)
        control = self.control.payload
        held, told, again, calm = Signal(), Signal(), Signal(), Signal()
        rewound, token = Signal(), Signal()  # waits, as was seen a cycle before
        m.d.sync += [
            rewound.eq(self.rewound.valid & ~self.rewound.ready),
            token.eq(self.control.valid & ~self.control.ready),
        ]
        m.d.comb += [
            held.eq(self.busy & (self.busy_qp == self.ready.payload)),
            told.eq(rewound | token),
            again.eq(retries.o.valid & self.rewind_free),
            calm.eq(self.open & self.idle),
            self.rewound.ready.eq(calm & rewound),
            self.control.ready.eq(
                calm & token & ~rewound & self.rewind_free & (self.reply_free | (control.action != QpAction.QUERY))
            ),
            retries.o.ready.eq(calm & ~told & self.rewind_free),
            self.ready.ready.eq(self.open & ~told & ~again & ~held),
            self.qp.eq(
                Mux(
                    told,
                    Mux(rewound, self.rewound.payload.qp, control.qp),
                    Mux(again, retries.o.payload, self.ready.payload),
                )
            ),
            self.take.eq(
                Mux(
                    rewound,
                    calm,
                    Mux(token, self.control.ready, Mux(again, calm, self.ready.ready & self.ready.valid)),
                )
            ),
        ]
        with m.If(self.open):
            m.d.sync += [self.action.eq(control.action), self.operand.eq(control.psn)]
            with m.If(rewound):
                m.d.sync += [self.order.eq(Order.REWOUND), self.operand.eq(self.rewound.payload.index)]
            with m.Elif(token):
                m.d.sync += self.order.eq(Order.CONTROL)
                with m.If(control.action == QpAction.RESET):
                    m.d.sync += self.operand.eq(0)
            with m.Elif(again):
                m.d.sync += self.order.eq(Order.RETRY)
            with m.Else():
                m.d.sync += self.order.eq(Order.TURN)
        return m
