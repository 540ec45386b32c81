"""The requester's output streams besides packets: one register each."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.cqe import Syndrome, WcStatus
from ...queue.ring import RingIndex, RingStatus
from ..common.layouts import Failure, Flush, Progress
from ..common.psn import PSN_BITS
from .requester_context import Phase, RequesterContext
from .send_decision import SendAction

__all__ = ["OutputStrobes", "Reply", "RequesterOutputs"]

Reply = data.StructLayout({"psn": PSN_BITS, "index": 16})
"""Where a QP's next packet begins: its PSN, and its WQE."""

OutputStrobes = data.StructLayout(dict.fromkeys(("again", "consumed", "rewind", "failed", "flush", "reply"), 1))
"""A strobe for each stream of :class:`RequesterOutputs`."""

PacketEnd = wiring.Signature(
    {
        "syndrome": Out(8),
        "more": Out(1),
        "ended": Out(1),
        "failed": Out(1),
        "status": Out(8),
        "done": Out(1),
        "good": Out(1),
        "lost": Out(1),
    }
)
"""What a :class:`.segmenter.Segmenter` knows at the end of a packet."""


class RequesterOutputs(wiring.Component):
    """Holds one item for each stream until it is taken.

    Items come from the end of a packet, or from a turn or another event of the requester. While a packet is under way
    only ``again`` may be set. A strobe is allowed only when the streams are empty: ``settled``, and for ``rewind`` and
    ``reply`` their own ``valid``.

    *Latency*: an item stands on its stream one cycle after its strobe.

    Parameters
    ----------
    qps : int
        QPs.

    Members
    -------
    packet : ``PacketEnd``
        At ``good`` its QP goes to ``again`` if there is ``more`` to do behind it, and at ``lost``. At ``done`` it says
        how far the ring is ``consumed``, if a message has ``ended``, and whether it has
        ``failed``, and with which ``status`` and ``syndrome``.
    of_packet : 1
        A packet is under way, of the WQE at ``state.index``; then ``action`` is not GIVE_UP, nor the phase RESUME.
    strobe : ``OutputStrobes``
        Strobes of the turn.
    qp : QP index
        That of the turn, or of the packet.
    state : ``RequesterContext``; status : ``RingStatus``; progress : ``Progress``
    target, action : 16, ``SendAction``
        What the turn knows about it; ``target`` is the WQE up to which all are given up.
    again, consumed, rewind, failed, flush, reply : streams
        Those of :class:`.requester.Requester`.
    settled : 1
        Nothing waits, on any stream but ``rewind`` and ``reply``.
    """

    def __init__(self, qps):
        super().__init__(
            {
                "packet": In(PacketEnd),
                "of_packet": In(1),
                "strobe": In(OutputStrobes),
                "qp": In(range(qps)),
                "state": In(RequesterContext),
                "status": In(RingStatus),
                "progress": In(Progress),
                "target": In(16),
                "action": In(SendAction),
                "again": Out(stream.Signature(range(qps))),
                "consumed": Out(stream.Signature(RingIndex)),
                "rewind": Out(stream.Signature(RingIndex)),
                "failed": Out(stream.Signature(Failure)),
                "flush": Out(stream.Signature(Flush)),
                "reply": Out(stream.Signature(Reply)),
                "settled": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        packet, state, of_packet, action = self.packet, self.state, self.of_packet, self.action
        ports = {name: getattr(self, name) for name in OutputStrobes.members}
        waiting = Cat(ports[name].valid for name in ("again", "consumed", "failed", "flush"))
        m.d.comb += self.settled.eq(~waiting.any())

        for port in ports.values():
            with m.If(port.ready):
                m.d.sync += port.valid.eq(0)
        with m.If((packet.good & packet.more) | packet.lost):
            m.d.sync += self.again.valid.eq(1)
        with m.If(packet.done):
            m.d.sync += [self.consumed.valid.eq(packet.ended), self.failed.valid.eq(packet.failed)]
        for name, port in ports.items():
            with m.If(self.strobe[name]):
                m.d.sync += port.valid.eq(1)

        # What is said about is known before it is known that something is to be said, and so is not hurried.
        with m.If(~self.again.valid):
            m.d.sync += self.again.payload.eq(self.qp)
        with m.If(~self.consumed.valid):
            passed = Mux(action == SendAction.GIVE_UP, self.status.fetched, state.index + 1)
            m.d.sync += [self.consumed.payload.qp.eq(self.qp), self.consumed.payload.index.eq(passed)]
        with m.If(~self.failed.valid):
            place = Mux(state.phase == Phase.RESUME, self.progress.oldest, state.index)
            m.d.sync += [
                self.failed.payload.qp.eq(self.qp),
                self.failed.payload.wqe_index.eq(place),
                self.failed.payload.status.eq(Mux(of_packet, packet.status, WcStatus.LOC_QP_OP_ERR)),
                self.failed.payload.syndrome.eq(Mux(of_packet, packet.syndrome, Syndrome.RING_BUS)),
            ]
        with m.If(~self.flush.valid):
            m.d.sync += [
                self.flush.payload.qp.eq(self.qp),
                self.flush.payload.index.eq(Mux(action == SendAction.DRAINED, state.index, self.target)),
                self.flush.payload.drain.eq(action == SendAction.DRAINED),
            ]
        with m.If(~self.rewind.valid):
            m.d.sync += [self.rewind.payload.qp.eq(self.qp), self.rewind.payload.index.eq(self.progress.oldest)]
        with m.If(~self.reply.valid):
            m.d.sync += [self.reply.payload.psn.eq(state.psn), self.reply.payload.index.eq(state.index)]
        return m
