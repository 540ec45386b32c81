"""The engine: instances and connections, no logic."""

import functools
import operator

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abi.counters import COUNTERS
from .abi.registers import ADDRESS_WIDTH
from .control.activity import Activity
from .control.commands import Commands
from .control.counters import Counters
from .control.registers import Registers
from .dma.arbiter import ReadArbiter, WriteArbiter
from .dma.axi import Axi4, AxiLite
from .dma.port import BurstRequest
from .dma.reader import PayloadReader
from .dma.structure import StructureReader, StructureWriter
from .dma.writer import PayloadWriter
from .memory.access import AccessUnit
from .queue.completion import CompletionWriter
from .queue.event import EventWriter
from .queue.wqe_fetcher import RingIndex, RingPrefetcher
from .roce.depacketizer import Depacketizer
from .roce.packet_header import ReceiveHeader, TransmitHeader
from .roce.packetizer import Packetizer
from .stream.arbiter import StreamArbiter
from .stream.fifo import Queue
from .stream.packet import PacketBeat
from .stream.ready import ReadyQueue
from .stream.skid import Skid
from .stream.slice import Slice
from .stream.transfer import AccessRequest, Completion, Event, Piece, ReadRequest
from .transport.acknowledger import Acknowledger
from .transport.completer import Completer
from .transport.layouts import Job, RequestHeader
from .transport.lookup import Lookup
from .transport.requester import Requester
from .transport.responder import Responder
from .transport.transmitter import Transmitter

__all__ = ["Rnic"]

READ_CHANNELS = ("ar", "r")

HEADERS = 32
"""Packets between their turn and their payload's arrival: 11 cycles each, they cover a memory latency of 350 cycles."""

RECEIVE_BEATS = 64
"""Beats of receive WQEs on their way: 24 of 16 bytes at 64 bits (8 beats are kept free for a batch), 11 cycles each."""

PIECES = 16
"""Translations ahead of the reads."""

WQE_BEATS = 256
"""Beats of send WQEs that may be on their way: 32 messages at 64 bits, 11 cycles each, cover 350 cycles."""

RECEIVED = 256
"""Packets received and not yet looked at: with the smallest, 11 cycles each, the time of 20 reads of host memory."""

JOBS = 16
"""Packets between their check and the answer to their last write: 11 cycles each, a write latency of 170 cycles."""


def link(m, source, sink):
    """Connects two streams, of which one may count QPs or CQs with fewer bits than the other."""
    m.d.comb += [
        Value.cast(sink.payload).eq(Value.cast(source.payload)),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def through(m, name, shape, source, sink):
    """Connects two streams through a :class:`Skid`: no path leads from the one block into the other."""
    m.submodules[name] = skid = Skid(shape)
    link(m, source, skid.i)
    link(m, skid.o, sink)


def fetched(m, name, fetcher, user):
    """Connects a consumer of fetched WQEs with its :class:`RingPrefetcher`."""
    m.d.comb += [
        fetcher.status_qp.eq(user.status_qp),
        Value.cast(user.status).eq(Value.cast(fetcher.status)),
        Value.cast(fetcher.word_addr).eq(Value.cast(user.word_addr)),
        user.word.eq(fetcher.word),
    ]
    m.submodules[f"{name}_consumed"] = consumed = Slice(RingIndex)
    link(m, user.consumed, consumed.i)
    link(m, consumed.o, fetcher.consumed)


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
    interrupt : 1
        High while events wait in the event ring.
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
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        c = self.config
        width, qps = c.data_width, c.qps
        registers, commands, counters = self._control(m)
        sq_fetch, rq_fetch, completions, events = self._queues(m)
        packetizer, depacketizer, access = self._wire(m)

        # Transmit: doorbell, fetch, turn, packet, wire.
        m.submodules.requester = requester = Requester(qps, c.window, width, c.sq_area)
        m.submodules.transmitter = transmitter = Transmitter(qps, width)
        m.submodules.payload_reader = payload_reader = PayloadReader(width, c.transmit_buffer)
        m.submodules.scheduler = scheduler = ReadyQueue(qps)
        m.submodules.turns = turns = StreamArbiter(range(qps), 3)
        m.submodules.headers = headers = Queue(RequestHeader, HEADERS)
        link(m, registers.sq, sq_fetch.doorbell)
        link(m, sq_fetch.arrived, turns.i[0])
        link(m, requester.again, turns.i[1])
        link(m, turns.o, scheduler.i)
        link(m, scheduler.o, requester.ready)
        fetched(m, "sq", sq_fetch, requester)
        link(m, requester.packet, headers.i)
        link(m, headers.o, transmitter.packet)
        link(m, requester.access, access.transmit.request)
        through(m, "inline_skid", PacketBeat(width), requester.inline, transmitter.inline)
        # Translation runs ahead: a miss on the next page costs nothing while this one's bytes are on their way.
        m.submodules.pieces = pieces = Queue(Piece, PIECES)
        link(m, access.transmit.piece, pieces.i)
        link(m, pieces.o, payload_reader.piece)
        link(m, access.transmit.verdict, transmitter.verdict)
        through(m, "payload_skid", PacketBeat(width), payload_reader.payload, transmitter.payload)
        m.submodules.header_slice = header_slice = Slice(TransmitHeader)
        link(m, transmitter.header, header_slice.i)
        link(m, header_slice.o, packetizer.header)
        link(m, transmitter.o, packetizer.payload)
        link(m, packetizer.o, flipped(self.tx))

        # Receive: wire, lookup, responder, memory, acknowledgement.
        m.submodules.lookup = lookup = Lookup(qps)
        m.submodules.responder = responder = Responder(qps, c.rq_area)
        m.submodules.acknowledger = acknowledger = Acknowledger(qps)
        m.submodules.payload_writer = payload_writer = PayloadWriter(width)
        m.submodules.jobs = jobs = Queue(Job, JOBS)
        link(m, flipped(self.rx), depacketizer.i)
        # While a key or a page is looked up in host memory, headers pile up: in block RAM, which is cheap so deep.
        m.submodules.received = received = Queue(ReceiveHeader, RECEIVED)
        link(m, depacketizer.header, received.i)
        m.submodules.received_slice = received_slice = Slice(ReceiveHeader)
        link(m, received.o, received_slice.i)
        link(m, received_slice.o, lookup.header)
        link(m, lookup.request, responder.request)
        link(m, registers.rq, rq_fetch.doorbell)
        m.submodules.arrived_slice = arrived_slice = Slice(12)
        link(m, rq_fetch.arrived, arrived_slice.i)
        link(m, arrived_slice.o, responder.arrived)
        fetched(m, "rq", rq_fetch, responder)
        # The check takes a request only once it is looked up; the responder goes on meanwhile.
        through(m, "access_skid", AccessRequest, responder.access, access.receive.request)
        link(m, responder.job, jobs.i)
        link(m, jobs.o, acknowledger.job)
        link(m, access.receive.piece, payload_writer.piece)
        link(m, depacketizer.payload, payload_writer.payload)
        link(m, payload_writer.done, acknowledger.done)
        link(m, acknowledger.ack, transmitter.ack)

        # Acknowledgements received, and what completes.
        m.submodules.completer = completer = Completer(qps, c.window)
        m.submodules.completion_arbiter = completion_arbiter = StreamArbiter(Completion, 2)
        m.submodules.event_arbiter = event_arbiter = StreamArbiter(Event, 2)
        link(m, lookup.ack, completer.ack)
        link(m, requester.outstanding, completer.outstanding)
        link(m, requester.failed, completer.failed_requester)
        link(m, transmitter.failed, completer.failed_transmitter)
        link(m, requester.flush, completer.flush)
        link(m, completer.ready, turns.i[2])
        m.d.comb += [completer.acked_qp.eq(requester.acked_qp), requester.acked.eq(completer.acked)]
        m.d.comb += [completer.sent.eq(requester.sent), completer.sent_en.eq(requester.sent_en)]
        link(m, acknowledger.completion, completion_arbiter.i[0])
        link(m, completer.completion, completion_arbiter.i[1])
        # Who completes goes on while a CQE is written.
        through(m, "completion_skid", Completion, completion_arbiter.o, completions.completion)
        link(m, completions.event, event_arbiter.i[0])
        link(m, commands.event, event_arbiter.i[1])
        link(m, event_arbiter.o, events.event)
        link(m, acknowledger.error, commands.responder_error)
        link(m, completer.error, commands.completer_error)

        # Tokens, attributes and configuration.
        for name in ("requester", "responder", "completer", "sq_fetch", "rq_fetch"):
            link(m, getattr(commands, name), m.submodules[name].control)
        for name in ("requester", "responder", "completer"):
            link(m, m.submodules[name].reply, getattr(commands, f"{name}_reply"))
        m.d.comb += [
            commands.requester_done.eq(transmitter.token_done),
            commands.responder_done.eq(acknowledger.token_done),
        ]
        link(m, commands.cq_control, completions.control)
        link(m, commands.invalidate, access.invalidate)
        link(m, registers.consumer, completions.consumer)
        link(m, registers.arm, completions.arm)
        for block in (sq_fetch, rq_fetch, requester, transmitter, completer, lookup, responder, acknowledger):
            m.d.comb += [block.attribute.eq(commands.qp_attribute), block.attribute_en.eq(commands.qp_attribute_en)]
        m.d.comb += [
            completions.attribute.eq(commands.cq_attribute),
            completions.attribute_en.eq(commands.cq_attribute_en),
        ]
        for block in (packetizer, depacketizer):
            m.d.comb += [block.mac.eq(registers.mac), block.ip.eq(registers.ip)]
        m.d.comb += [access.mpt_base.eq(registers.mpt_base), access.mpt_log_size.eq(registers.mpt_log_size)]
        for name in ("eq_base", "eq_log_size", "eq_reset", "eq_consumer"):
            m.d.comb += getattr(events, name).eq(getattr(registers, name))
        m.d.comb += self.interrupt.eq(events.interrupt & registers.interrupt_enable)

        self._bus(
            m,
            reads=[payload_reader.port, *self._structure_reads(m, sq_fetch, rq_fetch, access)],
            writes=[payload_writer.port, *self._structure_writes(m, completions, events)],
        )
        blocks = [requester, transmitter, completer, lookup, responder, acknowledger, packetizer, depacketizer]
        blocks += [access, completions, events, payload_writer, m.submodules.read_arbiter, m.submodules.write_arbiter]
        self._count(m, counters, blocks)
        return m

    def _control(self, m):
        c = self.config
        sizes = {"data_width": c.data_width, "qps": c.qps, "cqs": c.cqs, "window": c.window}
        m.submodules.registers = registers = Registers(**sizes)
        m.submodules.commands = commands = Commands(c.qps, c.cqs)
        m.submodules.counters = counters = Counters()
        m.submodules.activity = activity = Activity()
        connect(m, axil=flipped(self.axil), registers=registers.axil)
        link(m, registers.command, commands.command)
        link(m, registers.counter_addr, counters.addr)
        link(m, counters.data, registers.counter_data)
        m.d.comb += [
            registers.command_result.eq(commands.result),
            registers.mailbox_addr.eq(commands.mailbox_addr),
            registers.mailbox_w_data.eq(commands.mailbox_w_data),
            registers.mailbox_w_en.eq(commands.mailbox_w_en),
            commands.mailbox_r_data.eq(registers.mailbox_r_data),
            registers.idle.eq(activity.idle),
            activity.read_start.eq(self.axi.arvalid & self.axi.arready),
            activity.read_end.eq(self.axi.rvalid & self.axi.rready & self.axi.rlast),
            activity.write_start.eq(self.axi.awvalid & self.axi.awready),
            activity.write_end.eq(self.axi.bvalid & self.axi.bready),
            activity.busy.eq(self.tx.valid | self.rx.valid | registers.command.valid),
        ]
        return registers, commands, counters

    def _queues(self, m):
        c = self.config
        m.submodules.sq_fetch = sq_fetch = RingPrefetcher.send(c.data_width, c.qps, c.sq_area)
        m.submodules.rq_fetch = rq_fetch = RingPrefetcher.receive(c.data_width, c.qps, c.rq_area)
        m.submodules.completions = completions = CompletionWriter(c.data_width, c.cqs, c.qps)
        m.submodules.events = events = EventWriter(c.data_width)
        return sq_fetch, rq_fetch, completions, events

    def _wire(self, m):
        c = self.config
        m.submodules.packetizer = packetizer = Packetizer(c.data_width)
        m.submodules.depacketizer = depacketizer = Depacketizer(c.data_width, depth=c.receive_buffer)
        m.submodules.access = access = AccessUnit(c.data_width, c.qps, mpt_sets=c.mpt_sets, mtt_sets=c.mtt_sets)
        return packetizer, depacketizer, access

    def _structure_reads(self, m, sq_fetch, rq_fetch, access):
        width = self.config.data_width
        for name, depth, request, answer in (
            ("sq_reader", WQE_BEATS, sq_fetch.read, sq_fetch.data),
            ("rq_reader", RECEIVE_BEATS, rq_fetch.read, rq_fetch.data),
            ("mpt_reader", 16, access.mpt_read, access.mpt_data),
            ("mtt_reader", 4, access.mtt_read, access.mtt_data),
        ):
            m.submodules[name] = reader = StructureReader(width, depth)
            through(m, f"{name}_skid", ReadRequest, request, reader.request)
            link(m, reader.data, answer)
            yield reader.port

    def _structure_writes(self, m, completions, events):
        for name, source in (("cqe_writer", completions), ("eqe_writer", events)):
            m.submodules[name] = writer = StructureWriter(self.config.data_width)
            through(m, f"{name}_skid", ReadRequest, source.write, writer.request)
            link(m, source.data, writer.data)
            link(m, writer.done, source.done)
            yield writer.port

    def _bus(self, m, reads, writes):
        """Client number is AXI ID, and lower numbers are not better: the arbiters go round."""
        width = self.config.data_width
        m.submodules.read_arbiter = reader = ReadArbiter(width, len(reads))
        m.submodules.write_arbiter = writer = WriteArbiter(width, len(writes))
        for port, client in zip(reads, reader.client):
            connect(m, port, client)
        for number, (port, client) in enumerate(zip(writes, writer.client)):
            m.submodules[f"burst_slice_{number}"] = burst = Slice(BurstRequest)
            link(m, port.burst, burst.i)
            link(m, burst.o, client.burst)
            link(m, port.beat, client.beat)
            m.d.comb += [port.answer.eq(client.answer), port.error.eq(client.error)]
        for name, member in self.axi.signature.members.items():
            source = (reader if name.startswith(READ_CHANNELS) else writer).axi
            if member.flow == Out:
                m.d.comb += getattr(self.axi, name).eq(getattr(source, name))
            else:
                m.d.comb += getattr(source, name).eq(getattr(self.axi, name))

    @staticmethod
    def _count(m, counters, blocks):
        """Every ``count_…`` output of a block goes to the counter of that name."""
        sources = {name: [] for name in COUNTERS}
        for block in blocks:
            for name in block.signature.members:
                if name.startswith("count_"):
                    sources[name.removeprefix("count_")].append(getattr(block, name))
        for name, strobes in sources.items():
            # A counter of cycles counts a cycle once, whoever waits in it; one that is wider adds its sources.
            merge = operator.or_ if COUNTERS[name].width == 1 else operator.add
            m.d.comb += getattr(counters, f"count_{name}").eq(functools.reduce(merge, strobes))
