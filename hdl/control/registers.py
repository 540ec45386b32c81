"""The register space behind AXI4-Lite: registers, mailbox, counters, doorbells."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi import registers as abi
from ..abi.commands import COMMAND, MAILBOX_WORDS, Command
from ..abi.qpc import INDEX_BITS
from ..dma.axi import AxiLite, Response
from ..queue.cq_doorbells import CqArm, CqIndex
from ..queue.ring import PUSH_WORDS, PushDoorbell, PushWord, RingIndex
from ..stream.connections import connect_signals
from ..stream.ram import Ram
from ..stream.record import word_layout
from .register_tables import RegisterTables, table_members

__all__ = ["CommandWord", "Registers"]

CommandWord = word_layout(COMMAND, [0])
REG = abi.REGISTERS
REGISTERS_END = 0x80
PUSH_BITS = ceil_log2(4 * PUSH_WORDS)
PAGE_BITS, AREA_BITS = ceil_log2(abi.PAGE), ceil_log2(abi.QP_PAGES)
"""Of an offset in a page, and in one of the areas: registers, pages of QPs, of CQs, of SRQs."""
TICK = 512
"""Cycles of a timer tick after reset: 4.096 us at 125 MHz."""


class Registers(wiring.Component):
    """AXI4-Lite subordinate; see :mod:`verbena.hdl.abi.registers` for the map.

    One access at a time, reads and writes in turns if both wait. An answer that is not taken holds up its own channel
    only. A doorbell reaches its stream 2 cycles after the write's address and data are both there; a read is answered
    after 4 cycles, of a counter as long as the counters take. A word of a pushed WQE is passed on, and answered, in the
    cycle after its address and data, if it is taken then.

    *Answers*: a write is 32 bits, or nothing: without strobes it does nothing, with some of the four it is refused.
    Reads of unknown addresses give 0, writes to them do nothing. While a command runs the mailbox is the command's:
    accesses to it are refused. What is refused is answered with SLVERR, changes nothing, and reads as anything; all
    else is OKAY.

    *Bound*: an access is taken and answered within 128 cycles, if the manager takes the answers before it. No access
    waits for a command, an event or host memory. Doorbells and pushed words behind a pushed WQE that is moved to its
    place also wait for the cycles in which other send WQEs come in from memory without a gap.

    *After reset* a register reads as what it holds then, not as what was written before. Bits that a register has no
    use for read back as they were written.

    Parameters
    ----------
    identity : .identity.Identity
        What they tell of the engine. Its tables and shared receive queues are here, too.

    Members
    -------
    axil : AXI4-Lite
    sq, rq, consumer, arm : streams of doorbells
        ``PushDoorbell``, ``RingIndex``, ``CqIndex`` and ``CqArm``. Pages beyond the last QP, CQ or SRQ are ignored.
    srq : stream of ``RingIndex``
        With SRQs: likewise, ``qp`` is the number of the SRQ.
    gid, gid_en, member_en, neighbour_gid, neighbour_row, raw_filter, event_queue, event_queue_en
        Of a :class:`.register_tables.RegisterTables`.
    push : stream of ``PushWord``
        Words of WQEs.
    command : stream of :data:`CommandWord`
        A command to run; ``ready`` comes when it is done, with ``command_result``.
    device_reset : 1
        Strobe: DEVICE_RESET was written, perhaps while another command runs, of which nothing more is said then.
        ``enable`` and ``interrupt_enable`` are cleared.
    resetting : 1
        It goes on; a command, too, for whoever reads ``command_status``. Doorbells and words of WQEs are dropped.
    mailbox_addr, mailbox_r_data, mailbox_w_data, mailbox_w_en
        The command block's port, served while a command runs; read data 2 cycles later.
    counter_addr : stream of 8; counter_data : stream of 32
        Index of a 32-bit word of the counters, and the word.
    mac, ip, mpt_base, mpt_log_size, cqc_base, cqc_log_size, qpc_base, eq_base, eq_log_size, eq_reset, eq_consumer,
    enable, interrupt_enable, tick
        What the registers hold.
    idle, link, overdue : 1
        Shown in the status register.
    bus_timeout : 16
        What the register holds.
    next_due, neighbour_mac, neighbour_valid : 32, 48, 1
        Shown in the registers of those names.
    neighbour_ip : 32
        Without a table of GIDs: what the register holds.
    neighbour_ask : 1
        Strobe: whom to ask for was written.
    """

    def __init__(self, identity):
        self.identity = identity
        super().__init__(
            {
                "axil": In(AxiLite(abi.ADDRESS_WIDTH)),
                "sq": Out(stream.Signature(PushDoorbell)),
                "rq": Out(stream.Signature(RingIndex)),
                "push": Out(stream.Signature(PushWord)),
                "consumer": Out(stream.Signature(CqIndex)),
                "arm": Out(stream.Signature(CqArm)),
                "command": Out(stream.Signature(CommandWord)),
                "command_result": In(4),
                "device_reset": Out(1),
                "resetting": In(1),
                "mailbox_addr": In(ceil_log2(MAILBOX_WORDS)),
                "mailbox_r_data": Out(32),
                "mailbox_w_data": In(32),
                "mailbox_w_en": In(1),
                "counter_addr": Out(stream.Signature(8)),
                "counter_data": In(stream.Signature(32)),
                "mac": Out(48),
                "ip": Out(32),
                "mpt_base": Out(64),
                "mpt_log_size": Out(5),
                "cqc_base": Out(64),
                "cqc_log_size": Out(4),
                "qpc_base": Out(64),
                "eq_base": Out(64),
                "eq_log_size": Out(4),
                "eq_reset": Out(1),
                "eq_consumer": Out(16),
                "enable": Out(1),
                "interrupt_enable": Out(1),
                "tick": Out(32, init=TICK),
                "idle": In(1),
                "link": In(1),
                "overdue": In(1),
                "bus_timeout": Out(16, init=abi.BUS_TIMEOUT),
                "next_due": In(32),
                "neighbour_ask": Out(1),
                "neighbour_mac": In(48),
                "neighbour_valid": In(1),
            }
            | ({"srq": Out(stream.Signature(RingIndex))} if identity.srqs else {})
            | ({} if identity.gids else {"neighbour_ip": Out(32)})
            | table_members(identity)
        )

    def elaborate(self, platform):
        m = Module()
        axil = self.axil
        address = Signal(abi.ADDRESS_WIDTH)
        value = Signal(32)
        result = Signal(32)
        clock = Signal(32)
        status = Signal(4)
        m.d.sync += [clock.eq(clock + 1), self.eq_reset.eq(0), self.device_reset.eq(0)]

        # What can be written can be read back: from a copy, which is cheaper than a multiplexer over the registers. A
        # reset does not reach the copy, but what says of which registers it is one.
        m.submodules.shadow = shadow = memory.Memory(shape=32, depth=32, init=[])
        copied = Signal(REGISTERS_END // 4)
        shadow_write = shadow.write_port()
        shadow_read = shadow.read_port(domain="comb")
        m.submodules.words = mailbox = Ram(32, MAILBOX_WORDS)
        busy = Signal()
        m.d.comb += [
            busy.eq(self.command.valid | self.device_reset | self.resetting),
            shadow_write.addr.eq(address[2:7]),
            shadow_write.data.eq(value),
            shadow_read.addr.eq(address[2:7]),
            mailbox.w_addr.eq(Mux(busy, self.mailbox_addr, address[2:])),
            mailbox.w_data.eq(Mux(busy, self.mailbox_w_data, value)),
            mailbox.r_addr.eq(mailbox.w_addr),
            self.mailbox_r_data.eq(mailbox.r_data),
            self.counter_addr.payload.eq(address[2:10]),
        ]
        with m.If(busy):
            m.d.comb += mailbox.w_en.eq(self.mailbox_w_en)

        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [self.command.valid.eq(0), status.eq(self.command_result)]
        for doorbell in self._doorbells:
            with m.If(doorbell.ready):
                m.d.sync += doorbell.valid.eq(0)
        pushed = Signal()
        m.d.comb += pushed.eq(self.push.ready | self.resetting)

        # Known with the address: which doorbell it is. One bit of it tells SQ_PUSH from SQ_PRODUCER.
        number, page = address[PAGE_BITS:AREA_BITS], address[:PAGE_BITS]
        in_push = Signal()
        area, asked_page = axil.awaddr[AREA_BITS:], axil.awaddr[PAGE_BITS:AREA_BITS]
        in_qps = (area == abi.QP_PAGES >> AREA_BITS) & (asked_page < self.identity.qps)
        in_cqs = (area == abi.CQ_PAGES >> AREA_BITS) & ((asked_page >> self.cqc_log_size) == 0)
        hits = {
            "sq": in_qps & ((axil.awaddr[:PAGE_BITS] & ~abi.QpDoorbell.SQ_PUSH.value) == abi.QpDoorbell.SQ_PRODUCER),
            "rq": in_qps & (axil.awaddr[:PAGE_BITS] == abi.QpDoorbell.RQ_PRODUCER),
            "consumer": in_cqs & (axil.awaddr[:PAGE_BITS] == abi.CqDoorbell.CONSUMER),
            "arm": in_cqs & (axil.awaddr[:PAGE_BITS] == abi.CqDoorbell.ARM),
        }
        if self.identity.srqs:
            in_srqs = (area == abi.SRQ_PAGES >> AREA_BITS) & (asked_page < self.identity.srqs)
            hits["srq"] = in_srqs & (axil.awaddr[:PAGE_BITS] == abi.SrqDoorbell.PRODUCER)
        rings = {name: Signal(name=f"rings_{name}") for name in hits}
        strobed = axil.wstrb.all()
        in_pushes = in_qps & (axil.awaddr[PUSH_BITS:12] == abi.QP_PUSH >> PUSH_BITS)
        m.d.comb += Value.cast(self.push.payload).eq(Cat(number[:INDEX_BITS], address[2:PUSH_BITS], value))
        # Known a cycle after the address.
        in_registers = Signal()
        in_mailbox = Signal()
        in_counters = Signal()
        register = Signal(REGISTERS_END // 4)  # which one, a bit each
        base = (address[AREA_BITS:] == 0) & (number == 0)
        m.d.sync += [
            in_registers.eq(base & (page < REGISTERS_END)),
            in_mailbox.eq(base & (page[8:] == abi.MAILBOX >> 8)),
            in_counters.eq(base & (page[10:] == 3)),
            register.eq(1 << page[2:7]),
        ]
        m.submodules.tables = tables = RegisterTables(self.identity)
        m.d.comb += [tables.address.eq(address), tables.value.eq(value), tables.clear.eq(self.device_reset)]
        connect_signals(m, tables, self, *table_members(self.identity))
        if self.identity.gids:
            m.d.comb += self.neighbour_ask.eq(tables.neighbour_ask)
        else:
            m.d.sync += self.neighbour_ask.eq(shadow_write.en & register[REG["neighbour_ip"].offset // 4])

        # What stands in no memory, a cycle later.
        live = {name: Const(word, 32) for name, word in self.identity.words.items()} | {
            "command_status": Cat(status, Const(0, 27), busy),
            "status": Cat(self.idle, self.link, self.overdue),
            "clock": clock,
            "next_due": self.next_due,
            "neighbour_mac_low": self.neighbour_mac[:32],
            "neighbour_mac_high": Cat(self.neighbour_mac[32:], Const(0, 15), self.neighbour_valid),
            "tick": Const(TICK, 32),  # as long as nobody has written it
            "bus_timeout": Const(abi.BUS_TIMEOUT, 32),  # likewise
        }
        is_copied, living = Signal(), Signal(32)
        chosen = [Mux(register[REG[name].offset // 4], expression, 0) for name, expression in live.items()]
        m.d.sync += [
            is_copied.eq((register & copied).any()),
            living.eq(reduce(or_, chosen)),
        ]
        asked = Signal()  # the counters know which word is wanted
        whole = Signal()  # the write has all its strobes
        answered, refused = Signal(), Signal()  # B waits to be taken
        given, denied = Signal(), Signal()  # R likewise
        m.d.comb += [
            axil.bvalid.eq(answered),
            axil.bresp.eq(Mux(refused, Response.SLVERR, Response.OKAY)),
            axil.rvalid.eq(given),
            axil.rresp.eq(Mux(denied, Response.SLVERR, Response.OKAY)),
            axil.rdata.eq(result),
        ]
        with m.If(axil.bready):
            m.d.sync += answered.eq(0)
        with m.If(axil.rready):
            m.d.sync += given.eq(0)
        owned = Signal()  # bit 0 of `owner`
        is_owner = register[REG["owner"].offset // 4]
        claimed = is_owner & owned & value[0]
        with m.If(shadow_write.en & is_owner):
            m.d.sync += [owned.eq(value[0]), copied[REG["owner"].offset // 4].eq(1)]

        writes, reads, reads_first = Signal(), Signal(), Signal()
        m.d.comb += [
            writes.eq(axil.awvalid & axil.wvalid & ~answered),
            reads.eq(axil.arvalid & ~given),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [whole.eq(strobed), in_push.eq(in_pushes & strobed)]
                m.d.sync += [rings[name].eq(hit & strobed) for name, hit in hits.items()]
                with m.If(writes & ~(reads & reads_first)):
                    m.d.comb += [axil.awready.eq(1), axil.wready.eq(1)]
                    m.d.sync += [
                        address.eq(axil.awaddr),
                        value.eq(axil.wdata),
                        refused.eq(axil.wstrb.any() & ~strobed),
                        reads_first.eq(1),
                    ]
                    m.next = "WRITE"
                with m.Elif(reads):
                    m.d.comb += axil.arready.eq(1)
                    m.d.sync += [address.eq(axil.araddr), asked.eq(0), reads_first.eq(0)]
                    m.next = "READ"
            # Doorbells are on the way of every message, and are written at once.
            with m.State("WRITE"):
                m.next = "WRITE_REGISTER"
                for name, hit in rings.items():
                    doorbell = getattr(self, name)
                    of_cq = name in ("consumer", "arm")
                    item = Cat(number, value) if of_cq else Cat(number[:INDEX_BITS], value[:16], address[3])
                    with m.If(~doorbell.valid):
                        m.d.sync += [doorbell.valid.eq(hit), Value.cast(doorbell.payload).eq(item)]
                    with m.Elif(hit):  # the block behind has not taken it
                        m.next = "WRITE"
                with m.If(in_push):
                    m.d.comb += [self.push.valid.eq(1), axil.bvalid.eq(pushed)]
                    m.next = "WRITE"
                    with m.If(pushed):
                        m.d.sync += answered.eq(~axil.bready)
                        m.next = "IDLE"
            with m.State("WRITE_REGISTER"):
                m.d.sync += answered.eq(1)
                m.next = "IDLE"
                with m.If(in_registers & whole):
                    m.d.comb += shadow_write.en.eq(~claimed)
                    self._write_registers(m, register, value, busy, copied)
                m.d.comb += tables.write.eq(whole)
                with m.If(in_mailbox & whole):
                    m.d.sync += refused.eq(busy)
                    with m.If(~busy):
                        m.d.comb += mailbox.w_en.eq(1)
            with m.State("READ"):
                m.next = "READ_LIVE"
            with m.State("READ_LIVE"):
                m.d.sync += denied.eq(in_mailbox & busy)
                m.next = "READ_REGISTER"
            with m.State("READ_REGISTER"):
                done = Signal(init=1)
                with m.If(in_registers):
                    m.d.sync += result.eq(Mux(is_copied, shadow_read.data, living))
                with m.Elif(in_counters):
                    m.d.comb += [
                        self.counter_addr.valid.eq(~asked),
                        self.counter_data.ready.eq(1),
                        done.eq(self.counter_data.valid),
                    ]
                    m.d.sync += result.eq(self.counter_data.payload)
                    with m.If(self.counter_addr.ready):
                        m.d.sync += asked.eq(1)
                with m.Else():
                    m.d.sync += result.eq(Mux(in_mailbox, mailbox.r_data, 0))
                with m.If(done):
                    m.d.sync += given.eq(1)
                    m.next = "IDLE"
        self._reset_device(m, status, copied)
        return m

    def _reset_device(self, m, status, copied):
        """What DEVICE_RESET changes here. What it interrupts is not heard of any more."""
        with m.If(self.device_reset):
            m.d.sync += [self.command.valid.eq(0), status.eq(0), self.enable.eq(0), self.interrupt_enable.eq(0)]
            m.d.sync += copied[REG["control"].offset // 4].eq(0)
        with m.If(self.device_reset | self.resetting):
            for doorbell in self._doorbells:
                m.d.sync += doorbell.valid.eq(0)

    @property
    def _doorbells(self):
        return (self.sq, self.rq, self.consumer, self.arm) + ((self.srq,) if self.identity.srqs else ())

    def _write_registers(self, m, register, value, busy, copied):
        targets = {
            "control": Cat(self.enable, self.interrupt_enable),
            "mac_low": self.mac[:32],
            "mac_high": self.mac[32:],
            "ip": self.ip,
            "mpt_low": self.mpt_base[:32],
            "mpt_high": self.mpt_base[32:],
            "mpt_log_size": self.mpt_log_size,
            "cqc_low": self.cqc_base[:32],
            "cqc_high": self.cqc_base[32:],
            "cqc_log_size": self.cqc_log_size,
            "qpc_low": self.qpc_base[:32],
            "qpc_high": self.qpc_base[32:],
            "eq_low": self.eq_base[:32],
            "eq_high": self.eq_base[32:],
            "eq_log_size": self.eq_log_size,
            "eq_consumer": self.eq_consumer,
            "tick": self.tick,
            "bus_timeout": self.bus_timeout,
            **({} if self.identity.gids else {"neighbour_ip": self.neighbour_ip}),
        }
        for name, target in targets.items():
            with m.If(register[REG[name].offset // 4]):
                m.d.sync += [target.eq(value), copied[REG[name].offset // 4].eq(1)]
                if name == "eq_log_size":
                    m.d.sync += [self.eq_reset.eq(1), self.eq_consumer.eq(0)]
                    m.d.sync += copied[REG["eq_consumer"].offset // 4].eq(0)
        # A command written while one runs is ignored: the driver waits for `busy` to clear.
        command = data.View(CommandWord, value)
        with m.If(register[REG["command"].offset // 4]):
            with m.If(command.opcode == Command.DEVICE_RESET):
                m.d.sync += self.device_reset.eq(1)
            with m.Elif(~busy):
                m.d.sync += [self.command.valid.eq(1), self.command.payload.as_value().eq(value)]
