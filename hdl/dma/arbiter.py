"""Merging the clients' bursts on the AXI channels, and bringing the answers back."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.skid import Skid
from .axi import Axi4, Burst, Response
from .port import BurstRequest, ReadPort, WriteBeat, WritePort

__all__ = ["BurstArbiter", "ReadArbiter", "WriteArbiter"]

CACHE = 0b0011
"""AxCACHE of all bursts: normal memory, not cacheable, bufferable."""


def check_clients(clients, id_width=None):
    if not isinstance(clients, int) or clients < 1:
        raise ValueError(f"clients must be a positive int, not {clients!r}")
    if id_width is not None and clients > 1 << id_width:
        raise ValueError(f"{clients!r} clients need more than {id_width!r} bits of ID")


def encode(choice):
    """Index of the one bit of ``choice`` that is set."""
    bits = (len(choice) - 1).bit_length()
    return Cat(Cat(choice[i] for i in range(len(choice)) if i >> bit & 1).any() for bit in range(bits))


def select(choice, values):
    """That of ``values`` whose bit in ``choice`` is set; exactly one is, or the result means nothing.

    yosys puts AND-OR of few values into one wide LUT a bit, which on ECP5 is 4 or 8 LUT4: up to 4 values a multiplexer
    is smaller (for 3, 2 LUT4 a bit), from 5 on it is AND-OR.
    """
    values = [Value.cast(value) for value in values]
    if len(values) > 4:
        bits = 0
        for chosen, value in zip(choice, values):
            bits |= value & chosen.replicate(len(value))
        return bits
    for bit in encode(choice):
        pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
        values = [Mux(bit, pair[1], pair[0]) if len(pair) > 1 else pair[0] for pair in pairs]
    return values[0]


class BurstArbiter(wiring.Component):
    """Round robin among ``clients``; what comes out are the fields of an AXI address channel.

    The turn is a register, and stays where it was until somebody else wants it: a burst of the client that has it, or
    of which ``soon`` has told, is taken in the cycle in which it comes, another one a cycle later. It is at the output
    a cycle after it was taken. One burst every 2 cycles. The clients' ``ready`` depends on registers and ``enable``
    only.

    Parameters
    ----------
    clients : int

    Members
    -------
    i : array of streams of ``BurstRequest``
    soon : a bit a client
        A burst is there in the next cycle.
    enable : 1
        Bursts may be taken.
    turn : ``clients`` bits
        Whose burst would be taken, one bit.
    chosen : ``clients`` bits
        The client whose burst is taken in this cycle, one bit; 0: none is.
    address, length, client, valid, ready
        Address channel: registers.
    """

    def __init__(self, clients):
        check_clients(clients)
        self.clients = clients
        super().__init__(
            {
                "i": In(stream.Signature(BurstRequest)).array(clients),
                "soon": In(clients),
                "enable": In(1),
                "turn": Out(clients, init=1),
                "chosen": Out(clients),
                "address": Out(64),
                "length": Out(8),
                "client": Out(range(max(2, clients))),
                "valid": Out(1),
                "ready": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        turn = self.turn
        wanted = Signal(self.clients)
        wish = Signal(self.clients)
        others = Signal(self.clients)
        ahead = Signal(self.clients)  # behind the one whose turn it is: before the round starts again from client 0
        m.d.comb += [
            wanted.eq(Cat(port.valid for port in self.i)),
            # -turn has all bits from the one in turn on; without that one, those behind it
            wish.eq(wanted | self.soon),
            others.eq(wish & ~turn),
            ahead.eq(others & -turn),
            self.chosen.eq(wanted & turn & (self.enable & ~self.valid).replicate(self.clients)),
        ]
        m.d.comb += [port.ready.eq(turn[number] & self.enable & ~self.valid) for number, port in enumerate(self.i)]
        with m.If(others.any() & (self.chosen.any() | ~(wish & turn).any())):
            m.d.sync += turn.eq(Mux(ahead.any(), ahead & -ahead, others & -others))
        with m.If(self.valid):
            m.d.sync += self.valid.eq(~self.ready)
        with m.Else():
            m.d.sync += [
                self.valid.eq(self.chosen.any()),
                Cat(self.address, self.length).eq(select(turn, [port.payload for port in self.i])),
                self.client.eq(encode(turn)),
            ]
        return m


class ReadArbiter(wiring.Component):
    """Brings the clients' reads to AR and their data back from R. The AXI ID is the client's number.

    ARVALID comes 1 or 2 cycles after a client's burst, at most one burst every 2 cycles, round robin. Data goes from R
    to the client in the same cycle, since clients have room for all they ask for: RREADY is always 1. Beats of
    different clients may be interleaved.

    Parameters
    ----------
    data_width : int
    clients : int
        At most ``1 << id_width``.
    id_width : int

    Members
    -------
    client : array of ``ReadPort``
    soon : a bit a client
        A burst is there in the next cycle: saves one, if nobody else wants the bus.
    axi : ``Axi4``
        AR and R; the other channels rest.
    count_bus_errors : 1
        A beat came whose RRESP was not OKAY.
    """

    def __init__(self, data_width, clients, id_width=4):
        check_clients(clients, id_width)
        self.data_width = data_width
        self.clients = clients
        self.id_width = id_width
        super().__init__(
            {
                "client": In(ReadPort(data_width)).array(clients),
                "soon": In(clients),
                "axi": Out(Axi4(data_width, id_width)),
                "count_bus_errors": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi = self.axi
        m.submodules.bursts = bursts = BurstArbiter(self.clients)
        for number, client in enumerate(self.client):
            wiring.connect(m, wiring.flipped(client.burst), bursts.i[number])
            m.d.comb += [
                client.valid.eq(axi.rvalid & (axi.rid == number)),
                client.data.eq(axi.rdata),
                client.error.eq(axi.rresp != Response.OKAY),
                client.last.eq(axi.rlast),
            ]
        m.d.comb += [
            bursts.soon.eq(self.soon),
            bursts.enable.eq(1),
            axi.araddr.eq(bursts.address),
            axi.arlen.eq(bursts.length),
            axi.arid.eq(bursts.client),
            axi.arsize.eq(axi.signature.size),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(CACHE),
            axi.arvalid.eq(bursts.valid),
            bursts.ready.eq(axi.arready),
            axi.rready.eq(1),
        ]
        m.d.sync += self.count_bus_errors.eq(axi.rvalid & (axi.rresp != Response.OKAY))
        return m


class WriteArbiter(wiring.Component):
    """Brings the clients' writes to AW and W and the answers back from B. The AXI ID is the client's number.

    AWVALID comes 1 or 2 cycles after a client's burst, at most one burst every 2 cycles, round robin. W follows the
    order of AW; a client's beats are at W a cycle later, and are taken from the cycle on after that in which its burst
    is taken: so a burst's first beat comes a cycle after its address at the earliest. Up to two bursts may have been
    taken whose data is not complete. BREADY is always 1. W is a register, and no path leads from WREADY to a client.

    Parameters
    ----------
    data_width : int
    clients : int
        At most ``1 << id_width``.
    id_width : int

    Members
    -------
    client : array of ``WritePort``
    soon : a bit a client
        As of the :class:`ReadArbiter`.
    axi : ``Axi4``
        AW, W and B; the other channels rest.
    count_bus_errors : 1
        An answer came that was not OKAY.
    """

    def __init__(self, data_width, clients, id_width=4):
        check_clients(clients, id_width)
        self.data_width = data_width
        self.clients = clients
        self.id_width = id_width
        super().__init__(
            {
                "client": In(WritePort(data_width)).array(clients),
                "soon": In(clients),
                "axi": Out(Axi4(data_width, id_width)),
                "count_bus_errors": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi = self.axi
        m.submodules.bursts = bursts = BurstArbiter(self.clients)
        m.submodules.skid = skid = Skid(WriteBeat(self.data_width))
        beat = skid.i.payload
        now, then = Signal(self.clients), Signal(self.clients)  # whose data is next on W, one bit each
        for number, client in enumerate(self.client):
            wiring.connect(m, wiring.flipped(client.burst), bursts.i[number])
            m.d.comb += [
                client.beat.ready.eq(skid.i.ready & now[number]),
                client.answer.eq(axi.bvalid & (axi.bid == number)),
                client.error.eq(axi.bresp != Response.OKAY),
            ]
        beats = [client.beat for client in self.client]
        done = skid.i.valid & skid.i.ready & beat.last
        m.d.comb += [
            bursts.soon.eq(self.soon),
            bursts.enable.eq(~then.any()),
            axi.awaddr.eq(bursts.address),
            axi.awlen.eq(bursts.length),
            axi.awid.eq(bursts.client),
            axi.awsize.eq(axi.signature.size),
            axi.awburst.eq(Burst.INCR),
            axi.awcache.eq(CACHE),
            axi.awvalid.eq(bursts.valid),
            bursts.ready.eq(axi.awready),
            beat.as_value().eq(select(now, [beat.payload for beat in beats])),
            skid.i.valid.eq((now & Cat(beat.valid for beat in beats)).any()),
            Cat(axi.wdata, axi.wstrb, axi.wlast).eq(skid.o.payload),
            axi.wvalid.eq(skid.o.valid),
            skid.o.ready.eq(axi.wready),
            axi.bready.eq(1),
        ]
        with m.If(done | ~now.any()):
            m.d.sync += [now.eq(then | bursts.chosen), then.eq(0)]  # nothing is chosen while one waits
        with m.Else():
            m.d.sync += then.eq(then | bursts.chosen)
        m.d.sync += self.count_bus_errors.eq(axi.bvalid & (axi.bresp != Response.OKAY))
        return m
