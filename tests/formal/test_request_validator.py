"""The responder's arithmetic, proven for one packet, flush or token of any kind in any state: so for all of them."""

from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.contexts import QpState
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.queue.wqe_fetcher import RingStatus
from verbena.hdl.transport.common.aeth import NO_CREDITS, AethSyndrome
from verbena.hdl.transport.common.psn import PSN_BITS, psn_before
from verbena.hdl.transport.receive.layouts import OPENING, Message, ReceivedRequest, SharedWqe, Work
from verbena.hdl.transport.responder import read_atomic_check
from verbena.hdl.transport.responder.request_validator import RequestValidator

PLACE_MAX = 4
DEPTH = 12
HALF = 1 << (PSN_BITS - 1)
RECEIVING = (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)


class OnePacket(wiring.Component):
    """A request validator, driven once as the responder does it: with a packet, a flush, or a token, which is RESET or
    passes.

    Assumed: the packet, the QP's context and the ring's count stay while it works; the buffer takes 2 to 4 cycles, and
    objects to a WRITE or a SEND only; of UC there is nothing else; in the state, not more than 16 entries are in the
    response ring, and, if there are no duplicates among them, not more than allowed. The last is claimed of the state
    that follows, too: it is no restriction. Without a shared receive queue there is nothing of one in the state; with
    one, a SEND of which a part has come has a WQE, unless the QP has failed, and only a QP in ERR has said that it
    takes no more: that is claimed of what follows, too.
    """

    def __init__(self):
        super().__init__(
            {
                "given": In(
                    data.StructLayout({"request": ReceivedRequest, "served": 8, "head": 16, "id": 16, "resets": 1})
                ),
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
        srq = here.request.attributes.srq
        packet, flush, token = (Signal(name=name) for name in ("packet", "flush", "token"))
        has, takes, found = Signal(), Signal(), Signal()  # the last: the QP's own ring was set to its WQE now
        m.d.comb += [
            packet.eq(here.request.work == Work.PACKET),
            flush.eq(here.request.work == Work.FLUSH),
            token.eq(here.request.work == Work.CONTROL),
            has.eq((now.wqe == SharedWqe.HELD) | (now.wqe == SharedWqe.FOUND)),
            takes.eq(srq & packet & reduce(or_, (transport.opcode[:5] == opens for opens in OPENING)) & ~has),
            validator.request.eq(here.request),
            validator.takes.eq(takes),
            validator.index.eq(Mux(takes, here.head, now.index)),
            validator.id.eq(here.id),
            validator.flush.eq(flush),
            validator.lapse.eq(srq & has & here.resets),
            validator.served.eq(here.served),
            validator.status.eq(self.status),
            validator.room.eq(self.room),
            validator.misfit.eq(self.misfit),
            validator.too_long.eq(self.too_long),
            validator.byte_length.eq(self.byte_length),
        ]
        with m.If(found):
            m.d.comb += validator.request.state.wqe.eq(SharedWqe.FOUND)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += here.eq(self.given)
                m.next = "LOOK"
                with m.If(self.given.request.work == Work.CONTROL):
                    m.next = "TOKEN"
            with m.State("TOKEN"):
                m.d.comb += validator.token.eq(1)
                m.next = "PLACE"
            with m.State("LOOK"):
                m.d.sync += broken.eq(self.status.error)
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.comb += validator.decide.eq(1)
                m.next = "PLACE"
                with m.If(packet & validator.wait):
                    m.next = "LOOK"
                    with m.If(validator.find):
                        m.d.sync += found.eq(1)
                with m.If(flush & ~validator.flushable):
                    m.next = "LEAVE"
            with m.State("PLACE"):
                m.d.comb += validator.place.eq(1)
                m.d.sync += places.eq(places + 1)
                with m.If((places != 0) & (~self.more | (places == PLACE_MAX - 1))):
                    m.next = "OVER"
            with m.State("LEAVE"):  # there is nothing to flush
                pass
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
        assume(m, packet | ~(unreliable | here.request.datagram))
        assume(m, packet | flush | token)
        assume(m, srq | (now.wqe == SharedWqe.NONE))
        assume(m, (now.wqe != SharedWqe.TOLD) | (attributes.state == QpState.ERR))
        ended = now.dead | (attributes.state == QpState.ERR)
        assume(m, ~srq | (now.message != Message.SEND) | has | ended)

        def claims_of_all(name, condition):
            claim(m, name, ~over | condition)

        def claims(name, condition):
            claims_of_all(name, token | condition)

        claims("epsn_forward", unreliable | (moved <= HALF))
        claims("epsn_by_its_packet", unreliable | (moved == 0) | (transport.psn == now.epsn))
        claims("msn_by_one", (then.msn == now.msn) | ((then.msn == (now.msn + 1)[:24]) & (unreliable | (moved != 0))))
        # With a shared receive queue the index means something only while the QP has a WQE.
        one_more = (then.index == (now.index + 1)[:16]) & validator.consume
        claims("index_by_one", srq | (then.index == now.index) | one_more)
        claims("ring_bounded", (ringed <= 16) & (then.mixed | (ringed <= limit) | (ringed == entries)))
        claims("dead_stays", ~now.dead | (then.dead & ~moved.any() & ~job.fatal & ~job.acknowledge & ~job.release))
        claims("ack_old", ~is_ack | psn_before(job.psn, then.epsn))
        claims("nak_expected", ~is_nak | ((job.psn == then.epsn) & (moved == 0)))
        claims_of_all("one_answer", job.acknowledge + job.release + job.silent + job.token + job["last"] <= 1)
        claims("flush_is_no_packet", packet | ((moved == 0) & (then.msn == now.msn) & ~job.acknowledge & ~job.silent))
        claims_of_all("token_leaves_nothing", ~token | (job.token & (then.as_value() == 0) & ~job.fatal))

        # -- Receive WQEs, and those of shared receive queues.
        keeps = (then.wqe == SharedWqe.HELD) | (then.wqe == SharedWqe.FOUND)
        claims_of_all("completion_of_a_wqe", ~srq | ~job.complete | has | validator.take)
        claims_of_all("completed_by_its_number", ~job.complete | (job.wqe_index == Mux(takes, here.id, now.index)))
        claims_of_all("consumed_if_complete", job.complete == validator.consume)
        claims_of_all("taken_by_who_has_none", ~validator.take | (srq & packet & takes & ~has))
        claims("taken_and_held_or_complete", ~validator.take | job.complete | (then.wqe == SharedWqe.HELD))
        claims("held_by_its_number", ~validator.take | ((then.index == here.id) & (job.wqe_index == here.id)))
        claims("held_until_complete", ~has | job.complete | (keeps & (then.index == now.index)))
        claims(
            "found_until_complete",
            ~(found | (now.wqe == SharedWqe.FOUND)) | job.complete | (then.wqe == SharedWqe.FOUND),
        )
        claims("nothing_once_complete", ~srq | ~job.complete | (then.wqe == SharedWqe.NONE))
        claims("send_with_a_wqe", ~srq | (then.message != Message.SEND) | keeps | ended | then.dead)
        claims("held_by_who_took_it", ~keeps | has | validator.take)
        claims("last_in_err_with_nothing", ~job["last"] | (flush & srq & ~has & (attributes.state == QpState.ERR)))
        claims("last_once", ~job["last"] | ((now.wqe == SharedWqe.NONE) & (then.wqe == SharedWqe.TOLD)))
        claims("told_by_last", (then.wqe != SharedWqe.TOLD) | job["last"] | (now.wqe == SharedWqe.TOLD))
        claims("told_takes_nothing", (now.wqe != SharedWqe.TOLD) | ~(validator.take | job.complete | job["last"]))
        claims("told_stays", (now.wqe != SharedWqe.TOLD) | (then.wqe == SharedWqe.TOLD))
        claims("flush_in_err", ~flush | (attributes.state == QpState.ERR))
        claims("nothing_shared_without", srq | ((then.wqe == SharedWqe.NONE) & ~validator.take & ~job["last"]))
        claims(
            "not_ready_takes_nothing",
            ~is_nak | (job.syndrome[5:7] != AethSyndrome.RNR >> 5) | ~(validator.take | job.complete),
        )
        claims("ring_gives_nothing", ~(takes & ring) | ~(validator.take | job.complete))
        claims("credits_of_none", ~srq | ~is_ack | (job.syndrome == NO_CREDITS))
        claims_of_all("lapse_completes", ~token | (job.complete == validator.lapse))

        def claims_of_uc(name, condition):
            claims(f"uc_{name}", ~unreliable | condition)

        claims_of_uc("no_answer", ~(job.acknowledge | job.release))
        claims_of_uc("dead_by_ring", now.dead | ~(then.dead | job.fatal) | (then.dead & ring))
        claims_of_uc("epsn_behind_packet", ~lives | then.dead | (then.epsn == (transport.psn + 1)[:PSN_BITS]))
        claims_of_uc("nothing_else_moves_epsn", lives | (moved == 0))
        claims_of_uc("index_by_message", (then.index == now.index) | whole | then.dead | srq)
        claims_of_uc("dropped_takes_nothing", ~job.silent | ~(validator.take | job.complete))
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
        held = then.wqe == SharedWqe.HELD
        reach(m, "shared_taken", over & validator.take & held & (then.message == Message.SEND))
        reach(m, "shared_only", over & validator.take & job.complete & ~validator.write)
        reach(m, "shared_write", over & validator.take & job.complete & validator.write & ~validator.begin)
        reach(m, "shared_too_long", over & validator.take & job.complete & job.fatal)
        reach(m, "shared_found", over & found & packet & (then.wqe == SharedWqe.FOUND) & ~validator.begin)
        reach(m, "shared_end", over & has & packet & job.complete & ~job.fatal & ~found)
        reach(m, "shared_ring", over & takes & ring & ~job.complete)
        reach(m, "shared_table", over & found & ring & job.complete)
        reach(m, "shared_not_ready", over & takes & is_nak & (job.syndrome[5:7] == AethSyndrome.RNR >> 5))
        reach(m, "shared_uc_left", over & has & unreliable & job.silent & (then.message == Message.NONE))
        reach(m, "shared_uc_again", over & has & unreliable & validator.begin & job.complete)
        reach(m, "shared_flush", over & flush & srq & job.complete)
        reach(m, "shared_last", over & job["last"])
        reach(m, "shared_lapse", over & token & job.complete)
        reach(m, "sequence_nak", over & (job.syndrome == AethSyndrome.NAK_SEQUENCE) & is_nak & now.nak_sent)
        return m


def test_it_holds(tmp_path):
    verdict = prove(OnePacket(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(OnePacket(), tmp_path, DEPTH).holds


def test_a_read_of_more_than_half_of_all_packets_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(read_atomic_check, "is_too_long", lambda length: Const(0))
    verdict = prove(OnePacket(), tmp_path, DEPTH)
    assert verdict.names == ["epsn_forward"]
