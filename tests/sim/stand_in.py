"""A small component with the ports of the engine: it copies memory, echoes frames and sends frames of its own."""

from pathlib import Path

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from verbena.hdl.stream.packet import PacketBeat
from verbena.sim.model import Design

__all__ = ["MAGIC", "R", "StandIn", "stand_in"]

MAGIC = 0x57A4D1


class R:
    """Registers: SOURCE, TARGET and MAC are low and high words."""

    MAGIC = 0x00
    SOURCE = 0x08
    TARGET = 0x10
    MAC = 0x18
    COPY = 0x20  # w: copy (beats) | id << 16; r: copies done | worst response << 16
    ACKNOWLEDGE = 0x24  # w: lower the interrupt; r: cycles of the last read
    SEND = 0x28  # w: send frames: bytes | count << 16; r: frames sent
    ECHO = 0x2C  # w: bit 0: send what comes to MAC
    RECEIVED = 0x30  # frames | damaged << 16
    BYTES = 0x34


def axi_lite(address_width):
    return wiring.Signature(
        {
            "awaddr": In(address_width),
            "awprot": In(3),
            "awvalid": In(1),
            "awready": Out(1),
            "wdata": In(32),
            "wstrb": In(4),
            "wvalid": In(1),
            "wready": Out(1),
            "bresp": Out(2),
            "bvalid": Out(1),
            "bready": In(1),
            "araddr": In(address_width),
            "arprot": In(3),
            "arvalid": In(1),
            "arready": Out(1),
            "rdata": Out(32),
            "rresp": Out(2),
            "rvalid": Out(1),
            "rready": In(1),
        }
    )


def axi4(data_width):
    def address(c):
        fields = {
            "id": 4,
            "addr": 64,
            "len": 8,
            "size": 3,
            "burst": 2,
            "lock": 1,
            "cache": 4,
            "prot": 3,
            "qos": 4,
            "valid": 1,
        }
        return {**{f"a{c}{name}": Out(width) for name, width in fields.items()}, f"a{c}ready": In(1)}

    return wiring.Signature(
        {
            **address("w"),
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(4),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            **address("r"),
            "rid": In(4),
            "rdata": In(data_width),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
    )


class StandIn(wiring.Component):
    def __init__(self, data_width=64, address_width=26):
        self.data_width = data_width
        self.address_width = address_width
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "axi": Out(axi4(data_width)),
                "axil": Out(axi_lite(address_width)),
                "tx": Out(stream.Signature(beat)),
                "rx": In(stream.Signature(beat)),
                "interrupt": Out(1),
                "link": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi, axil, width = self.axi, self.axil, self.data_width // 8
        words = Array(Signal(32, name=f"word{i}") for i in range(16))
        source, target, mac = Cat(words[2], words[3]), Cat(words[4], words[5]), Cat(words[6], words[7])
        copies, frames, damaged, sent = Signal(16), Signal(16), Signal(16), Signal(16)
        response, size, latency, clock = Signal(2), Signal(32), Signal(32), Signal(32)
        m.d.sync += clock.eq(clock + 1)

        # Registers.
        write = Signal()
        aw = axil.awaddr[2:6]
        m.d.comb += [
            write.eq(axil.awvalid & axil.wvalid & ~axil.bvalid),
            axil.awready.eq(write),
            axil.wready.eq(write),
            axil.arready.eq(~axil.rvalid),
            axil.bresp.eq(0),
        ]
        with m.If(axil.bready):
            m.d.sync += axil.bvalid.eq(0)
        with m.If(write):
            m.d.sync += [axil.bvalid.eq(1), words[aw].eq(axil.wdata)]
        with m.If(axil.rvalid & axil.rready):
            m.d.sync += axil.rvalid.eq(0)
        with m.If(axil.arvalid & axil.arready):
            m.d.sync += [axil.rvalid.eq(1), axil.rdata.eq(words[axil.araddr[2:6]])]
            m.d.sync += axil.rresp.eq(Mux(axil.araddr >= 0x40, 2, 0))
            with m.Switch(axil.araddr[2:6]):
                for at, value in [
                    (R.MAGIC, MAGIC),
                    (R.COPY, Cat(copies, response)),
                    (R.ACKNOWLEDGE, latency),
                    (R.SEND, sent),
                    (R.RECEIVED, Cat(frames, damaged)),
                    (R.BYTES, size),
                ]:
                    with m.Case(at // 4):
                        m.d.sync += axil.rdata.eq(value)

        # The copier: one burst in, one burst out.
        m.submodules.buffer = buffer = memory.Memory(shape=self.data_width, depth=256, init=[])
        store, load = buffer.write_port(), buffer.read_port(domain="comb")
        index, length, identity, count = Signal(8), Signal(8), Signal(4), Signal(8)
        full = ceil_log2(width)
        m.d.comb += [
            axi.araddr.eq(source),
            axi.awaddr.eq(target),
            axi.arlen.eq(length),
            axi.awlen.eq(length),
            axi.arsize.eq(full),
            axi.awsize.eq(full),
            axi.arburst.eq(1),
            axi.awburst.eq(1),
            axi.arid.eq(identity),
            axi.awid.eq(identity),
            axi.wstrb.eq(-1),
            store.addr.eq(index),
            store.data.eq(axi.rdata),
            load.addr.eq(count),
            axi.wdata.eq(load.data),
            axi.wlast.eq(count == length),
        ]
        with m.FSM():
            with m.State("IDLE"), m.If(write & (aw == R.COPY // 4)):
                m.d.sync += [length.eq(axil.wdata[:8] - 1), identity.eq(axil.wdata[16:20]), index.eq(0), count.eq(0)]
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += axi.arvalid.eq(1)
                with m.If(axi.arready):
                    m.d.sync += latency.eq(clock)
                    m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += [axi.rready.eq(1), store.en.eq(axi.rvalid)]
                with m.If(axi.rvalid):
                    m.d.sync += [index.eq(index + 1), response.eq(response | axi.rresp)]
                    with m.If(index == 0):
                        m.d.sync += latency.eq(clock - latency)
                    with m.If(axi.rlast):
                        m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.comb += axi.awvalid.eq(1)
                with m.If(axi.awready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += axi.wvalid.eq(1)
                with m.If(axi.wready):
                    m.d.sync += count.eq(count + 1)
                    with m.If(axi.wlast):
                        m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += axi.bready.eq(1)
                with m.If(axi.bvalid):
                    m.d.sync += [copies.eq(copies + 1), response.eq(response | axi.bresp), self.interrupt.eq(1)]
                    m.next = "IDLE"
        with m.If(write & (aw == R.ACKNOWLEDGE // 4)):
            m.d.sync += self.interrupt.eq(0)

        # The wire: frames of its own before echoes.
        todo, position, bytes_ = Signal(16), Signal(16), Signal(16)
        echo = words[R.ECHO // 4][0]
        tx, rx = self.tx, self.rx
        echoing = Signal()
        left = Signal(16)
        # Beside the stream: bits of a record that depend on others of it look like a loop.
        begins = Signal()
        m.d.comb += left.eq(bytes_ - position)
        with m.If((todo != 0) & ~echoing):
            m.d.comb += [
                tx.valid.eq(1),
                begins.eq(position == 0),
                tx.payload.last.eq(left <= width),
                tx.payload.count.eq(Mux(left <= width, left, width)),
                tx.payload.data.eq(pattern(position, width)),
            ]
            with m.If(tx.ready):
                m.d.sync += position.eq(position + width)
                with m.If(tx.payload.last):
                    m.d.sync += [position.eq(0), todo.eq(todo - 1), sent.eq(sent + 1)]
        with m.Else():
            m.d.comb += [tx.valid.eq(rx.valid & echo), tx.payload.eq(rx.payload), rx.ready.eq(tx.ready | ~echo)]
            m.d.comb += begins.eq(rx.payload.first)
        with m.If(rx.valid & echo & (todo == 0)):
            m.d.sync += echoing.eq(~(tx.ready & rx.payload.last))
        m.d.comb += tx.payload.first.eq(begins)
        with m.If(begins):
            m.d.comb += tx.payload.data[:48].eq(mac[:48])
        with m.If(write & (aw == R.SEND // 4)):
            m.d.sync += [bytes_.eq(axil.wdata[:16]), todo.eq(axil.wdata[16:])]
        with m.If(rx.valid & rx.ready):
            m.d.sync += size.eq(size + rx.payload.count)
            with m.If(rx.payload.last):
                m.d.sync += [frames.eq(frames + 1), damaged.eq(damaged + rx.payload.error)]
        return m


def pattern(position, width):
    """Byte *n* of a frame is *n* modulo 256."""
    return Cat((position + i)[:8] for i in range(width))


def stand_in(data_width=64):
    return Design.of(
        lambda: StandIn(data_width),
        [Path(__file__)],
        parameters=f"{data_width}",
        name="stand_in",
        data_width=data_width,
    )
