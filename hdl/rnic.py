"""The engine: instances and connections, no logic."""

import functools
import operator

from amaranth.hdl import Cat, Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abi.counters import COUNTERS
from .abi.registers import ADDRESS_WIDTH
from .abi.tables import MPT, MTT
from .abi.wqe import WQE_MAX
from .control.activity import Activity
from .control.commands import Commands
from .control.counters import Counters
from .control.port_state import PortState
from .control.registers import Registers
from .dma.axi import Axi4, AxiLite
from .dma.engine import DmaEngine
from .ethernet.station import Service, Station
from .memory.access import AccessUnit
from .queue.completion import CompletionWriter
from .queue.event import EventWriter
from .queue.ring import BATCH, RingIndex
from .queue.wqe_fetcher import RingPrefetcher
from .roce.depacketizer import Depacketizer
from .roce.packet_header import TransmitHeader
from .roce.packetizer import Packetizer
from .stream.arbiter import FirstArbiter, PacketArbiter, StreamArbiter
from .stream.connections import link, through, told
from .stream.fifo import Queue
from .stream.packet import PacketBeat
from .stream.ready import ReadyQueue
from .stream.router import TagRouter
from .stream.run_arbiter import RunArbiter
from .stream.skid import Skid
from .stream.slice import Slice
from .stream.transfer import Completion, Done, Event, ReadRequest
from .transport.acknowledger import Acknowledger
from .transport.collector import Collector
from .transport.completer import Completer
from .transport.departure_queue import DepartureQueue
from .transport.layouts import Job, ResponseJob
from .transport.lookup import Lookup
from .transport.replier import Replier
from .transport.requester import Requester
from .transport.respond_only import RespondOnly
from .transport.responder import Responder
from .transport.timers import VISIT, Timers
from .transport.transmit_merge import TransmitMerge
from .transport.transmitter import Transmitter

__all__ = ["Rnic"]


RUN_AHEAD = 336
"""Beats of request payload that may wait: a translation and the payload, each with the memory's latency, and the way of
a packet. More would be sent in vain whenever a queue has to go back."""

WQE_BEATS = 256
"""Beats of send WQEs that may be on their way: 32 messages at 64 bits, 11 cycles each, cover 350 cycles."""

RECEIVE_BEATS = 128
"""Beats of receive WQEs on their way, of which a quarter is kept free for a batch of 256 bytes."""

READERS = {
    "sq": (WQE_BEATS, BATCH),
    "rq": (RECEIVE_BEATS, BATCH),
    "mpt": (16, MPT.size),
    "mtt": (4, MTT.size),
    "entry": (32, WQE_MAX),
}
"""Structures that are read: beats on their way, and bytes of the largest."""

OF_REQUESTS = ("sq", "entry")
"""Those that only requests need."""

RECEIVED = 256
"""Packets received and not yet looked at: with the smallest, 11 cycles each, the time of 20 reads of host memory."""

JOBS = 16
"""Packets between their check and the answer to their last write: 11 cycles each, a write latency of 170 cycles."""


class Rnic(wiring.Component):
    """RoCEv2 engine.

    Parameters
    ----------
    config : Config
        Sizes.

    Members
    -------
    axi : AXI4 manager
        DMA; ``config.data_width`` bits of data, 64-bit addresses, 4 bits of ID (one ID a purpose, so that answers may
        come in any order between IDs).
    axil : AXI4-Lite subordinate
        Registers and doorbells, :mod:`verbena.hdl.abi.registers`.
    tx, rx : streams of ``PacketBeat``
        Ethernet frames without FCS. ``rx.ready`` is always 1: what does not fit is dropped and counted.
    link : 1
        The MAC has a link. It is told to the driver; frames pass whatever it is.
    interrupt : 1
        High while events wait in the event ring.
    service : ``Service``
        Only with ``config.udp_port``: see :class:`.ethernet.station.Service`.
    """

    def __init__(self, config):
        self.config = config
        beat = stream.Signature(PacketBeat(config.data_width))
        super().__init__(
            {
                "axi": Out(Axi4(config.data_width)),
                "axil": In(AxiLite(ADDRESS_WIDTH)),
                "tx": Out(beat),
                "rx": In(beat),
                "link": In(1),
                "interrupt": Out(1),
                **({} if config.udp_port is None else {"service": Out(Service())}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._instances(m)
        if self.config.requests:
            self._request(m)
        else:
            self._respond_only(m)
        self._transmit(m)
        self._receive(m)
        self._answer(m)
        self._complete(m)
        self._control(m)
        self._memory(m)
        self._count(m)
        return m

    def _instances(self, m):
        """The blocks, by their names in this module. Those that only requests need are left out with them."""
        c = self.config
        width, qps, requests = c.data_width, c.qps, c.requests
        readers = {name: sizes for name, sizes in READERS.items() if requests or name not in OF_REQUESTS}
        blocks = {
            "registers": Registers(data_width=width, qps=qps, cqs=c.cqs, window=c.window, requests=requests),
            "commands": Commands(qps, c.cqs),
            "counters": Counters(),
            "activity": Activity(VISIT * qps),
            "port_state": PortState(),
            "sq_fetch": requests and RingPrefetcher.send(width, qps, c.sq_area),
            "rq_fetch": RingPrefetcher.receive(width, qps, c.rq_area),
            "requester": requests and Requester(qps, c.window, width, c.sq_area),
            "replier": Replier(qps, width),
            "transmit_merge": requests and TransmitMerge(),
            "transmitter": Transmitter(qps, width),
            "packetizer": Packetizer(width),
            "depacketizer": Depacketizer(width, depth=c.receive_buffer, headers=RECEIVED),
            "station": Station(width, udp_port=c.udp_port),
            "lookup": Lookup(qps),
            "responder": Responder(qps, c.rq_area),
            "acknowledger": Acknowledger(qps),
            "collector": requests and Collector(qps, width),
            "completer": requests and Completer(qps, c.window),
            "timers": requests and Timers(qps),
            "access": AccessUnit(width, qps, mpt_sets=c.mpt_sets, mtt_sets=c.mtt_sets),
            "dma": DmaEngine(
                width, c.transmit_buffer, readers=readers, writers=("cqe", "eqe"), address_width=c.address_width
            ),
            "completions": CompletionWriter(width, c.cqs, qps),
            "events": EventWriter(width),
            "nobody": not requests and RespondOnly(),
        }
        self._blocks = {name: block for name, block in blocks.items() if block}
        for name, block in self._blocks.items():
            m.submodules[name] = block
            setattr(self, f"_{name}", block)
        m.submodules.headers = self._headers = DepartureQueue(c.headers, RUN_AHEAD * width // 8, width // 8)

    def _fetched(self, m, name, fetcher, user):
        """Connects a fetcher of WQEs with the bus and with their consumer."""
        ring = getattr(self._dma, name)
        link(m, fetcher.read, ring.request)  # from a register that nothing hurries
        # What comes is taken at once, but far from here.
        through(m, f"{name}_skid", Skid(PacketBeat(self.config.data_width)), ring.data, fetcher.data)
        told(m, user, fetcher, "status_qp", "word_addr")
        told(m, fetcher, user, "status", "word")
        through(m, f"{name}_consumed", Slice(RingIndex), user.consumed, fetcher.consumed)

    def _table(self, m, name, request, answer):
        table = getattr(self._dma, name)
        through(m, f"{name}_slice", Slice(ReadRequest), request, table.request)
        link(m, table.data, answer)

    def _request(self, m):
        """Doorbell, fetch, turn, packet, and what becomes of it."""
        c = self.config
        requester, merge, transmitter = self._requester, self._transmit_merge, self._transmitter
        completer, collector, timers = self._completer, self._collector, self._timers
        m.submodules.turns = turns = FirstArbiter(range(c.qps), 3)
        link(m, self._registers.sq, self._sq_fetch.doorbell)
        link(m, self._registers.push, self._sq_fetch.push)
        through(m, "fetched_slice", Slice(12), self._sq_fetch.arrived, turns.i[0])
        for source, turn in zip((completer.ready, requester.again), turns.i[1:]):
            link(m, source, turn)
        through(m, "scheduler", ReadyQueue(c.qps), turns.o, requester.ready)
        self._fetched(m, "sq", self._sq_fetch, requester)
        link(m, requester.rewind, self._sq_fetch.rewind)
        link(m, self._sq_fetch.rewound, requester.rewound)

        for block, port in ((requester, merge.request), (self._replier, merge.response)):
            link(m, block.access, port.access)
            link(m, block.packet, port.packet)
        m.d.comb += requester.hold.eq(self._headers.crowded)
        link(m, requester.inline, transmitter.inline)

        self._table(m, "entry", collector.read, collector.data)
        link(m, requester.reads, collector.reads)
        link(m, requester.outstanding, completer.outstanding)
        link(m, requester.failed, completer.failed_requester)
        link(m, transmitter.failed, completer.failed_transmitter)
        link(m, requester.flush, completer.flush)
        link(m, completer.retry, requester.retry)
        link(m, timers.fired, completer.fired)
        told(m, requester, completer, "sent", "sent_en", "progress_qp")
        told(m, completer, requester, "progress")
        told(m, requester, timers, "sent", "sent_en")
        told(m, timers, completer, "watch_qp")
        told(m, completer, timers, "watch")
        through(m, "response_jobs", Queue(ResponseJob, JOBS, sparse=True), collector.job, completer.job)
        for block in (self._registers, self._activity):
            told(m, timers, block, "next_due")
        told(m, self._registers, timers, "tick")

        commands = self._commands
        for name in ("requester", "collector", "completer", "sq_fetch"):
            link(m, getattr(commands, name), self._blocks[name].control)
        for name in ("requester", "completer"):
            link(m, self._blocks[name].reply, getattr(commands, f"{name}_reply"))
        m.d.comb += [
            commands.requester_done.eq(transmitter.token_done),
            commands.collector_done.eq(completer.token_done),
        ]
        link(m, completer.error, commands.completer_error)

    def _respond_only(self, m):
        """What a send queue would hear, nobody does."""
        nobody, commands = self._nobody, self._commands
        link(m, self._registers.sq, nobody.doorbell)
        link(m, self._registers.push, nobody.push)
        link(m, self._transmitter.failed, nobody.failed)
        for name in ("requester", "collector", "completer", "sq_fetch"):
            link(m, getattr(commands, name), getattr(nobody, name))
        for name in ("requester", "completer"):
            link(m, getattr(nobody, f"{name}_reply"), getattr(commands, f"{name}_reply"))
        told(m, nobody, commands, "requester_done", "collector_done")
        m.d.comb += [block.next_due.eq(Const(-1, 32)) for block in (self._registers, self._activity)]

    def _transmit(self, m):
        """Departure, verdict, payload, wire."""
        c = self.config
        access, transmitter, dma = self._access, self._transmitter, self._dma
        source = self._transmit_merge if c.requests else self._replier
        link(m, source.access, access.transmit.request)
        link(m, source.packet, self._headers.i)
        link(m, self._headers.o, transmitter.packet)
        link(m, access.transmit.verdict, transmitter.verdict)

        link(m, access.transmit.piece, dma.transmit_piece)
        beat = PacketBeat(c.data_width)
        through(m, "transmit_skid", Skid(beat), dma.transmit_payload, transmitter.payload)
        told(m, dma, transmitter, "soon")
        link(m, dma.atomic_payload, transmitter.atomic)
        link(m, self._replier.inline, transmitter.replay)
        through(m, "header_slice", Slice(TransmitHeader), transmitter.header, self._packetizer.header)
        link(m, transmitter.o, self._packetizer.payload)
        m.submodules.tx_arbiter = tx = PacketArbiter(c.data_width, 2)
        link(m, self._packetizer.o, tx.i[0])
        link(m, self._station.o, tx.i[1])
        link(m, tx.o, flipped(self.tx))

    def _receive(self, m):
        """Wire, lookup, and one run for each packet, in their order."""
        depacketizer, lookup, responder = self._depacketizer, self._lookup, self._responder
        collector = self._collector if self.config.requests else self._nobody
        link(m, flipped(self.rx), depacketizer.i)
        # The station looks on: what it does with a frame cannot hold up the next one.
        m.d.comb += [self._station.i.eq(self.rx.payload), self._station.i_valid.eq(self.rx.valid)]
        link(m, depacketizer.header, lookup.header)
        told(m, depacketizer, lookup, "soon")
        told(m, depacketizer, responder, "soon")
        link(m, lookup.request, responder.request)
        link(m, lookup.response, collector.response)
        link(m, self._registers.rq, self._rq_fetch.doorbell)
        through(m, "arrived_slice", Slice(12), self._rq_fetch.arrived, responder.arrived)

        m.submodules.runs = runs = RunArbiter(2)
        link(m, responder.access, runs.i[0])
        link(m, collector.access, runs.i[1])
        m.d.comb += runs.soon.eq(Cat(lookup.request.valid, lookup.response.valid))
        link(m, runs.o, self._access.receive.request)
        link(m, self._access.receive.piece, self._dma.receive_piece)
        beat = PacketBeat(self.config.data_width)
        through(m, "payload_skid", Skid(beat), depacketizer.payload, self._dma.receive_payload)
        m.submodules.done_router = router = TagRouter(Done)
        through(m, "done_slice", Slice(Done), self._dma.done, router.i)
        through(m, "acknowledger_done", Slice(Done), router.o[0], self._acknowledger.done)
        link(m, router.o[1], (self._completer if self.config.requests else self._nobody).done)
        through(m, "jobs", Queue(Job, JOBS, sparse=True), responder.job, self._acknowledger.job)

    def _answer(self, m):
        """Acknowledgements, READ responses and atomics."""
        responder, replier, acknowledger = self._responder, self._replier, self._acknowledger
        told(m, responder, replier, "entry", "entry_en", "served_qp")
        told(m, replier, responder, "served")
        link(m, acknowledger.release, replier.release)
        link(m, self._transmitter.answered, replier.answered_i)
        link(m, replier.answered_o, acknowledger.answered)
        link(m, acknowledger.ack, self._transmitter.ack)
        link(m, replier.operands, self._dma.operands)
        link(m, self._dma.result, replier.result)

    def _complete(self, m):
        """CQEs and events."""
        # Who completes goes on while a CQE is written.
        m.submodules.acknowledger_completion = first = Slice(Completion)
        link(m, self._acknowledger.completion, first.i)
        source = first.o
        if self.config.requests:
            m.submodules.completion_arbiter = completion_arbiter = StreamArbiter(Completion, 2)
            link(m, first.o, completion_arbiter.i[0])
            second = Slice(Completion)
            through(m, "completer_completion", second, self._completer.completion, completion_arbiter.i[1])
            source = completion_arbiter.o
        through(m, "completion_slice", Slice(Completion), source, self._completions.completion)
        told(m, self._acknowledger, self._completions, "soon_cq")
        m.submodules.event_arbiter = event_arbiter = StreamArbiter(Event, 3)
        through(m, "armed_slice", Slice(Event), self._completions.event, event_arbiter.i[0])
        for source, turn in zip((self._commands, self._port_state), event_arbiter.i[1:]):
            link(m, source.event, turn)
        link(m, event_arbiter.o, self._events.event)

    def _control(self, m):
        """Registers, commands, tokens, attributes and configuration."""
        registers, commands, counters, activity = self._registers, self._commands, self._counters, self._activity
        connect(m, axil=flipped(self.axil), registers=registers.axil)
        link(m, registers.command, commands.command)
        link(m, registers.counter_addr, counters.addr)
        link(m, counters.data, registers.counter_data)
        told(m, commands, registers, "mailbox_addr", "mailbox_w_data", "mailbox_w_en")
        told(m, registers, commands, "mailbox_r_data")
        told(m, activity, registers, "idle")
        m.d.comb += [
            registers.command_result.eq(commands.result),
            registers.link.eq(self.link),
            self._port_state.link.eq(self.link),
            activity.read_start.eq(self.axi.arvalid & self.axi.arready),
            activity.read_end.eq(self.axi.rvalid & self.axi.rready & self.axi.rlast),
            activity.write_start.eq(self.axi.awvalid & self.axi.awready),
            activity.write_end.eq(self.axi.bvalid & self.axi.bready),
            activity.busy.eq(self.tx.valid | self.rx.valid | registers.command.valid),
            self.interrupt.eq(self._events.interrupt & registers.interrupt_enable),
        ]

        link(m, commands.responder, self._responder.control)
        link(m, commands.rq_fetch, self._rq_fetch.control)
        link(m, self._responder.reply, commands.responder_reply)
        m.d.comb += [
            commands.responder_done.eq(self._acknowledger.token_done),
            commands.replier_done.eq(self._transmitter.response_token_done),
        ]
        link(m, self._acknowledger.error, commands.responder_error)
        link(m, commands.cq_control, self._completions.control)
        link(m, commands.invalidate, self._access.invalidate)
        link(m, registers.consumer, self._completions.consumer)
        link(m, registers.arm, self._completions.arm)
        for block in self._blocks.values():
            if "attribute" in block.signature.members:
                kind = "cq" if block is self._completions else "qp"
                m.d.comb += [
                    block.attribute.eq(getattr(commands, f"{kind}_attribute")),
                    block.attribute_en.eq(getattr(commands, f"{kind}_attribute_en")),
                ]
        for block in (self._packetizer, self._depacketizer, self._station):
            told(m, registers, block, "mac", "ip")
        told(m, registers, self._station, "enable", "neighbour_ip", "neighbour_ask")
        told(m, self._station, registers, "neighbour_mac", "neighbour_valid")
        if self.config.udp_port is not None:
            connect(m, self._station.service, flipped(self.service))
        told(m, registers, self._access, "mpt_base", "mpt_log_size")
        told(m, registers, self._events, "eq_base", "eq_log_size", "eq_reset", "eq_consumer")

    def _memory(self, m):
        """The engine's own structures, and the bus."""
        dma, access = self._dma, self._access
        self._fetched(m, "rq", self._rq_fetch, self._responder)
        self._table(m, "mpt", access.mpt_read, access.mpt_data)
        self._table(m, "mtt", access.mtt_read, access.mtt_data)
        link(m, self._completions.write, dma.cqe.request)  # from a register that nothing hurries
        through(m, "eqe_slice", Slice(ReadRequest), self._events.write, dma.eqe.request)
        for source, structure in ((self._completions, dma.cqe), (self._events, dma.eqe)):
            link(m, source.data, structure.data)
            link(m, structure.done, source.done)
        connect(m, dma.axi, flipped(self.axi))

    def _count(self, m):
        """Every ``count_…`` output of a block goes to the counter of that name."""
        sources = {name: [] for name in COUNTERS}
        for block in self._blocks.values():
            if block is not self._counters:
                for name in block.signature.members:
                    if name.startswith("count_"):
                        sources[name.removeprefix("count_")].append(getattr(block, name))
        for name, strobes in sources.items():
            # A counter of cycles counts a cycle once, whoever waits in it; one that is wider adds its sources.
            merge = operator.or_ if COUNTERS[name].width == 1 else operator.add
            if strobes:
                m.d.comb += getattr(self._counters, f"count_{name}").eq(functools.reduce(merge, strobes))
