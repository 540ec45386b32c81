"""The responder's arithmetic, proven for one packet of any kind in any state: so for all packets that ever come."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.queue.wqe_fetcher import RingStatus
from verbena.hdl.transport.common.aeth import AethSyndrome
from verbena.hdl.transport.common.psn import PSN_BITS, psn_before
from verbena.hdl.transport.receive.layouts import Message, ReceivedRequest
from verbena.hdl.transport.responder import read_atomic_check
from verbena.hdl.transport.responder.request_validator import RequestValidator

PLACE_MAX = 4
DEPTH = 12
HALF = 1 << (PSN_BITS - 1)
RECEIVING = (QpState.RTR, QpState.RTS, QpState.SQD)


class OnePacket(wiring.Component):
    """A request validator, driven once as the responder does it.

    Assumed: the packet, the QP's context and the ring's count stay while it works; the buffer takes 2 to 4 cycles, and
    objects to a WRITE or a SEND only; of UC there is nothing else; in the state, not more than 16 entries are in the
    response ring, and, if there are no duplicates among them, not more than allowed. The last is claimed of the state
    that follows, too: it is no restriction.
    """

    def __init__(self):
        super().__init__(
            {
                "given": In(data.StructLayout({"request": ReceivedRequest, "served": 8})),
                "status": In(RingStatus),
                "room": In(1),
                "misfit": In(1),
                "too_long": In(1),
                "byte_length": In(32),
                "more": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.validator = validator = RequestValidator()
        here = Signal.like(self.given)
        now, then, transport, job = here.request.state, validator.next, here.request.transport, validator.job
        places = Signal(range(PLACE_MAX + 1))
        over, broken = Signal(), Signal()  # the ring, when it was looked at
        m.d.comb += [
            validator.request.eq(here.request),
            validator.served.eq(here.served),
            validator.status.eq(self.status),
            validator.room.eq(self.room),
            validator.misfit.eq(self.misfit),
            validator.too_long.eq(self.too_long),
            validator.byte_length.eq(self.byte_length),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += here.eq(self.given)
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += broken.eq(self.status.error)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += validator.decide.eq(1)
                m.next = "PLACE"
                with m.If(validator.wait):
                    m.next = "LOOK"
            with m.State("PLACE"):
                m.d.comb += validator.place.eq(1)
                m.d.sync += places.eq(places + 1)
                with m.If((places != 0) & (~self.more | (places == PLACE_MAX - 1))):
                    m.next = "OVER"
            with m.State("OVER"):
                m.d.comb += over.eq(1)

        attributes = here.request.attributes
        unreliable, opcode, whole = here.request.unreliable, transport.opcode[:5], Signal()
        lives, ring, follows = Signal(), Signal(), Signal()
        moved, ringed, entries = Signal(PSN_BITS), Signal(5), Signal(5)
        is_ack, is_nak, limit = Signal(), Signal(), attributes.max_dest_rd_atomic
        m.d.comb += [
            moved.eq(then.epsn - now.epsn),
            entries.eq(now.taken - here.served),
            ringed.eq(then.taken - here.served),
            # A message of UC whose last packet is executed.
            whole.eq(validator.execute & validator.end & ~job.silent),
            lives.eq(here.request.accept & ~now.dead & reduce(or_, (attributes.state == state for state in RECEIVING))),
            ring.eq(job.fatal & (job.event == EventType.QP_FATAL) & broken),
            follows.eq(
                (transport.psn == now.epsn)
                & (now.message.as_value() == Mux(validator.write, Message.WRITE, Message.SEND))
            ),
            is_ack.eq(job.acknowledge & (job.syndrome[5:] == 0)),
            is_nak.eq(job.acknowledge & (job.syndrome[5:] != 0)),
        ]
        assume(m, ~self.misfit | (validator.execute & validator.write))
        assume(m, ~self.too_long | (validator.execute & ~validator.write))
        assume(m, ~unreliable | (opcode < 12))
        assume(m, (entries <= 16) & (now.mixed | (entries <= limit)))

        def claims(name, condition):
            claim(m, name, ~over | condition)

        claims("epsn_forward", unreliable | (moved <= HALF))
        claims("epsn_by_its_packet", unreliable | (moved == 0) | (transport.psn == now.epsn))
        claims("msn_by_one", (then.msn == now.msn) | ((then.msn == (now.msn + 1)[:24]) & (unreliable | (moved != 0))))
        claims("index_by_one", (then.index == now.index) | ((then.index == (now.index + 1)[:16]) & validator.consume))
        claims("ring_bounded", (ringed <= 16) & (then.mixed | (ringed <= limit) | (ringed == entries)))
        claims("dead_stays", ~now.dead | (then.dead & ~moved.any() & ~job.fatal & ~job.acknowledge & ~job.release))
        claims("ack_old", ~is_ack | psn_before(job.psn, then.epsn))
        claims("nak_expected", ~is_nak | ((job.psn == then.epsn) & (moved == 0)))
        claims("one_answer", job.acknowledge + job.release + job.silent <= 1)

        def claims_of_uc(name, condition):
            claims(f"uc_{name}", ~unreliable | condition)

        claims_of_uc("no_answer", ~(job.acknowledge | job.release))
        claims_of_uc("dead_by_ring", now.dead | ~(then.dead | job.fatal) | (then.dead & ring))
        claims_of_uc("epsn_behind_packet", ~lives | then.dead | (then.epsn == (transport.psn + 1)[:PSN_BITS]))
        claims_of_uc("nothing_else_moves_epsn", lives | (moved == 0))
        claims_of_uc("index_by_message", (then.index == now.index) | whole | then.dead)
        claims_of_uc("msn_by_message", (then.msn != now.msn) == whole)
        claims_of_uc("no_message_goes_on_behind_a_gap", ~validator.execute | validator.begin | follows)
        claims_of_uc("no_message_goes_on_behind_a_drop", ~(lives & job.silent) | (then.message == Message.NONE))
        claims_of_uc("told_as_such", job.silent | job.unreliable)
        reach(m, "longest", over & (moved == HALF) & ~unreliable)
        reach(m, "message_done", over & (then.msn != now.msn) & job.complete & is_ack)
        reach(m, "ring_full", over & (ringed == 16) & job.release)
        reach(m, "uc_far", over & unreliable & (then.msn != now.msn) & (moved > HALF) & (transport.psn != now.epsn))
        reach(m, "uc_receive", over & unreliable & job.complete & ~job.fatal & ~validator.begin)
        reach(m, "uc_ring", over & unreliable & ring & job.complete)
        reach(m, "uc_too_long", over & unreliable & self.too_long & job.silent)
        reach(m, "sequence_nak", over & (job.syndrome == AethSyndrome.NAK_SEQUENCE) & is_nak & now.nak_sent)
        return m


def test_it_holds(tmp_path):
    verdict = prove(OnePacket(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(OnePacket(), tmp_path, DEPTH).holds


def test_a_read_of_more_than_half_of_all_packets_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(read_atomic_check, "LONGEST", (1 << 32) - 1)
    verdict = prove(OnePacket(), tmp_path, DEPTH)
    assert verdict.names == ["epsn_forward"]
