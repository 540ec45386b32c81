"""The engine: instances and connections, no logic."""

import functools
import operator

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abi.counters import COUNTERS
from .abi.registers import ADDRESS_WIDTH
from .abi.tables import MPT, MTT
from .abi.wqe import WQE_MAX
from .connections import fetched, link, through, told
from .control.activity import Activity
from .control.commands import Commands
from .control.counters import Counters
from .control.port_state import PortState
from .control.registers import Registers
from .dma.arbiter import ReadArbiter, WriteArbiter
from .dma.atomic import AtomicUnit
from .dma.axi import Axi4, AxiLite
from .dma.port import BurstRequest, WriteBeat
from .dma.reader import PayloadReader
from .dma.structure import StructureReader, StructureWriter
from .dma.writer import PayloadWriter
from .ethernet.station import Service, Station
from .memory.access import AccessUnit
from .queue.completion import CompletionWriter
from .queue.event import EventWriter
from .queue.ring import BATCH
from .queue.wqe_fetcher import RingPrefetcher
from .roce.depacketizer import Depacketizer
from .roce.packet_header import TransmitHeader
from .roce.packetizer import Packetizer
from .stream.arbiter import FirstArbiter, PacketArbiter, StreamArbiter
from .stream.fifo import Queue
from .stream.packet import PacketBeat
from .stream.ready import ReadyQueue
from .stream.router import TagRouter
from .stream.run_arbiter import RunArbiter
from .stream.skid import Skid
from .stream.slice import Slice
from .stream.transfer import Completion, Done, Event, Piece, ReadRequest
from .transport.acknowledger import Acknowledger
from .transport.collector import Collector
from .transport.completer import Completer
from .transport.departure_queue import DepartureQueue
from .transport.layouts import Job, ResponseJob
from .transport.lookup import Lookup
from .transport.replier import Replier
from .transport.requester import Requester
from .transport.responder import Responder
from .transport.timers import VISIT, Timers
from .transport.transmit_merge import TransmitMerge
from .transport.transmitter import Transmitter

__all__ = ["Rnic"]

READ_CHANNELS = ("ar", "r")

HEADERS = 32
"""Packets between their turn and their payload's arrival: 11 cycles each, they cover a memory latency of 350 cycles."""

RUN_AHEAD = 336
"""Beats of request payload that may wait: a translation and the payload, each with the memory's latency, and the way of
a packet. More would be sent in vain whenever a queue has to go back."""

RECEIVE_BEATS = 128
"""Beats of receive WQEs on their way, of which a quarter is kept free for a batch of 256 bytes."""

PIECES = 16
"""Translations ahead of the reads, and as many atomics."""

WQE_BEATS = 256
"""Beats of send WQEs that may be on their way: 32 messages at 64 bits, 11 cycles each, cover 350 cycles."""

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
        self._transmit(m)
        self._receive(m)
        self._answer(m)
        self._complete(m)
        self._control(m)
        self._memory(m)
        self._count(m)
        return m

    def _instances(self, m):
        """The blocks, by their names in this module."""
        c = self.config
        width, qps = c.data_width, c.qps
        blocks = {
            "registers": Registers(data_width=width, qps=qps, cqs=c.cqs, window=c.window),
            "commands": Commands(qps, c.cqs),
            "counters": Counters(),
            "activity": Activity(VISIT * qps),
            "port_state": PortState(),
            "sq_fetch": RingPrefetcher.send(width, qps, c.sq_area),
            "rq_fetch": RingPrefetcher.receive(width, qps, c.rq_area),
            "requester": Requester(qps, c.window, width, c.sq_area),
            "replier": Replier(qps, width),
            "transmit_merge": TransmitMerge(),
            "transmitter": Transmitter(qps, width),
            "packetizer": Packetizer(width),
            "depacketizer": Depacketizer(width, depth=c.receive_buffer, headers=RECEIVED),
            "station": Station(width, udp_port=c.udp_port),
            "lookup": Lookup(qps),
            "responder": Responder(qps, c.rq_area),
            "acknowledger": Acknowledger(qps),
            "collector": Collector(qps, width),
            "completer": Completer(qps, c.window),
            "timers": Timers(qps),
            "access": AccessUnit(width, qps, mpt_sets=c.mpt_sets, mtt_sets=c.mtt_sets),
            "payload_reader": PayloadReader(width, c.transmit_buffer),
            "payload_writer": PayloadWriter(width),
            "atomic": AtomicUnit(width),
            "completions": CompletionWriter(width, c.cqs, qps),
            "events": EventWriter(width),
        }
        for name, block in blocks.items():
            m.submodules[name] = block
            setattr(self, f"_{name}", block)
        self._blocks = blocks

    def _transmit(self, m):
        """Doorbell, fetch, turn, packet, wire."""
        c = self.config
        requester, merge, access, transmitter = self._requester, self._transmit_merge, self._access, self._transmitter
        m.submodules.turns = turns = FirstArbiter(range(c.qps), 3)
        link(m, self._registers.sq, self._sq_fetch.doorbell)
        link(m, self._registers.push, self._sq_fetch.push)
        through(m, "fetched_slice", Slice(12), self._sq_fetch.arrived, turns.i[0])
        for source, turn in zip((self._completer.ready, requester.again), turns.i[1:]):
            link(m, source, turn)
        through(m, "scheduler", ReadyQueue(c.qps), turns.o, requester.ready)
        fetched(m, "sq", self._sq_fetch, requester)
        link(m, requester.rewind, self._sq_fetch.rewind)
        link(m, self._sq_fetch.rewound, requester.rewound)

        for block, port in ((requester, merge.request), (self._replier, merge.response)):
            link(m, block.access, port.access)
            link(m, block.packet, port.packet)
        link(m, merge.access, access.transmit.request)
        headers = DepartureQueue(HEADERS, RUN_AHEAD * c.data_width // 8, c.data_width // 8)
        through(m, "headers", headers, merge.packet, transmitter.packet)
        m.d.comb += requester.hold.eq(headers.crowded)
        link(m, access.transmit.verdict, transmitter.verdict)

        # Translation runs ahead: a miss on the next page costs nothing while this one's bytes are on their way.
        m.submodules.piece_router = router = TagRouter(Piece)
        through(m, "pieces", Queue(Piece, PIECES, bypass=True, sparse=True), access.transmit.piece, router.i)
        link(m, router.o[0], self._payload_reader.piece)
        through(m, "atomic_pieces", Queue(Piece, PIECES, sparse=True), router.o[1], self._atomic.piece)

        link(m, requester.inline, transmitter.inline)
        beat = PacketBeat(c.data_width)
        through(m, "transmit_skid", Skid(beat), self._payload_reader.payload, transmitter.payload)
        told(m, self._payload_reader, transmitter, "soon")
        link(m, self._atomic.payload, transmitter.atomic)
        link(m, self._replier.inline, transmitter.replay)
        through(m, "header_slice", Slice(TransmitHeader), transmitter.header, self._packetizer.header)
        link(m, transmitter.o, self._packetizer.payload)
        m.submodules.tx_arbiter = tx = PacketArbiter(c.data_width, 2)
        link(m, self._packetizer.o, tx.i[0])
        link(m, self._station.o, tx.i[1])
        link(m, tx.o, flipped(self.tx))

    def _receive(self, m):
        """Wire, lookup, and one run for each packet, in their order."""
        depacketizer, lookup, responder, collector = self._depacketizer, self._lookup, self._responder, self._collector
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
        fetched(m, "rq", self._rq_fetch, responder)

        m.submodules.runs = runs = RunArbiter(2)
        link(m, responder.access, runs.i[0])
        link(m, collector.access, runs.i[1])
        m.d.comb += runs.soon.eq(Cat(lookup.request.valid, lookup.response.valid))
        link(m, runs.o, self._access.receive.request)
        link(m, self._access.receive.piece, self._payload_writer.piece)
        beat = PacketBeat(self.config.data_width)
        through(m, "payload_skid", Skid(beat), depacketizer.payload, self._payload_writer.payload)
        m.submodules.done_router = router = TagRouter(Done)
        through(m, "done_slice", Slice(Done), self._payload_writer.done, router.i)
        through(m, "acknowledger_done", Slice(Done), router.o[0], self._acknowledger.done)
        link(m, router.o[1], self._completer.done)
        through(m, "jobs", Queue(Job, JOBS, sparse=True), responder.job, self._acknowledger.job)
        through(m, "response_jobs", Queue(ResponseJob, JOBS, sparse=True), collector.job, self._completer.job)

    def _answer(self, m):
        """Acknowledgements, READ responses and atomics."""
        responder, replier, acknowledger = self._responder, self._replier, self._acknowledger
        told(m, responder, replier, "entry", "entry_en", "served_qp")
        told(m, replier, responder, "served")
        link(m, acknowledger.release, replier.release)
        link(m, self._transmitter.answered, replier.answered_i)
        link(m, replier.answered_o, acknowledger.answered)
        link(m, acknowledger.ack, self._transmitter.ack)
        link(m, replier.operands, self._atomic.operands)
        link(m, self._atomic.result, replier.result)

    def _complete(self, m):
        """What becomes of send queues, CQEs and events."""
        requester, completer, collector, timers = self._requester, self._completer, self._collector, self._timers
        link(m, requester.reads, collector.reads)
        link(m, requester.outstanding, completer.outstanding)
        link(m, requester.failed, completer.failed_requester)
        link(m, self._transmitter.failed, completer.failed_transmitter)
        link(m, requester.flush, completer.flush)
        link(m, completer.retry, requester.retry)
        link(m, timers.fired, completer.fired)
        told(m, requester, completer, "sent", "sent_en", "progress_qp")
        told(m, completer, requester, "progress")
        told(m, requester, timers, "sent", "sent_en")
        told(m, timers, completer, "watch_qp")
        told(m, completer, timers, "watch")

        m.submodules.completion_arbiter = completion_arbiter = StreamArbiter(Completion, 2)
        # Who completes goes on while a CQE is written.
        for name, turn in zip(("acknowledger", "completer"), completion_arbiter.i):
            through(m, f"{name}_completion", Slice(Completion), self._blocks[name].completion, turn)
        through(m, "completion_slice", Slice(Completion), completion_arbiter.o, self._completions.completion)
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
        for block in (registers, activity):
            told(m, self._timers, block, "next_due")
        told(m, registers, self._timers, "tick")
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

        for name in ("requester", "responder", "collector", "completer", "sq_fetch", "rq_fetch"):
            link(m, getattr(commands, name), self._blocks[name].control)
        for name in ("requester", "responder", "completer"):
            link(m, self._blocks[name].reply, getattr(commands, f"{name}_reply"))
        m.d.comb += [
            commands.requester_done.eq(self._transmitter.token_done),
            commands.responder_done.eq(self._acknowledger.token_done),
            commands.replier_done.eq(self._transmitter.response_token_done),
            commands.collector_done.eq(self._completer.token_done),
        ]
        link(m, self._acknowledger.error, commands.responder_error)
        link(m, self._completer.error, commands.completer_error)
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
        """The bus. A client's number is its AXI ID, and lower numbers are not better: the arbiters go round."""
        width = self.config.data_width
        reads, writes = [self._payload_reader.port], [self._payload_writer.port]
        direct = ("sq_reader", "rq_reader", "cqe_writer")  # whose requests are registers that nothing hurries

        def ask(name, source, user):
            if name in direct:
                link(m, source, user.request)
            else:
                through(m, f"{name}_slice", Slice(ReadRequest), source, user.request)

        for name, depth, largest, request, answer in (
            ("sq_reader", WQE_BEATS, BATCH, self._sq_fetch.read, self._sq_fetch.data),
            ("rq_reader", RECEIVE_BEATS, BATCH, self._rq_fetch.read, self._rq_fetch.data),
            ("mpt_reader", 16, MPT.size, self._access.mpt_read, self._access.mpt_data),
            ("mtt_reader", 4, MTT.size, self._access.mtt_read, self._access.mtt_data),
            ("entry_reader", 32, WQE_MAX, self._collector.read, self._collector.data),
        ):
            m.submodules[name] = reader = StructureReader(width, depth, max(1, 8 * largest // width))
            ask(name, request, reader)
            if name in ("sq_reader", "rq_reader"):  # which are taken at once, but far from here
                through(m, f"{name}_skid", Skid(PacketBeat(width)), reader.data, answer)
            else:
                link(m, reader.data, answer)
            reads.append(reader.port)
        for name, source in (("cqe_writer", self._completions), ("eqe_writer", self._events)):
            m.submodules[name] = writer = StructureWriter(width)
            ask(name, source.write, writer)
            link(m, source.data, writer.data)
            link(m, writer.done, source.done)
            writes.append(writer.port)
        reads.append(self._atomic.read)
        writes.append(self._atomic.write)

        m.submodules.read_arbiter = read_arbiter = ReadArbiter(width, len(reads))
        m.submodules.write_arbiter = write_arbiter = WriteArbiter(width, len(writes))
        # The slices part what a client decides from what the arbiter chooses: they stand far from each other.
        for number, (port, client) in enumerate(zip(reads, read_arbiter.client)):
            through(m, f"read_slice_{number}", Slice(BurstRequest), port.burst, client.burst)
            m.d.comb += read_arbiter.soon[number].eq(port.burst.valid)
            told(m, client, port, "valid", "data", "error", "last")
        for number, (port, client) in enumerate(zip(writes, write_arbiter.client)):
            through(m, f"write_slice_{number}", Slice(BurstRequest), port.burst, client.burst)
            m.d.comb += write_arbiter.soon[number].eq(port.burst.valid)
            kind = Skid if number < 2 else Slice  # payload and CQEs go at a beat a cycle
            through(m, f"write_beat_{number}", kind(WriteBeat(width)), port.beat, client.beat)
            told(m, client, port, "answer", "error")
        for name, member in self.axi.signature.members.items():
            source = (read_arbiter if name.startswith(READ_CHANNELS) else write_arbiter).axi
            if member.flow == Out:
                m.d.comb += getattr(self.axi, name).eq(getattr(source, name))
            else:
                m.d.comb += getattr(source, name).eq(getattr(self.axi, name))
        self._blocks |= {"read_arbiter": read_arbiter, "write_arbiter": write_arbiter}

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
            m.d.comb += getattr(self._counters, f"count_{name}").eq(functools.reduce(merge, strobes))
