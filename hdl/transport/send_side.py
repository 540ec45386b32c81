"""The requesting side of the engine: instances and connections, no logic."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..dma.engine import StructureRead
from ..dma.structure import link_by_words
from ..memory.key_operations import KEY_CLIENT
from ..queue.fetch_link import link_fetcher
from ..queue.ring import PushDoorbell, PushWord, RingIndex, send_batch
from ..queue.wqe_fetcher import RingPrefetcher
from ..stream.arbiter import FirstArbiter
from ..stream.connections import connect_signals, connect_via, link
from ..stream.fifo import Queue
from ..stream.in_flight import InFlight
from ..stream.packet import PacketBeat
from ..stream.ready import ReadyQueue
from ..stream.slice import Slice
from ..stream.transfer import AccessRequest, AttributeWrite, Completion, Done, QpControl, QpError, ReadRequest
from ..stream.words import WORD_BITS, SavedWord
from .common.layouts import Departed, Failure, ResponseJob, TxDescriptorKind, UdRoute
from .completer.completer import Completer
from .completer.response_receiver import ResponseReceiver
from .receive.layouts import ReadProgress, ReceivedResponse
from .requester.requester import Requester
from .requester.requester_outputs import Reply
from .timers.timers import Timers
from .tx.transmit_merge import Source, TransmitMerge

__all__ = ["PARTS", "SendSide", "send_side_members"]

PARTS = ("requester", "response_receiver", "completer", "timers", "sq_fetch")
"""Those with state of a QP."""

REQUEST_BITS = 16
"""Of a request's number, see :class:`verbena.hdl.stream.in_flight.InFlight`."""


def send_side_members(data_width):
    """Members that :class:`SendSide` and :class:`.respond_only.RespondOnly` have both."""
    token = stream.Signature(QpControl)
    return {
        "doorbell": In(stream.Signature(PushDoorbell)),
        "push": In(stream.Signature(PushWord)),
        "requester": In(token),
        "completer": In(token),
        "sq_fetch": In(token),
        "requester_done": Out(1),
        "response_receiver_done": Out(1),
        "requester_reply": Out(stream.Signature(Reply)),
        "completer_reply": Out(stream.Signature(data.StructLayout({"index": 16}))),
        "completer_error": Out(stream.Signature(QpError)),
        "tick": In(32),
        "rest": In(1),
        "next_due": Out(32),
        "read_atomic_responder": In(Source),
        "o": Out(Source),
        "crowded": In(1),
        "inline": Out(stream.Signature(PacketBeat(data_width))),
        "failed": In(stream.Signature(Failure)),
        "departed": In(stream.Signature(Departed)),
        "token_done": In(1),
        "response": In(stream.Signature(ReceivedResponse)),
        "settled": In(1),
        "read_progress": Out(ReadProgress),
        "read_progress_en": Out(1),
        "access": Out(stream.Signature(AccessRequest)),
        "done": In(stream.Signature(Done)),
        "completion": Out(stream.Signature(Completion)),
        "count_drop_response": Out(1),
    }


class SendSide(wiring.Component):
    """Send queues, from the doorbell to the completion: prefetcher, scheduler, requester, response receiver, completer,
    timers.

    What each part does, and in how many cycles, is its own contract.

    Parameters
    ----------
    config : Config

    Members
    -------
    attribute, attribute_en : ``AttributeWrite``
        The command block's broadcast.
    doorbell, push : streams of ``PushDoorbell`` and ``PushWord``
    requester, completer, sq_fetch : streams of ``QpControl``
        Tokens for the part of that name.
    requester_done, response_receiver_done : 1
        Strobes: a token has come out at the end.
    requester_reply : stream of ``{psn, index}``, completer_reply : stream of ``{index}``
        Answers to QUERY.
    completer_error : stream of ``QpError``
    tick, next_due : 32
        Of the :class:`.timers.Timers`.
    rest : 1
        From reset on: the timers rest, as what they know is of a former life.
    read_atomic_responder : ``Source``
        Responses that are to depart.
    o : ``Source``
        TX descriptors and their runs, requests and responses.
    crowded : 1
        TX descriptors enough wait for their payload.
    inline : stream of ``PacketBeat``
    route : stream of ``UdRoute``
        With ``config.ipv6``.
    failed : stream of ``Failure``
        TX descriptors that came to nothing, because their payload could not be read.
    departed : stream of ``Departed``
        Messages of UC that are out.
    token_done : 1
        A REQUEST_TOKEN has come out of the transmitter.
    response : stream of ``ReceivedResponse``; access : stream of ``AccessRequest``; done : stream of ``Done``
        Responses received, their runs, with ``tag`` 1, and what came of these.
    settled, read_progress, read_progress_en : 1, ``ReadProgress``, 1
        Of the :class:`.completer.response_receiver.ResponseReceiver`.
    completion : stream of ``Completion``
    sq, entry : ``StructureRead``
        Send WQEs; scatter/gather entries of READs.
    timers : stream of ``QpControl``; closed, closed_qp : 1, 12
        With ``config.swaps``: SAVE and LOAD; and the QP that is away, or going.
    operation, operated
        With ``config.key_operations``, of the requester.
    left, room : 5, 1
        With ``config.swaps``: of the timers, and of the response receiver.
    request_done, sending_qp, sending : 1, 12, 1
        With ``config.swaps``: of the transmitter; and whether this QP has requests between here and there.
    requester_saved, requester_loaded, …
        With ``config.swaps``, of each of :data:`PARTS`: streams of ``SavedWord`` and of words.
    count_… : 1
        Counters, see :data:`verbena.hdl.abi.counters.COUNTERS`.

    Attributes
    ----------
    readers : dict of str to tuple of int
        Structures that are read, see :class:`verbena.hdl.dma.engine.DmaEngine`.
    """

    def __init__(self, config):
        self.config = config
        self.readers = {
            "sq": (config.send_reads, send_batch(config.wqe_bytes), config.send_wqe_beats),
            "entry": (1, config.wqe_bytes),
        }
        counts = ("pushes", "push_fetches", "stall_window", "rx_acks", "rx_naks", "retries", "implied_naks", "timeouts")
        super().__init__(
            send_side_members(config.data_width)
            | {"attribute": In(AttributeWrite), "attribute_en": In(1)}
            | {name: Out(StructureRead(config.data_width)) for name in self.readers}
            | {f"count_{name}": Out(1) for name in counts}
            | ({"route": Out(stream.Signature(UdRoute))} if config.ipv6 else {})
            | (KEY_CLIENT if config.key_operations else {})
            | (self._swapped() if config.swaps else {})
        )

    @staticmethod
    def _swapped():
        """What the parts with state of a QP give away, and get back, and what the timers must know besides."""
        timers = {"timers": In(stream.Signature(QpControl)), "closed": In(1), "closed_qp": In(12)}
        timers |= {"left": Out(5), "room": Out(1), "request_done": In(1), "sending_qp": In(12), "sending": Out(1)}
        return (
            timers
            | {f"{part}_saved": Out(stream.Signature(SavedWord)) for part in PARTS}
            | {f"{part}_loaded": In(stream.Signature(WORD_BITS)) for part in PARTS}
        )

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.fetcher = fetcher = RingPrefetcher.send(
            c.data_width, c.slots, c.send_blocks, c.send_quota, c.wqe_bytes, reads=c.send_reads, swaps=c.swaps
        )
        m.submodules.requester = requester = Requester(
            c.slots,
            c.window,
            c.data_width,
            c.send_blocks,
            uc=c.uc,
            ud=c.ud,
            raw=c.raw_packets,
            swaps=c.swaps,
            gids=c.ipv6,
            keys=c.key_operations,
            wqe_bytes=c.wqe_bytes,
        )
        m.submodules.merge = merge = TransmitMerge()
        m.submodules.response_receiver = response_receiver = ResponseReceiver(
            c.slots, c.data_width, c.read_targets, wqe_bytes=c.wqe_bytes, swaps=c.swaps
        )
        m.submodules.completer = completer = Completer(c.slots, c.window, swaps=c.swaps, keys=c.key_operations)
        m.submodules.timers = timers = Timers(c.slots, swaps=c.swaps)

        # -- Doorbell, fetch, turn.
        m.submodules.turns = turns = FirstArbiter(range(c.slots), 4 if c.key_operations else 3)
        connect(m, flipped(self.doorbell), fetcher.doorbell)
        connect(m, flipped(self.push), fetcher.push)
        resumed = (requester.resumed,) if c.key_operations else ()
        for source, turn in zip((fetcher.arrived, completer.ready, *resumed, requester.again), turns.i, strict=True):
            link(m, source, turn)
        connect_via(m, "scheduler", ReadyQueue(c.slots), turns.o, requester.ready)
        link_fetcher(m, "sq", fetcher, requester, flipped(self.sq), c.data_width)
        link(m, requester.rewind, fetcher.rewind)
        connect_via(m, "rewound_slice", Slice(RingIndex), fetcher.rewound, requester.rewound)

        # -- Packet.
        link(m, requester.access, merge.request.access)
        link(m, requester.packet, merge.request.packet)
        connect(m, flipped(self.read_atomic_responder), merge.response)
        connect(m, merge.access, flipped(self.o.access))
        connect(m, merge.packet, flipped(self.o.packet))
        m.d.sync += requester.hold.eq(self.crowded)  # it comes from far
        connect(m, requester.inline, flipped(self.inline))
        if c.ipv6:
            connect(m, requester.route, flipped(self.route))

        # -- What becomes of it.
        connect_via(m, "entry_slice", Slice(ReadRequest), response_receiver.read, flipped(self.entry.request))
        link_by_words(m, "entry_beats", flipped(self.entry.data), response_receiver.data, c.wqe_bytes)
        connect(m, flipped(self.response), response_receiver.response)
        connect_signals(m, self, response_receiver, "settled")
        connect_signals(m, response_receiver, self, "read_progress", "read_progress_en")
        connect(m, response_receiver.access, flipped(self.access))
        connect(m, flipped(self.done), completer.done)
        link(m, requester.reads, response_receiver.reads)
        m.d.comb += requester.read_allowance.eq(response_receiver.allowance)
        link(m, requester.outstanding, completer.outstanding)
        link(m, requester.failed, completer.failed_requester)
        link(m, flipped(self.failed), completer.failed_transmitter)
        link(m, flipped(self.departed), completer.departed)
        link(m, requester.flush, completer.flush)
        if c.key_operations:
            connect(m, requester.operation, flipped(self.operation))
            connect(m, flipped(self.operated), requester.operated)
            link(m, requester.local, completer.local)
        link(m, completer.retry, requester.retry)
        link(m, timers.fired, completer.fired)
        connect_signals(m, requester, completer, "sent", "sent_en")
        connect_signals(m, requester, timers, "sent", "sent_en")
        connect_signals(m, completer, requester, "progress")
        connect_signals(m, completer, timers, "watch")
        m.d.comb += [
            requester.progress_qp.eq(completer.context_qp),
            requester.progress_en.eq(completer.context_en),
            timers.watch_qp.eq(completer.context_qp),
            timers.watch_en.eq(completer.context_en),
        ]
        connect_via(
            m,
            "response_jobs",
            Queue(ResponseJob, self.config.placing, sparse=True),
            response_receiver.job,
            completer.job,
        )
        # Who completes goes on while a CQE is written.
        connect_via(m, "completion_slice", Slice(Completion), completer.completion, flipped(self.completion))

        # -- Tokens, timers, attributes, counters.
        parts = {"sq_fetch": fetcher, "requester": requester, "completer": completer}
        for name, part in parts.items():
            connect(m, flipped(getattr(self, name)), part.control)
        connect(m, requester.reply, flipped(self.requester_reply))
        connect(m, completer.reply, flipped(self.completer_reply))
        connect(m, completer.error, flipped(self.completer_error))
        m.d.comb += [self.requester_done.eq(self.token_done), self.response_receiver_done.eq(completer.token_done)]
        if c.swaps:
            connect(m, flipped(self.timers), timers.control)
            connect_signals(m, self, timers, "closed", "closed_qp")
            connect_signals(m, timers, self, "left")
            works = [(requester.busy, requester.busy_qp)]
            if c.key_operations:  # these have no TX descriptor
                works += zip(requester.operating, requester.operating_qp, strict=True)
            m.submodules.in_flight = in_flight = InFlight(c.slots, REQUEST_BITS, works=len(works))
            descriptor = requester.packet
            for number, (busy, qp) in enumerate(works):
                m.d.comb += [in_flight.busy[number].eq(busy), in_flight.busy_qp[number].eq(qp)]
            m.d.comb += [
                in_flight.enter.eq(
                    descriptor.valid & descriptor.ready & (descriptor.payload.kind == TxDescriptorKind.REQUEST)
                ),
                in_flight.enter_qp.eq(descriptor.payload.qp),
                in_flight.done.eq(self.request_done),
                in_flight.qp.eq(self.sending_qp),
                self.sending.eq(in_flight.some),
            ]
            connect_signals(m, response_receiver, self, "room")
            connect_signals(m, response_receiver, completer, "passed")
            connect_signals(m, completer, response_receiver, "job_done")
            swapped = zip(PARTS, (requester, response_receiver, completer, timers, fetcher), strict=True)
            for name, part in swapped:
                connect(m, part.saved, flipped(getattr(self, f"{name}_saved")))
                connect(m, flipped(getattr(self, f"{name}_loaded")), part.loaded)
        connect_signals(m, self, timers, "tick", "rest")
        connect_signals(m, timers, self, "next_due")
        for part in (*parts.values(), response_receiver, timers):
            if "attribute" in part.signature.members:
                connect_signals(m, self, part, "attribute", "attribute_en")
            connect_signals(m, part, self, *(name for name in part.signature.members if name.startswith("count_")))
        return m
