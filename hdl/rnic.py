"""The engine: instances and connections, no logic."""

import functools
import operator

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, DomainRenamer, Module, Mux, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .abi.counters import COUNTERS
from .abi.cqc import CQC_BYTES
from .abi.registers import ADDRESS_WIDTH
from .abi.tables import MPT, MTT
from .context.record_read import READ_BYTES
from .context.record_write import WRITE_BYTES
from .control.activity import Activity
from .control.commands import Commands
from .control.context_manager import ContextManager
from .control.counters import Counters
from .control.device_fatal import DeviceFatal
from .control.device_reset import DeviceReset
from .control.event_queue_registers import EventQueueRegisters
from .control.identity import Identity
from .control.port_state import PortState
from .control.registers import Registers
from .control.sections import BLOCKS
from .dma.axi import Axi4, AxiLite
from .dma.engine import DmaEngine
from .dma.structure import link_by_words
from .ethernet.arp_icmp import Service
from .memory.access import AccessUnit
from .memory.key_operations import KeyOperations, KeyRequest
from .queue.completion import CompletionWriter
from .queue.event import EventWriter
from .queue.fetch_link import link_fetcher
from .queue.interrupt_moderation import InterruptModeration
from .queue.moderation_clock import ModerationClock
from .queue.ring import RingIndex, receive_batch
from .queue.wqe_fetcher import RingPrefetcher
from .stream.arbiter import SliceArbiter, StreamArbiter
from .stream.connections import connect_signals, connect_via, link
from .stream.fifo import LUT_DEPTH, Queue
from .stream.packet import PacketBeat
from .stream.router import TagRouter
from .stream.run_arbiter import RunArbiter
from .stream.skid import Skid
from .stream.slice import Slice
from .stream.transfer import Completion, Done, Event, ReadRequest
from .transport.common.layouts import Answered, Job, UdRoute
from .transport.reads.read_atomic_responder import ReadAtomicResponder
from .transport.receive.lookup import ReceiveLookup
from .transport.respond_only import RespondOnly
from .transport.responder.acknowledger import Acknowledger
from .transport.responder.responder import Responder
from .transport.send_side import PARTS, SendSide
from .transport.timers.timers import VISIT
from .transport.tx.transmitter import Transmitter
from .transport.tx.tx_descriptor_fifo import TxDescriptorFifo
from .wire_side import WireSide

__all__ = ["Rnic"]


ROUTES = 16
"""Datagrams between requester and transmitter whose routes wait: LUT RAM has that many rows."""

RECORD_WRITES = 4
"""Writes of a QP's record that may wait for their answer: those of the longest one."""

JOBS_BESIDE = 4
"""Runs of requests, beside those whose jobs are in their queue, that may be over before the acknowledger goes on."""

EVENTS = 8
"""EQEs that may wait for their answer: they are rare."""


BORDER = ("registers", "counters", "activity", "device_reset")
"""Blocks that go on through a DEVICE_RESET. So do the arbiters of the bus, which the DMA engine holds, and what stands
next to the frames at the side of the wire."""

HOST = "host"
"""Clock domain of those while the engine is put together; it becomes ``sync``, which the hardware alone resets."""

CORE = "core"
"""Clock domain of the others."""


class Rnic(wiring.Component):
    """RoCEv2 engine.

    DEVICE_RESET resets all but the borders, :data:`BORDER`, and so does the hardware's reset, a cycle later than those:
    both by one register, which half of all flip-flops have as their reset.

    Parameters
    ----------
    config : Config
        Sizes.
    spread : callable, optional
        ``spread(m, reset)`` returns that register as it reaches the flip-flops, in the same cycle: a device may have a
        network for that. By default it is the register itself.

    Members
    -------
    axi : AXI4 manager
        DMA; ``config.data_width`` bits of data, 64-bit addresses, 5 bits of ID (one ID a purpose, so that answers may
        come in any order between IDs).
    axil : AXI4-Lite subordinate
        Registers and doorbells, :mod:`verbena.hdl.abi.registers`.
    tx, rx : streams of ``PacketBeat``
        Ethernet frames without FCS. ``rx.ready`` is always 1: what does not fit is dropped and counted.
    link : 1
        The MAC has a link. It is told to the driver; frames pass whatever it is.
    interrupt : ``config.event_queues``
        A bit for each event queue: high while events wait in its ring; with ``config.interrupt_moderation`` some time
        after its last rise at the earliest.
    service : ``Service``
        Only with ``config.udp_port``: see :class:`.ethernet.arp_icmp.Service`.
    """

    def __init__(self, config, spread=None):
        self.config = config
        self.spread = spread or (lambda m, reset: reset)
        beat = stream.Signature(PacketBeat(config.data_width))
        super().__init__(
            {
                "axi": Out(Axi4(config.data_width)),
                "axil": In(AxiLite(ADDRESS_WIDTH)),
                "tx": Out(beat),
                "rx": In(beat),
                "link": In(1),
                "interrupt": Out(config.event_queues),
                **({} if config.udp_port is None else {"service": Out(Service())}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._instances(m)
        self._core(m)
        self._request(m)
        self._transmit(m)
        self._receive(m)
        self._answer(m)
        self._complete(m)
        self._control(m)
        self._memory(m)
        if self.config.swaps:
            self._contexts(m)
        self._count(m)
        return DomainRenamer({"sync": CORE, HOST: "sync"})(m)

    def _core(self, m):
        """The clock domain of all but the borders: the same clock, and a reset of its own."""
        reset = Signal(name="core_reset", init=1)
        m.domains += ClockDomain(CORE, local=True)
        m.d[HOST] += reset.eq(self._device_reset.cut)
        m.d.comb += [ClockSignal(CORE).eq(ClockSignal(HOST)), ResetSignal(CORE).eq(self.spread(m, reset))]

    def _instances(self, m):
        """The blocks, by their names in this module."""
        c = self.config
        width, qps = c.data_width, c.slots
        send = SendSide(c) if c.requests else RespondOnly(width)
        rq_fetch = RingPrefetcher.receive(
            width, qps, c.receive_blocks, c.receive_quota, c.wqe_bytes, swaps=c.swaps, shared=c.srqs
        )
        access = AccessUnit(
            width,
            qps,
            mpt_sets=c.mpt_sets,
            mtt_sets=c.mtt_sets,
            mpt_waiting=c.checking,
            mtt_waiting=c.translating,
            verdicts=c.headers,
            physical=c.physical,
            windows=c.key_operations,
            renew=c.renew,
        )
        atomics = c.atomics_in_flight if c.atomics else 0
        self._blocks = {
            "registers": Registers(Identity.of(c)),
            "commands": Commands(
                qps,
                table=c.qps if c.swaps else None,
                srqs=c.srqs,
                unreliable=c.uc or c.ud or c.raw_packets,
                moderation=c.cq_moderation,
            ),
            "counters": Counters(),
            "activity": Activity(VISIT * qps),
            "port_state": PortState(),
            "device_fatal": DeviceFatal(),
            "device_reset": DeviceReset(),
            "send": send,
            "rq_fetch": rq_fetch,
            "read_atomic_responder": ReadAtomicResponder(qps, width, c.responses, atomics, swaps=c.swaps),
            "transmitter": Transmitter(qps, width, c.ipv6),
            "wire": WireSide(c, border_domain=HOST),
            "lookup": ReceiveLookup(
                qps, requests=c.requests, uc=c.uc, ud=c.ud, raw=c.raw_packets, swaps=c.swaps, gids=c.ipv6
            ),
            "responder": Responder(
                qps,
                c.receive_blocks,
                atomics=c.atomics,
                swaps=c.swaps,
                srqs=c.srqs,
                grh=c.ipv6,
                keys=c.key_operations,
                wqe_bytes=c.wqe_bytes,
            ),
            "acknowledger": Acknowledger(qps, swaps=c.swaps, keys=c.key_operations),
            "access": access,
            "dma": DmaEngine(
                width,
                c.transmit_buffer,
                readers=send.readers
                | {
                    "rq": (rq_fetch.reads, receive_batch(c.wqe_bytes), c.receive_wqe_beats),
                    "mpt": (access.mpt_reads, MPT.size),
                    "mtt": (access.mtt_reads, MTT.size),
                    "cqc": (1, CQC_BYTES),
                }
                | ({"qpc_read": (1, READ_BYTES)} if c.swaps else {})
                | ({"key_read": (1, MPT.size)} if c.key_operations else {}),
                writers={"cqe": (c.unanswered,)}
                | dict.fromkeys(self._each_event_queue("eqe"), (EVENTS,))
                | ({"qpc_write": (RECORD_WRITES, WRITE_BYTES)} if c.swaps else {})
                | ({"key_write": (4,)} if c.key_operations else {}),
                bursts=c.unanswered,
                atomics=atomics,
                address_width=c.address_width,
                bus_domain=HOST,
            ),
            "completions": CompletionWriter(
                width, c.cqs, writes=c.unanswered, moderation=c.cq_moderation, queues=c.event_queues
            ),
            **{name: EventWriter(width) for name in self._each_event_queue("events")},
        }
        if c.cq_moderation or c.interrupt_moderation:
            self._blocks |= {"moderation_clock": ModerationClock()}
        if c.event_queues > 1 or c.interrupt_moderation:
            names = self._each_event_queue("event_queue_registers")
            self._blocks |= {name: EventQueueRegisters(number) for number, name in enumerate(names)}
        if c.interrupt_moderation:
            self._blocks |= {name: InterruptModeration() for name in self._each_event_queue("interrupt_moderation")}
        self._blocks |= {"context_manager": ContextManager(c)} if c.swaps else {}
        self._blocks |= {"key_operations": KeyOperations(width, qps)} if c.key_operations else {}
        for name, block in self._blocks.items():
            setattr(self, f"_{name}", block)
        for name, block in self._blocks.items():
            m.submodules[name] = DomainRenamer(HOST if name in BORDER else CORE)(block)
        m.submodules.headers = self._headers = TxDescriptorFifo(
            c.headers, c.run_ahead * width // 8, c.respond_ahead * width // 8, width // 8
        )

    def _request(self, m):
        """Doorbells, tokens and time of the send queues, or of what stands in their place."""
        send, commands = self._send, self._commands
        # What comes by a QP's page is for its slot.
        registers, rung = self._registers, {"sq": send.doorbell, "rq": self._rq_fetch.doorbell, "push": send.push}
        for name, sink in rung.items():
            source = getattr(registers, name)
            if self.config.swaps:
                link(m, source, getattr(self._context_manager, name))
                source = getattr(self._context_manager, f"slot_{name}")
            if name == "rq" and self.config.srqs:
                source = self._with_srqs(m, source)
            link(m, source, sink)
        for name in ("requester", "completer", "sq_fetch"):
            link(m, getattr(commands, name), getattr(send, name))
        for name in ("requester_reply", "completer_reply", "completer_error"):
            link(m, getattr(send, name), getattr(commands, name))
        connect_signals(m, send, commands, "requester_done", "response_receiver_done")
        due = Mux(self._context_manager.running, 0, send.next_due) if self.config.swaps else send.next_due
        m.d.comb += [block.next_due.eq(due) for block in (self._registers, self._activity)]
        connect_signals(m, self._registers, send, "tick")
        for name in send.readers:
            connect(m, getattr(send, name), getattr(self._dma, name))

    def _with_srqs(self, m, rung):
        """Doorbells of receive queues and of SRQs, whose rings stand behind those."""
        m.submodules.rq_doorbells = doorbells = StreamArbiter(RingIndex, 2)
        srq = doorbells.i[1]
        link(m, rung, doorbells.i[0])
        link(m, self._registers.srq, srq)
        m.d.comb += srq.payload.qp.eq(self.config.slots | self._registers.srq.payload.qp)
        return doorbells.o

    def _transmit(self, m):
        """TX descriptor, verdict, payload, wire."""
        c = self.config
        access, transmitter, dma, send = self._access, self._transmitter, self._dma, self._send
        for name in ("access", "packet"):
            link(m, getattr(self._read_atomic_responder, name), getattr(send.read_atomic_responder, name))
        link(m, send.o.access, access.transmit.request)
        link(m, send.o.packet, self._headers.i)
        m.d.comb += [
            send.crowded.eq(self._headers.request_crowded),
            self._read_atomic_responder.hold.eq(self._headers.response_crowded),
        ]
        link(m, self._headers.o, transmitter.packet)
        connect_signals(m, self._headers, transmitter, "next", "next_qp")
        link(m, access.transmit.verdict, transmitter.verdict)

        link(m, access.transmit.piece, dma.transmit_piece)
        link(m, dma.transmit_payload, transmitter.payload)
        connect_signals(m, dma, transmitter, "hint")
        link(m, dma.atomic_payload, transmitter.atomic)
        link(m, send.inline, transmitter.inline)
        if c.ipv6 and c.requests:
            connect_via(m, "routes", Queue(UdRoute, ROUTES, sparse=True), send.route, transmitter.route)
        link(m, self._read_atomic_responder.inline, transmitter.replay)
        link(m, transmitter.failed, send.failed)
        link(m, transmitter.departed, send.departed)
        connect_signals(m, transmitter, send, "token_done")
        link(m, transmitter.header, self._wire.i)
        link(m, transmitter.o, self._wire.payload)
        link(m, self._wire.tx, flipped(self.tx))

    def _receive(self, m):
        """Wire, lookup, and one run for each packet, in their order."""
        wire, lookup, responder, send = self._wire, self._lookup, self._responder, self._send
        link(m, flipped(self.rx), wire.rx)
        headers = wire.o
        if self.config.swaps:
            link(m, headers, self._context_manager.header)
            headers = self._context_manager.slot_header
        link(m, headers, lookup.header)
        link(m, responder.flush, lookup.flush)
        link(m, lookup.request, responder.request)
        link(m, lookup.response, send.response)
        connect_signals(m, lookup, responder, "settled", "next_qp")
        connect_signals(m, responder, lookup, "request_state", "request_state_en", "place", "place_en")
        connect_signals(m, lookup, send, "settled")
        connect_signals(m, send, lookup, "read_progress", "read_progress_en")
        connect_via(m, "arrived_slice", Slice(12), self._rq_fetch.arrived, responder.arrived)

        m.submodules.runs = runs = RunArbiter(2)
        link(m, responder.access, runs.i[0])
        link(m, send.access, runs.i[1])
        m.d.comb += runs.hint.eq(Cat(lookup.request.valid, lookup.response.valid))
        link(m, runs.o, self._access.receive.request)
        link(m, self._access.receive.piece, self._dma.receive_piece)
        beat = PacketBeat(self.config.data_width)
        connect_via(m, "payload_skid", Skid(beat), wire.o_payload, self._dma.receive_payload)
        m.submodules.done_router = router = TagRouter(Done)
        connect_via(m, "done_slice", Slice(Done), self._dma.done, router.i)
        # While a key is made invalid the acknowledger waits for what is received, and that for nobody.
        ahead = self.config.placing + JOBS_BESIDE
        keys = self.config.key_operations
        near = ahead <= LUT_DEPTH
        waiting = Queue(Done, ahead, bypass=near, sparse=near) if keys else Slice(Done)
        connect_via(m, "acknowledger_done", waiting, router.o[0], self._acknowledger.done)
        link(m, router.o[1], send.done)
        connect_via(m, "jobs", Queue(Job, self.config.placing, sparse=True), responder.job, self._acknowledger.job)
        if self.config.swaps:
            link(m, responder.passing, self._acknowledger.passing)
            connect_signals(m, self._acknowledger, responder, "job_done", "held", "held_qp")

    def _answer(self, m):
        """Acknowledgements, READ responses and atomics."""
        responder, read_atomic_responder, acknowledger = (
            self._responder,
            self._read_atomic_responder,
            self._acknowledger,
        )
        connect_signals(m, responder, read_atomic_responder, "served_qp", "recall", "recall_en")
        link(m, responder.entry, read_atomic_responder.entry)
        connect_signals(m, read_atomic_responder, responder, "served", "recalled", "room")
        link(m, acknowledger.release, read_atomic_responder.release)
        answers = Queue(Answered, 4, sparse=True)
        connect_via(m, "answers", answers, self._transmitter.answered, read_atomic_responder.answered_i)
        link(m, read_atomic_responder.answered_o, acknowledger.answered)
        link(m, acknowledger.ack, self._transmitter.ack)
        m.d.comb += acknowledger.backlog.eq(self._headers.next)
        link(m, read_atomic_responder.operands, self._dma.operands)
        link(m, self._dma.result, read_atomic_responder.result)

    def _complete(self, m):
        """CQEs and events."""
        m.submodules.completion_arbiter = completion_arbiter = SliceArbiter(Completion, 2)
        # Who completes goes on while a CQE is written.
        slice_ = Slice(Completion)
        connect_via(m, "acknowledger_completion", slice_, self._acknowledger.completion, completion_arbiter.i[0])
        link(m, self._send.completion, completion_arbiter.i[1])
        link(m, completion_arbiter.o, self._completions.completion)
        connect_signals(m, self._acknowledger, self._completions, "hint_cq")
        sources = [self._commands, self._port_state, self._device_fatal]
        sources += [self._context_manager] if self.config.swaps else []
        sources += [self._responder] if self.config.srqs else []
        m.submodules.event_arbiter = event_arbiter = SliceArbiter(Event, 1 + len(sources))
        # Of completions each event queue hears apart, of all else the first one.
        first, *others = self._completions.event
        others = zip(self._each_event_queue("armed_slice")[1:], others, self._of_each_event_queue("events")[1:])
        for name, event, block in others:
            connect_via(m, name, Slice(Event), event, block.event)
        for event, turn in zip((first, *(source.event for source in sources)), event_arbiter.i, strict=True):
            link(m, event, turn)
        link(m, event_arbiter.o, self._events.event)
        self._interrupt(m)

    def _each_event_queue(self, name):
        """Names of blocks and ports, one for each event queue."""
        return [name, *(f"{name}_{number}" for number in range(1, self.config.event_queues))]

    def _of_each_event_queue(self, name):
        return [self._blocks[each] for each in self._each_event_queue(name)]

    def _interrupt(self, m):
        """Event queues, and time between interrupts."""
        c, registers, completions = self.config, self._registers, self._completions
        writers = self._of_each_event_queue("events")
        wanted = Cat(block.interrupt for block in writers)
        names = ("eq_base", "eq_log_size", "eq_reset", "eq_consumer")
        connect_signals(m, registers, writers[0], *names)
        table = self._of_each_event_queue("event_queue_registers") if registers.identity.event_table else []
        for row in table:
            connect_signals(m, registers, row, "event_queue", "event_queue_en")
        for row, writer in zip(table[1:], writers[1:]):
            connect_signals(m, row, writer, *names)
        if c.cq_moderation or c.interrupt_moderation:
            connect_signals(m, registers, self._moderation_clock, "tick")
        if c.cq_moderation:
            connect_signals(m, self._moderation_clock, completions, "unit")
        moderated = self._of_each_event_queue("interrupt_moderation") if c.interrupt_moderation else []
        for row, writer, moderation in zip(table, writers, moderated):
            connect_signals(m, self._moderation_clock, moderation, "unit")
            connect_signals(m, row, moderation, "interval")
            m.d.comb += moderation.wanted.eq(writer.interrupt & registers.interrupt_enable)
        lines = Cat(block.interrupt for block in moderated) if moderated else wanted
        m.d.comb += self.interrupt.eq(Mux(registers.interrupt_enable, lines, 0))
        self._moderates = Cat(block.waits for block in moderated).any() if moderated else Const(0, 1)
        if c.cq_moderation:
            self._moderates = self._moderates | completions.moderates

    def _control(self, m):
        """Registers, commands, tokens, attributes and configuration."""
        registers, commands, counters, activity = self._registers, self._commands, self._counters, self._activity
        connect(m, axil=flipped(self.axil), registers=registers.axil)
        link(m, registers.command, commands.command)
        link(m, registers.counter_addr, counters.addr)
        link(m, counters.data, registers.counter_data)
        connect_signals(m, commands, registers, "mailbox_addr", "mailbox_w_data", "mailbox_w_en")
        connect_signals(m, registers, commands, "mailbox_r_data")
        connect_signals(m, activity, registers, "idle")
        self._lives(m)
        m.d.comb += [
            registers.command_result.eq(commands.result),
            commands.completions_move.eq(self._completions.moves),
            commands.completions_visible.eq(self._completions.visible),
            self._completions.mark.eq(
                commands.completions_mark | (self._context_manager.mark if self.config.swaps else 0)
            ),
            registers.link.eq(self.link),
            self._port_state.link.eq(self.link),
            activity.busy.eq(
                self.tx.valid
                | self.rx.valid
                | registers.command.valid
                | ~commands.swept
                | (self._wire.multicast_busy if self.config.multicast else 0)
                | (~self._context_manager.idle | self._context_manager.closed if self.config.swaps else 0)
                | self._moderates
            ),
        ]

        link(m, commands.responder, self._lookup.request_control)
        link(m, commands.response_receiver, self._lookup.response_control)
        link(m, commands.rq_fetch, self._rq_fetch.control)
        link(m, self._responder.reply, commands.responder_reply)
        m.d.comb += [
            commands.responder_done.eq(self._acknowledger.token_done),
            commands.read_atomic_responder_done.eq(self._read_atomic_responder.token_done),
        ]
        link(m, self._acknowledger.error, commands.responder_error)
        link(m, self._completions.error, commands.completion_error)
        link(m, commands.cq_control, self._completions.control)
        m.d.comb += [
            commands.cq_control_bad.eq(self._completions.control_bad),
            commands.cqc_log_size.eq(registers.cqc_log_size),
            self._completions.base.eq(registers.cqc_base),
            self._completions.log_size.eq(registers.cqc_log_size),
        ]
        if self.config.key_operations:
            self._keys(m)
        else:
            link(m, commands.invalidate, self._access.invalidate)
        connect_signals(m, self._dma, self._access, "over")
        link(m, registers.consumer, self._completions.consumer)
        link(m, registers.arm, self._completions.arm)
        for block in self._blocks.values():
            if "attribute" in block.signature.members:
                kind = {self._completions: "cq", self._rq_fetch: "ring", self._responder: "ring"}.get(block, "qp")
                m.d.comb += [
                    block.attribute.eq(getattr(commands, f"{kind}_attribute")),
                    block.attribute_en.eq(getattr(commands, f"{kind}_attribute_en")),
                ]
        self._addresses(m)
        connect_signals(m, registers, self._access, "mpt_base", "mpt_log_size")

    def _addresses(self, m):
        """What the side of the wire knows of the port, and what it has found."""
        c, registers, wire = self.config, self._registers, self._wire
        connect_signals(m, registers, wire, "mac", "ip", "neighbour_ask")
        connect_signals(m, wire, registers, "neighbour_mac", "neighbour_valid")
        if c.ipv6:
            connect_signals(m, registers, wire, "gid", "gid_en", "neighbour_gid", "neighbour_row")
        else:
            connect_signals(m, registers, wire, "neighbour_ip")
        if c.multicast:
            connect_signals(m, registers, wire, "member_en")
        if c.raw_packets:
            connect_signals(m, registers, wire, "raw_filter")
        # The host may come by the service, and be who has to enable the engine.
        m.d.comb += wire.enable.eq(registers.enable if c.udp_port is None else 1)
        if c.udp_port is not None:
            connect(m, wire.service, flipped(self.service))

    def _keys(self, m):
        """Who changes the table of keys."""
        keys, dma, registers = self._key_operations, self._dma, self._registers
        # With one that is checked and one that changes its entry there is room for those of send queues and one of a
        # peer: the requester goes on.
        m.submodules.key_request_next = following = Slice(KeyRequest)
        link(m, following.o, keys.send)
        connect_via(m, "key_request_slice", Slice(KeyRequest), self._send.operation, following.i)
        link(m, keys.sent, self._send.operated)
        link(m, self._acknowledger.operation, keys.receive)
        link(m, keys.received, self._acknowledger.operated)
        link(m, self._commands.invalidate, keys.command)
        link(m, keys.invalidate, self._access.invalidate)
        m.d.comb += self._access.hold.eq(keys.hold)
        connect_via(m, "key_read_slice", Slice(ReadRequest), keys.read, dma.key_read.request)
        link(m, dma.key_read.data, keys.fill)
        connect_via(m, "key_write_slice", Slice(ReadRequest), keys.write, dma.key_write.request)
        link(m, keys.data, dma.key_write.data)
        link(m, dma.key_write.done, keys.done)
        connect_signals(m, registers, keys, "mpt_base", "mpt_log_size")

    def _lives(self, m):
        """DEVICE_RESET, and what it does at the borders."""
        reset, registers, activity, dma = self._device_reset, self._registers, self._activity, self._dma
        connect_signals(m, registers, reset, "enable")
        connect_signals(m, self._commands, reset, "swept")
        connect_signals(m, self._wire, reset, "closed")
        connect_signals(m, reset, dma, "stop", "life", "cut")
        connect_signals(m, reset, activity, "forget")
        connect_signals(m, dma, activity, "begun", "ended")
        for block in (self._device_fatal, registers):
            connect_signals(m, dma, block, "overdue")
        m.d.comb += dma.limit.eq(registers.bus_timeout)
        m.d.comb += [
            reset.request.eq(registers.device_reset),
            registers.resetting.eq(reset.busy),
            reset.open.eq(activity.open | self.axi.arvalid | self.axi.awvalid),
            self._send.rest.eq(~self._commands.swept),
        ]
        m.d.comb += [self._wire.stop.eq(reset.stop), self._wire.cut.eq(reset.cut_wire)]

    def _memory(self, m):
        """The engine's own structures, and the bus."""
        dma, access = self._dma, self._access
        link_fetcher(m, "rq", self._rq_fetch, self._responder, dma.rq, self.config.data_width)
        if self.config.srqs:
            link(m, self._responder.point, self._rq_fetch.point)
            connect_signals(m, self._responder, self._rq_fetch, "shared_ring", "shared_ring_en")
        for name, request, answer in (
            ("mpt", access.mpt_read, access.mpt_data),
            ("mtt", access.mtt_read, access.mtt_data),
            ("cqc", self._completions.fetch, self._completions.fetched),
        ):
            table = getattr(dma, name)
            connect_via(m, f"{name}_slice", Slice(ReadRequest), request, table.request)
            link(m, table.data, answer)
        link(m, self._completions.write, dma.cqe.request)  # from a register that nothing hurries
        eqes = list(zip(self._of_each_event_queue("events"), self._each_event_queue("eqe")))
        for events, name in eqes:
            connect_via(m, f"{name}_slice", Slice(ReadRequest), events.write, getattr(dma, name).request)
        for source, structure in (
            (self._completions, dma.cqe),
            *((events, getattr(dma, name)) for events, name in eqes),
        ):
            link(m, source.data, structure.data)
            link(m, structure.done, source.done)
        connect(m, dma.axi, flipped(self.axi))

    def _contexts(self, m):
        """Queue pairs in slots and in host memory, and what concerns them on its way to their slot."""
        commands, send, manager = self._commands, self._send, self._context_manager
        connect_signals(m, self._registers, manager, "tick")
        m.d.comb += [
            manager.base.eq(self._registers.qpc_base),
            manager.waits.eq(self._completions.waits),
            manager.moves.eq(self._completions.moves),
            manager.visible.eq(self._completions.visible),
            manager.serving.eq(self._read_atomic_responder.serving),
            manager.timer.eq(send.left),
            manager.room.eq(send.room),
            manager.reports.eq(commands.reported),
            commands.slot.eq(manager.slot_found),
            self._read_atomic_responder.swap_qp.eq(manager.closed_qp),
            send.sending_qp.eq(manager.closed_qp),
            commands.sending.eq(send.sending),
            send.request_done.eq(self._transmitter.request_done),
        ]
        link(m, commands.timers, send.timers)
        link(m, manager.token, commands.token)
        names = ("bring", "bring_index", "bring_create", "grant", "forget", "forget_slot", "opens", "attribute_row")
        connect_signals(m, commands, manager, *names)
        names = ("brought", "status", "wants", "done", "closed", "closed_qp", "directory_ready")
        connect_signals(m, manager, commands, *names, "attribute_word", "attribute_data", "attribute_write")
        for block in (self._lookup, send):
            connect_signals(m, manager, block, "closed", "closed_qp")
        connect_signals(m, manager, self._lookup, "slot", "absent")
        for number, name in enumerate(BLOCKS):
            saved, loaded = (
                (getattr(send, f"{name}_saved"), getattr(send, f"{name}_loaded"))
                if name in PARTS
                else (self._blocks[name].saved, self._blocks[name].loaded)
            )
            link(m, saved, manager.saved[number])
            link(m, manager.loaded[number], loaded)
        link(m, manager.read.request, self._dma.qpc_read.request)
        link_by_words(m, "qpc_beats", self._dma.qpc_read.data, manager.read.data, READ_BYTES)
        # From registers, as those who write share a bus.
        write, table = manager.write, self._dma.qpc_write
        connect_via(m, "qpc_request_slice", Slice(ReadRequest), write.request, table.request)
        connect_via(m, "qpc_data_skid", Skid(write.data.payload.shape()), write.data, table.data)
        link(m, table.done, write.done)

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
