"""Which event the requester takes next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...queue.ring import RingIndex
from ...stream.transfer import QpControl
from ..common.psn import PSN_BITS

__all__ = ["RequesterArbiter", "RequesterEvent"]


class RequesterEvent(enum.Enum):
    """The kind of an event."""

    TURN = 0
    CONTROL = 1
    RETRY = 2
    REWOUND = 3


class RequesterArbiter(wiring.Component):
    """Chooses one of what waits: a ring that has been rewound, a control token, a retry, a turn.

    The first three wait until nothing is under way, and are taken a cycle after they were chosen. That ``rewound`` goes
    first frees the prefetcher, for which tokens and retries may wait.

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
    rewind_free, reply_free : 1
        What the requester says on these streams has been taken.
    qp : QP index
        Whose turn it would be; combinational.
    take : 1
        It is taken: from the next cycle on the following hold.
    event, action, operand : ``RequesterEvent``, 4, 24
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
                "rewind_free": In(1),
                "reply_free": In(1),
                "qp": Out(range(qps)),
                "take": Out(1),
                "event": Out(RequesterEvent),
                "action": Out(QpControl.members["action"]),
                "operand": Out(PSN_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        control = self.control.payload
        urgent, again, calm = Signal(), Signal(), Signal()
        chosen, chosen_qp = Signal(), Signal(range(self.qps))  # one of the first three
        m.d.comb += [
            urgent.eq(self.rewound.valid | self.control.valid),
            again.eq(self.retry.valid & self.rewind_free),
            calm.eq(self.open & self.idle & ~chosen),
            self.rewound.ready.eq(calm),
            self.control.ready.eq(
                calm & ~self.rewound.valid & self.rewind_free & (self.reply_free | (control.action != QpAction.QUERY))
            ),
            self.retry.ready.eq(calm & ~urgent & self.rewind_free),
            self.ready.ready.eq(self.open & ~urgent & ~again & ~chosen),
            self.qp.eq(Mux(chosen, chosen_qp, self.ready.payload)),
            self.take.eq(chosen | (self.ready.valid & self.ready.ready)),
        ]
        m.d.sync += chosen.eq(
            Mux(self.rewound.valid, calm, Mux(self.control.valid, self.control.ready, again & self.retry.ready))
        )
        with m.If(~chosen):
            m.d.sync += chosen_qp.eq(
                Mux(urgent, Mux(self.rewound.valid, self.rewound.payload.qp, control.qp), self.retry.payload)
            )
        with m.If(self.open & ~chosen):
            m.d.sync += [self.action.eq(control.action), self.operand.eq(control.psn)]
            with m.If(self.rewound.valid):
                m.d.sync += [self.event.eq(RequesterEvent.REWOUND), self.operand.eq(self.rewound.payload.index)]
            with m.Elif(self.control.valid):
                m.d.sync += self.event.eq(RequesterEvent.CONTROL)
                with m.If(control.action == QpAction.RESET):
                    m.d.sync += self.operand.eq(0)
            with m.Elif(again):
                m.d.sync += self.event.eq(RequesterEvent.RETRY)
            with m.Else():
                m.d.sync += self.event.eq(RequesterEvent.TURN)
        return m
