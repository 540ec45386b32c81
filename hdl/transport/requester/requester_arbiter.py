"""Which event the requester takes next."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.commands import QpAction
from ...queue.ring import RingIndex
from ...stream.transfer import QpControl
from ..common.psn import PSN_BITS

__all__ = ["RequesterArbiter", "RequesterEvent", "RequesterItem"]


class RequesterEvent(enum.Enum, shape=2):
    """The kind of an event."""

    TURN = 0
    CONTROL = 1
    RETRY = 2
    REWOUND = 3


RequesterItem = data.StructLayout(
    {
        "event": RequesterEvent,
        "action": QpControl.members["action"],  # CONTROL
        "operand": PSN_BITS,  # REWOUND: the ring's index; CONTROL: the token's PSN, but 0 with RESET
    }
)
"""What there is to do for a QP."""


class RequesterArbiter(wiring.Component):
    """Chooses one of what waits: a ring that has been rewound, a control token, a retry, a turn, in this order.
    Combinational: it chooses when ``o.ready`` is set, and then ``o.valid`` says whether there is anything.

    A rewound ring goes first, and waits for nothing, because that frees the prefetcher, for which tokens and retries
    wait: those are not offered before the last rewind has been taken.

    Parameters
    ----------
    qps : int

    Members
    -------
    rewound, control, retry, ready : streams
        As of the requester.
    rewind_free, reply_free : 1
        What the requester says on these streams has been taken, and nothing that is under way says more.
    o : stream of ``{slot, item}``
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "rewound": In(stream.Signature(RingIndex)),
                "control": In(stream.Signature(QpControl)),
                "retry": In(stream.Signature(range(qps))),
                "ready": In(stream.Signature(range(qps))),
                "rewind_free": In(1),
                "reply_free": In(1),
                "o": Out(stream.Signature(data.StructLayout({"slot": range(qps), "item": RequesterItem}))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        control, rewound, slot, item = (
            self.control.payload,
            self.rewound.payload,
            self.o.payload.slot,
            self.o.payload.item,
        )
        sources = (self.rewound, self.control, self.retry, self.ready)
        may = Signal(len(sources))
        choice = Signal(len(sources))
        m.d.comb += may.eq(
            Cat(
                self.rewound.valid,
                self.control.valid & self.rewind_free & (self.reply_free | (control.action != QpAction.QUERY)),
                self.retry.valid & self.rewind_free,
                self.ready.valid,
            )
        )
        m.d.comb += [
            choice.eq(may & -may),
            self.o.valid.eq(may.any() & self.o.ready),
            *(port.ready.eq(self.o.ready & choice[number]) for number, port in enumerate(sources)),
            slot.eq(self.ready.payload),
            item.action.eq(control.action),
            item.event.eq(RequesterEvent.TURN),
        ]
        with m.If(choice[0]):
            m.d.comb += [slot.eq(rewound.qp), item.event.eq(RequesterEvent.REWOUND), item.operand.eq(rewound.index)]
        with m.Elif(choice[1]):
            m.d.comb += [slot.eq(control.qp), item.event.eq(RequesterEvent.CONTROL)]
            with m.If(control.action != QpAction.RESET):
                m.d.comb += item.operand.eq(control.psn)
        with m.Elif(choice[2]):
            m.d.comb += [slot.eq(self.retry.payload), item.event.eq(RequesterEvent.RETRY)]
        return m
