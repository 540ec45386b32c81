"""The register space behind AXI4-Lite: registers, mailbox, counters, doorbells."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi import registers as abi
from ..abi.commands import COMMAND, MAILBOX_WORDS
from ..dma.axi import AxiLite
from ..queue.ring import PUSH_WORDS, PushDoorbell, PushWord, RingIndex
from ..stream.record import word_layout

__all__ = ["CommandWord", "ConsumerDoorbell", "Registers"]

CommandWord = word_layout(COMMAND, [0])
ConsumerDoorbell = {"cq": 12, "index": 16}

REG = abi.REGISTERS
REGISTERS_END = 0x80
PUSH_BITS = ceil_log2(4 * PUSH_WORDS)


class Registers(wiring.Component):
    """AXI4-Lite subordinate; see :mod:`verbena.hdl.abi.registers` for the map.

    One transaction at a time. A doorbell reaches its stream 2 cycles after the write's address and data are both there;
    a read takes 6 cycles, of a counter as long as the counters take. Reads of unknown addresses give 0, writes to them
    do nothing; both are answered OKAY. Write strobes are not looked at: registers are written whole. A word of a pushed
    WQE is passed on, and answered, in the cycle after its address and data, if it is taken then.
    An access to the mailbox waits while a command runs; nothing else does.

    Members
    -------
    axil : AXI4-Lite
    sq, rq, consumer, arm : streams of doorbells
        ``PushDoorbell``, ``RingIndex``, ``{cq, index}`` and ``{cq, flags}``. Pages beyond the last QP or CQ are
        ignored.
    push : stream of ``PushWord``
        Words of WQEs.
    command : stream of :data:`CommandWord`
        A command to run; ``ready`` comes when it is done, with ``command_result``.
    mailbox_addr, mailbox_r_data, mailbox_w_data, mailbox_w_en
        The command block's port, served while a command runs; read data in the same cycle.
    counter_addr : stream of 8; counter_data : stream of 32
        Index of a 32-bit word of the counters, and the word.
    mac, ip, mpt_base, mpt_log_size, eq_base, eq_log_size, eq_reset, eq_consumer, enable, interrupt_enable, tick
        What the registers hold.
    idle : 1
        Shown in the status register.
    link : 1
        Likewise.
    next_due, neighbour_mac, neighbour_valid : 32, 48, 1
        Shown in the registers of those names.
    neighbour_ip, neighbour_ask : 32, 1
        What the register holds, and that it was written.
    """

    def __init__(self, *, data_width, qps, cqs, window, requests=True, address_width=64):
        self.data_width = data_width
        self.qps = qps
        self.cqs = cqs
        self.window = window
        self.requests = requests
        self.address_width = address_width
        super().__init__(
            {
                "axil": In(AxiLite(abi.ADDRESS_WIDTH)),
                "sq": Out(stream.Signature(PushDoorbell)),
                "rq": Out(stream.Signature(RingIndex)),
                "push": Out(stream.Signature(PushWord)),
                "consumer": Out(stream.Signature(data.StructLayout(ConsumerDoorbell))),
                "arm": Out(stream.Signature(data.StructLayout({"cq": 12, "flags": 2}))),
                "command": Out(stream.Signature(CommandWord)),
                "command_result": In(4),
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
                "eq_base": Out(64),
                "eq_log_size": Out(4),
                "eq_reset": Out(1),
                "eq_consumer": Out(16),
                "enable": Out(1),
                "interrupt_enable": Out(1),
                "tick": Out(32, init=512),
                "idle": In(1),
                "link": In(1),
                "next_due": In(32),
                "neighbour_ip": Out(32),
                "neighbour_ask": Out(1),
                "neighbour_mac": In(48),
                "neighbour_valid": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axil = self.axil
        address = Signal(abi.ADDRESS_WIDTH)
        value = Signal(32)
        result = Signal(32)
        clock = Signal(32)
        status = Signal(4)
        m.d.sync += [clock.eq(clock + 1), self.eq_reset.eq(0), self.neighbour_ask.eq(0)]

        # What can be written can be read back: from a copy, which is cheaper than a multiplexer over the registers.
        m.submodules.shadow = shadow = memory.Memory(
            shape=32, depth=32, init=[512 if i == REG["tick"].offset // 4 else 0 for i in range(32)]
        )
        shadow_write = shadow.write_port()
        shadow_read = shadow.read_port(domain="comb")
        m.submodules.words = mailbox = memory.Memory(shape=32, depth=MAILBOX_WORDS, init=[])
        mailbox_write = mailbox.write_port()
        mailbox_read = mailbox.read_port(domain="comb")
        busy = self.command.valid
        m.d.comb += [
            shadow_write.addr.eq(address[2:7]),
            shadow_write.data.eq(value),
            shadow_read.addr.eq(address[2:7]),
            mailbox_write.addr.eq(Mux(busy, self.mailbox_addr, address[2:])),
            mailbox_write.data.eq(Mux(busy, self.mailbox_w_data, value)),
            mailbox_read.addr.eq(Mux(busy, self.mailbox_addr, address[2:])),
            self.mailbox_r_data.eq(mailbox_read.data),
            self.counter_addr.payload.eq(address[2:10]),
        ]
        with m.If(busy):
            m.d.comb += mailbox_write.en.eq(self.mailbox_w_en)

        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [self.command.valid.eq(0), status.eq(self.command_result)]
        for doorbell in (self.sq, self.rq, self.consumer, self.arm):
            with m.If(doorbell.ready):
                m.d.sync += doorbell.valid.eq(0)

        # Known with the address: which doorbell it is. One bit of it tells SQ_PUSH from SQ_PRODUCER.
        number, page = address[12:24], address[:12]
        in_push = Signal()
        in_qps = (axil.awaddr[24:26] == abi.QP_PAGES >> 24) & (axil.awaddr[12:24] < self.qps)
        in_cqs = (axil.awaddr[24:26] == abi.CQ_PAGES >> 24) & (axil.awaddr[12:24] < self.cqs)
        hits = {
            "sq": in_qps & ((axil.awaddr[:12] & ~abi.QpDoorbell.SQ_PUSH.value) == abi.QpDoorbell.SQ_PRODUCER),
            "rq": in_qps & (axil.awaddr[:12] == abi.QpDoorbell.RQ_PRODUCER),
            "consumer": in_cqs & (axil.awaddr[:12] == abi.CqDoorbell.CONSUMER),
            "arm": in_cqs & (axil.awaddr[:12] == abi.CqDoorbell.ARM),
        }
        rings = {name: Signal(name=f"rings_{name}") for name in hits}
        m.d.sync += [rings[name].eq(hit) for name, hit in hits.items()]
        m.d.sync += in_push.eq(in_qps & (axil.awaddr[PUSH_BITS:12] == abi.QP_PUSH >> PUSH_BITS))
        m.d.comb += Value.cast(self.push.payload).eq(Cat(number, address[2:PUSH_BITS], value))
        # Known a cycle after the address.
        in_registers = Signal()
        in_mailbox = Signal()
        in_counters = Signal()
        register = Signal(REGISTERS_END // 4)  # which one, a bit each
        base = (address[24:26] == 0) & (number == 0)
        m.d.sync += [
            in_registers.eq(base & (page < REGISTERS_END)),
            in_mailbox.eq(base & (page[8:] == abi.MAILBOX >> 8)),
            in_counters.eq(base & (page[10:] == 3)),
            register.eq(1 << page[2:7]),
        ]
        # What stands in no memory, a cycle later.
        live = {
            "magic": Const(abi.MAGIC, 32),
            "version": Const(abi.VERSION, 32),
            "capabilities": Const(self._capabilities(), 32),
            "command_status": Cat(status, Const(0, 27), busy),
            "status": Cat(self.idle, self.link),
            "clock": clock,
            "next_due": self.next_due,
            "neighbour_mac_low": self.neighbour_mac[:32],
            "neighbour_mac_high": Cat(self.neighbour_mac[32:], Const(0, 15), self.neighbour_valid),
        }
        is_live, living, mail = Signal(), Signal(32), Signal(32)
        chosen = [Mux(register[REG[name].offset // 4], expression, 0) for name, expression in live.items()]
        m.d.sync += [
            is_live.eq(Cat(register[REG[name].offset // 4] for name in live).any()),
            living.eq(reduce(or_, chosen)),
            mail.eq(mailbox_read.data),
        ]
        asked = Signal()  # the counters know which word is wanted

        with m.FSM():
            with m.State("IDLE"):
                with m.If(axil.awvalid & axil.wvalid):
                    m.d.comb += [axil.awready.eq(1), axil.wready.eq(1)]
                    m.d.sync += [address.eq(axil.awaddr), value.eq(axil.wdata)]
                    m.next = "WRITE"
                with m.Elif(axil.arvalid):
                    m.d.comb += axil.arready.eq(1)
                    m.d.sync += [address.eq(axil.araddr), asked.eq(0)]
                    m.next = "READ"
            # Doorbells are on the way of every message, and are written at once.
            with m.State("WRITE"):
                m.next = "WRITE_REGISTER"
                for name, hit in rings.items():
                    doorbell = getattr(self, name)
                    item = Cat(number, value[:16], address[3]) if name == "sq" else Cat(number, value)
                    with m.If(~doorbell.valid):
                        m.d.sync += [doorbell.valid.eq(hit), Value.cast(doorbell.payload).eq(item)]
                    with m.Elif(hit):  # the block behind has not taken it
                        m.next = "WRITE"
                with m.If(in_push):
                    m.d.comb += [self.push.valid.eq(1), axil.bvalid.eq(self.push.ready)]
                    with m.If(~self.push.ready):
                        m.next = "WRITE"
                    with m.Else():
                        m.next = "WRITTEN"
                        with m.If(axil.bready):
                            m.next = "IDLE"
            with m.State("WRITE_REGISTER"):
                m.next = "WRITTEN"
                with m.If(in_registers):
                    m.d.comb += shadow_write.en.eq(1)
                    self._write_registers(m, register, value, busy)
                with m.If(in_mailbox):
                    with m.If(busy):
                        m.next = "WRITE_REGISTER"
                    with m.Else():
                        m.d.comb += mailbox_write.en.eq(1)
            with m.State("WRITTEN"):
                m.d.comb += axil.bvalid.eq(1)
                with m.If(axil.bready):
                    m.next = "IDLE"
            with m.State("READ"):
                m.next = "READ_LIVE"
            with m.State("READ_LIVE"):
                with m.If(~(in_mailbox & busy)):
                    m.next = "READ_REGISTER"
            with m.State("READ_REGISTER"):
                done = Signal(init=1)
                with m.If(in_registers):
                    m.d.sync += result.eq(Mux(is_live, living, shadow_read.data))
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
                    m.d.sync += result.eq(Mux(in_mailbox, mail, 0))
                with m.If(done):
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += [axil.rvalid.eq(1), axil.rdata.eq(result)]
                with m.If(axil.rready):
                    m.next = "IDLE"
        return m

    def _capabilities(self):
        sizes = {"qps": self.qps, "cqs": self.cqs, "data_bytes": self.data_width // 8, "window": self.window}
        able = abi.CAN_PUSH if self.requests else abi.RESPONDS_ONLY
        able |= self.address_width << abi.REACH
        return sum(ceil_log2(sizes[name]) << bit for name, bit in abi.LOG_CAPABILITIES.items()) | able

    def _write_registers(self, m, register, value, busy):
        targets = {
            "control": Cat(self.enable, self.interrupt_enable),
            "mac_low": self.mac[:32],
            "mac_high": self.mac[32:],
            "ip": self.ip,
            "mpt_low": self.mpt_base[:32],
            "mpt_high": self.mpt_base[32:],
            "mpt_log_size": self.mpt_log_size,
            "eq_low": self.eq_base[:32],
            "eq_high": self.eq_base[32:],
            "eq_log_size": self.eq_log_size,
            "eq_consumer": self.eq_consumer,
            "tick": self.tick,
            "neighbour_ip": self.neighbour_ip,
        }
        for name, target in targets.items():
            with m.If(register[REG[name].offset // 4]):
                m.d.sync += target.eq(value)
                if name == "eq_log_size":
                    m.d.sync += [self.eq_reset.eq(1), self.eq_consumer.eq(0)]
                if name == "neighbour_ip":
                    m.d.sync += self.neighbour_ask.eq(1)
        # A command written while one runs is ignored: the driver waits for `busy` to clear.
        with m.If(register[REG["command"].offset // 4] & ~busy):
            m.d.sync += [self.command.valid.eq(1), self.command.payload.as_value().eq(value)]
