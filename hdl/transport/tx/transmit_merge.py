"""Requests and responses on their way to the wire, one packet after the other."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...stream.arbiter import gather
from ...stream.transfer import AccessRequest
from ..common.layouts import TxDescriptor

__all__ = ["Source", "TransmitMerge"]

Source = wiring.Signature(
    {"access": Out(stream.Signature(AccessRequest)), "packet": Out(stream.Signature(TxDescriptor))}
)
"""Who sends packets: for each a run of accesses and a TX descriptor."""


class TransmitMerge(wiring.Component):
    """Merges the packets of requester and READ/atomic responder, round robin: runs and TX descriptors leave in the same
    order.

    A packet is a run of accesses and a TX descriptor. It passes whole, before the next one begins; which of the two
    comes first, and how long the other stays away, does not matter.

    *Cycles*: a TX descriptor passes in its cycle, an access goes through a register, the OR of
    one of each source, every second cycle. The grant is
    a register that stays where it was until the other source wants it: that costs a cycle if nothing was under way,
    else none.

    Members
    -------
    request, response : ``access``, ``packet``
        Streams of ``AccessRequest``, a run a packet, and of ``TxDescriptor``. Of a response's header only what
        responses have is looked at: BTH, AETH and ``length``.
    access : stream of ``AccessRequest``
        To the access check.
    packet : stream of ``TxDescriptor``
        To the queue before the transmitter.
    """

    request: In(Source)
    response: In(Source)
    access: Out(stream.Signature(AccessRequest))
    packet: Out(stream.Signature(TxDescriptor))

    def elaborate(self, platform):
        m = Module()
        grant = Signal()  # to the response
        inside = Signal()  # something of the packet has passed
        run_over, departed = Signal(), Signal()  # and this
        access_taken, packet_taken, over = Signal(), Signal(), Signal()
        request, response = self.request, self.response
        access_valid = Mux(grant, response.access.valid, request.access.valid)
        wants = [port.access.valid | port.packet.valid for port in (request, response)]
        ending = Mux(grant, response.access.payload.last, request.access.payload.last)

        # -- The run.
        access_ready = Signal()
        accesses = [port.access.payload for port in (request, response)]
        m.d.comb += [
            self.access.payload.eq(gather(m, "access", Cat(~grant, grant), accesses, ~self.access.valid)),
            access_ready.eq(~self.access.valid & ~run_over),
            request.access.ready.eq(access_ready & ~grant),
            response.access.ready.eq(access_ready & grant),
            access_taken.eq(access_ready & access_valid),
        ]
        with m.If(self.access.valid):
            m.d.sync += self.access.valid.eq(~self.access.ready)
        with m.Else():
            m.d.sync += self.access.valid.eq(access_taken)

        # -- The TX descriptor. What only one source has needs no choice.
        ours, theirs = request.packet.payload, response.packet.payload
        packet = self.packet.payload
        packet_ready = Signal()
        m.d.comb += [
            packet.eq(ours),
            *(packet[name].eq(Mux(grant, theirs[name], ours[name])) for name in ("qp", "message_last")),
            *(
                packet[name].eq(Mux(grant, theirs[name].as_value(), ours[name].as_value()))
                for name in ("kind", "source")
            ),
            *(
                packet.transport[name].eq(Mux(grant, theirs.transport[name], ours.transport[name]))
                for name in ("opcode", "solicited", "ack_request", "psn", "length", "syndrome", "msn")
            ),
            self.packet.valid.eq(Mux(grant, response.packet.valid, request.packet.valid) & ~departed),
            packet_ready.eq(self.packet.ready & ~departed),
            request.packet.ready.eq(packet_ready & ~grant),
            response.packet.ready.eq(packet_ready & grant),
            packet_taken.eq(self.packet.valid & self.packet.ready),
        ]

        # -- Whose turn it is.
        m.d.comb += over.eq((run_over | (access_taken & ending)) & (departed | packet_taken))
        with m.If(over):
            m.d.sync += [inside.eq(0), run_over.eq(0), departed.eq(0)]
        with m.Else():
            m.d.sync += [
                inside.eq(inside | access_taken | packet_taken),
                run_over.eq(run_over | (access_taken & ending)),
                departed.eq(departed | packet_taken),
            ]
        with m.If((over | ~(inside | Mux(grant, wants[1], wants[0]))) & Mux(grant, wants[0], wants[1])):
            m.d.sync += grant.eq(~grant)
        return m
