"""Whereto: the path of what is to be sent next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.contexts import QP_CONTEXT
from ...context.bank import ContextBank
from ...stream.transfer import AttributeWrite

__all__ = ["GIDS", "PATH", "PathFetch"]

PATH = ("dest_qpn", "traffic_class", "pkey", "source_port", "dest_mac", "hop_limit", "dest_ip")
"""Fields of the QP context that lead to the peer."""

GIDS = ("dest_gid_high", "dest_gid_middle", "flow_label", "sgid_index")
"""And with a table of GIDs."""

ROWS = 4
"""Rows of block RAM for each path."""


class PathFetch(wiring.Component):
    """Keeps the path of each QP, and has that of the packet and that of the acknowledgement which are next, from some
    cycles after they have come until they leave. A packet that waits for its payload keeps its path while
    acknowledgements go ahead.

    A path is there 7 cycles after its QP was first seen, or up to 13 if the other one was asked for before. That of a
    packet waits while an acknowledgement is to leave. If it is written meanwhile, it is read again, and is not there
    until then.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    gids : bool
        There is a table of GIDs.

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    packet, ack : ``valid``, ``qp``, ``taken``; ``here``, ``path``
        What is next, and whether it leaves in this cycle; whether its path is there, and that.
    """

    def __init__(self, qps, gids=False):
        self.qps = qps
        self._bank = ContextBank(QP_CONTEXT, PATH + (GIDS if gids else ()), {}, qps, ROWS)
        user = wiring.Signature(
            {
                "valid": In(1),
                "qp": In(range(qps)),
                "taken": In(1),
                "here": Out(1),
                "path": Out(self._bank.layout),
            }
        )
        super().__init__(
            {"attribute": In(AttributeWrite), "attribute_en": In(1), "packet": Out(user), "ack": Out(user)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = self._bank
        packet, ack = self.packet, self.ack
        index = self.attribute.index[: ceil_log2(self.qps)]
        of_ack, qp, again, changes = Signal(), Signal(range(self.qps)), Signal(), Signal()
        gone = Signal()  # the packet has left without its path
        m.d.comb += [
            bank.attribute.eq(self.attribute),
            bank.attribute_en.eq(self.attribute_en),
            bank.r_slot.eq(qp),
            changes.eq(self.attribute_en & (index == qp)),
            ack.path.eq(bank.attributes),  # they stand until the next read
        ]
        with m.FSM():
            with m.State("CHOOSE"):
                m.d.sync += [
                    gone.eq(packet.taken),
                    of_ack.eq(~packet.valid | packet.here),
                    qp.eq(Mux(packet.valid & ~packet.here, packet.qp, ack.qp)),
                ]
                with m.If(~ack.here & ((packet.valid & ~packet.here) | ack.valid)):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [bank.r_look.eq(1), bank.r_en.eq(1)]
                m.d.sync += [again.eq(changes), gone.eq(gone | packet.taken)]
                with m.If(bank.r_ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += [again.eq(again | changes), gone.eq(gone | packet.taken)]
                with m.If(bank.r_valid):
                    m.next = "READ"
                    with m.If(~again & ~changes):
                        m.next = "CHOOSE"
                        with m.If(of_ack):
                            m.d.sync += ack.here.eq(1)
                        with m.Elif(~gone & ~packet.taken):
                            m.d.sync += packet.here.eq(1)
        # Whether it is the packet's comes late, and is not needed for what would be.
        with m.If(~packet.here):
            m.d.sync += packet.path.eq(bank.attributes)
        for user in (packet, ack):
            with m.If(user.taken | (user.here & self.attribute_en & (index == user.qp))):
                m.d.sync += user.here.eq(0)
        return m
