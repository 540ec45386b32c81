"""How far shared receive queues are used."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.contexts import QP_CONTEXT
from ...abi.eqe import EventType
from ...stream.fifo import Queue
from ...stream.transfer import AttributeWrite, Event

__all__ = ["SharedQueues"]

STATE_WORD, LIMIT_WORD = QP_CONTEXT.fields["state"].word, QP_CONTEXT.fields["srq_limit"].word
LIMIT_AT = QP_CONTEXT.fields["srq_limit"].offset % 32

EVENTS = 4
"""Events that wait; who finds no room says it with the next WQE that is taken."""


class SharedQueues(wiring.Component):
    """Knows of each SRQ which WQE is taken next, and whether too few of them are left.

    A WQE is taken once. If fewer are left then than the SRQ's limit says, there is an event, and no limit any more (IBA
    10.2.9.2; ``ibv_modify_srq``).

    The broadcast comes when nothing is taken of the SRQ, or a limit is set: it waits for a cycle in which nothing of
    any other is.

    Parameters
    ----------
    qps, srqs : int
        In the broadcast, SRQ 0 has the index ``qps``. Powers of two, and ``srqs`` is not the larger one.

    Members
    -------
    attribute, attribute_en
        The broadcast to rings. Word 0 makes an SRQ new.
    srqn, head : SRQ, 16
        Free-running index of the WQE to be taken next, in the same cycle.
    take, left : 1, 16
        Strobe: that of ``srqn`` is taken, and so many are left.
    fail : 1
        Strobe: a QP has failed because ``srqn`` is in error.
    event : stream of ``Event``
        SRQ_LIMIT_REACHED and SRQ_ERR.
    """

    def __init__(self, qps, srqs):
        if not isinstance(srqs, int) or not 2 <= srqs <= min(256, qps) or srqs & srqs - 1:
            raise ValueError(f"srqs must be a power of two from 2 to {min(256, qps)}, not {srqs!r}")
        self.qps = qps
        self.srqs = srqs
        super().__init__(
            {
                "attribute": In(AttributeWrite),
                "attribute_en": In(1),
                "srqn": In(range(srqs)),
                "head": Out(16),
                "take": In(1),
                "left": In(16),
                "fail": In(1),
                "event": Out(stream.Signature(Event)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.heads = heads = memory.Memory(shape=16, depth=self.srqs, init=[])
        m.submodules.limits = limits = memory.Memory(shape=16, depth=self.srqs, init=[])
        m.submodules.events = events = Queue(Event, EVENTS)
        wiring.connect(m, events.o, wiring.flipped(self.event))
        head_write, head_read = heads.write_port(), heads.read_port(domain="comb")
        limit_write, limit_read = limits.write_port(), limits.read_port(domain="comb")

        # What is broadcast waits here, as what is taken goes first; that is compared a cycle later.
        word = self.attribute.word
        heard = self.attribute_en & (self.attribute.index >= self.qps)
        begins, limited, about, limit = Signal(), Signal(), Signal.like(self.srqn), Signal(16)
        taken, failed, srqn, left = Signal(), Signal(), Signal.like(self.srqn), Signal(16)
        m.d.sync += [taken.eq(self.take), failed.eq(self.fail), srqn.eq(self.srqn), left.eq(self.left)]
        with m.If(heard):
            m.d.sync += about.eq(self.attribute.index)
        with m.If(heard & (word == LIMIT_WORD)):
            m.d.sync += limit.eq(self.attribute.data[LIMIT_AT:])
        m.d.sync += [
            begins.eq((heard & (word == STATE_WORD)) | (begins & self.take)),
            limited.eq((heard & (word == LIMIT_WORD)) | (limited & taken)),
        ]
        low = Signal()
        m.d.comb += [
            low.eq(taken & (left < limit_read.data)),
            head_read.addr.eq(self.srqn),
            self.head.eq(head_read.data),
            head_write.addr.eq(Mux(self.take, self.srqn, about)),
            head_write.data.eq(Mux(self.take, head_read.data + 1, 0)),
            head_write.en.eq(self.take | begins),
            limit_read.addr.eq(srqn),
            limit_write.addr.eq(Mux(taken, srqn, about)),
            limit_write.data.eq(Mux(taken, 0, limit)),
            limit_write.en.eq(Mux(taken, low & events.i.ready, limited)),
            events.i.valid.eq(low | failed),
            events.i.payload.type.eq(Mux(failed, EventType.SRQ_ERR, EventType.SRQ_LIMIT_REACHED)),
            events.i.payload.number.eq(srqn),
        ]
        return m
