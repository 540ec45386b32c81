"""Merging the clients' bursts on the AXI channels, and bringing the answers back."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream.arbiter import gather
from ..stream.skid import Skid
from .axi import Axi4, Burst, Response
from .port import BurstRequest, ReadPort, WriteBeat, WritePort

__all__ = ["BurstArbiter", "ReadArbiter", "WriteArbiter"]

CACHE = 0b0010
"""AxCACHE of all bursts: normal memory, not cacheable, not bufferable (AXI4, A4.4). A bufferable write may be answered
before others can see it, and the order of visibility rests on the answer: payload before ACK, payload before CQE."""


def check_clients(clients, id_width=None):
    if not isinstance(clients, int) or clients < 1:
        raise ValueError(f"clients must be a positive int, not {clients!r}")
    if id_width is not None and clients > 1 << id_width - 1:
        raise ValueError(f"{clients!r} clients need more than {id_width!r} bits of ID, of which one is the life")


def encode(choice):
    """Index of the one bit of ``choice`` that is set."""
    bits = (len(choice) - 1).bit_length()
    return Cat(Cat(choice[i] for i in range(len(choice)) if i >> bit & 1).any() for bit in range(bits))


class BurstArbiter(wiring.Component):
    """Round robin among ``clients``; what comes out are the fields of an AXI address channel.

    The turn is a register, and stays where it was until somebody else wants it: a burst of the client that has it is
    taken in the cycle in which it comes, another one a cycle later. It is at the output a cycle after it was taken. One
    burst every 2 cycles. The clients' ``ready`` depends on registers only.

    Parameters
    ----------
    clients : int

    Members
    -------
    i : array of streams of ``BurstRequest``
    enable : 1
        Bursts may be taken in the next cycle.
    life : 1
        The life of those who ask.
    turn : ``clients`` bits
        Whose burst would be taken, one bit.
    chosen : ``clients`` bits
        The client whose burst is taken in this cycle, one bit; 0: none is.
    sure : ``clients`` bits
        ``chosen``, if the burst has waited for its turn; else 0. It depends on what ``ready`` does.
    address, length, client, of_life, valid, ready
        Address channel. Address and length are the OR of registers, the others are registers. ``of_life`` is ``life``
        as it was when the burst was taken.
    """

    def __init__(self, clients):
        check_clients(clients)
        self.clients = clients
        super().__init__(
            {
                "i": In(stream.Signature(BurstRequest)).array(clients),
                "enable": In(1),
                "life": In(1),
                "turn": Out(clients, init=1),
                "chosen": Out(clients),
                "sure": Out(clients),
                "address": Out(64),
                "length": Out(8),
                "client": Out(range(max(2, clients))),
                "of_life": Out(1),
                "valid": Out(1),
                "ready": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        turn = self.turn
        wanted = Signal(self.clients)
        others = Signal(self.clients)
        ahead = Signal(self.clients)  # behind the one whose turn it is: before the round starts again from client 0
        waited = Signal(self.clients)
        free = Signal()
        m.d.comb += [
            wanted.eq(Cat(port.valid for port in self.i)),
            # -turn has all bits from the one in turn on; without that one, those behind it
            others.eq(wanted & ~turn),
            ahead.eq(others & -turn),
            self.chosen.eq(wanted & turn & free.replicate(self.clients)),
            self.sure.eq(waited & turn & free.replicate(self.clients)),
        ]
        m.d.comb += [port.ready.eq(turn[number] & free) for number, port in enumerate(self.i)]
        m.d.sync += [
            waited.eq(wanted),
            free.eq(self.enable & Mux(self.valid, self.ready, ~self.chosen.any())),
        ]
        with m.If(others.any() & (self.chosen.any() | ~(wanted & turn).any())):
            m.d.sync += turn.eq(Mux(ahead.any(), ahead & -ahead, others & -others))
        m.d.comb += Cat(self.address, self.length).eq(
            gather(m, "burst", turn, [port.payload for port in self.i], ~self.valid)
        )
        with m.If(self.valid):
            m.d.sync += self.valid.eq(~self.ready)
        with m.Else():
            m.d.sync += [self.valid.eq(self.chosen.any()), self.client.eq(encode(turn)), self.of_life.eq(self.life)]
        return m


def identity(bursts, id_width):
    """The AXI ID of what ``bursts`` offers."""
    return Cat(bursts.client, Const(0, id_width - 1 - len(bursts.client)), bursts.of_life)


class ReadArbiter(wiring.Component):
    """Brings the clients' reads to AR and their data back from R. The AXI ID is the client's number and, in its highest
    bit, ``life``.

    ARVALID comes 1 or 2 cycles after a client's burst, at most one burst every 2 cycles, round robin. Data is at the
    client a cycle after it was on R, in a register that all clients share. They have room for all they ask for: RREADY
    is always 1. Beats of different clients may be interleaved.

    The clients may be reset while this block goes on, and the bus sees nothing of it. With ``stop`` no burst is taken,
    and those that were are completed. If their answers do not come, ``life`` changes before the clients ask again:
    beats of the other life are taken from the bus, and go to nobody.

    Parameters
    ----------
    data_width : int
    clients : int
        At most half of ``1 << id_width``.
    id_width : int

    Members
    -------
    client : array of ``ReadPort``
    stop : 1
        No further burst is taken from the next cycle on.
    life : 1
        Changes only while the clients are in reset, and not in the last cycle of it.
    axi : ``Axi4``
        AR and R; the other channels rest.
    begun, ended : 1
        Strobes: the bus has taken an address of this life, or given the last beat of its data. Registers.
    count_bus_errors : 1
        A beat came whose RRESP was not OKAY.
    """

    def __init__(self, data_width, clients, id_width=5):
        check_clients(clients, id_width)
        self.data_width = data_width
        self.clients = clients
        self.id_width = id_width
        super().__init__(
            {
                "client": In(ReadPort(data_width)).array(clients),
                "stop": In(1),
                "life": In(1),
                "axi": Out(Axi4(data_width, id_width)),
                "begun": Out(1),
                "ended": Out(1),
                "count_bus_errors": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi = self.axi
        m.submodules.bursts = bursts = BurstArbiter(self.clients)
        data, error, last = Signal(self.data_width, reset_less=True), Signal(), Signal()
        for number, client in enumerate(self.client):
            wiring.connect(m, wiring.flipped(client.burst), bursts.i[number])
            m.d.sync += client.valid.eq(axi.rvalid & (axi.rid == Cat(Const(number, self.id_width - 1), self.life)))
            m.d.comb += [client.data.eq(data), client.error.eq(error), client.last.eq(last)]
        m.d.sync += [data.eq(axi.rdata), error.eq(axi.rresp != Response.OKAY), last.eq(axi.rlast)]
        m.d.comb += [
            bursts.enable.eq(~self.stop),
            bursts.life.eq(self.life),
            axi.araddr.eq(bursts.address),
            axi.arlen.eq(bursts.length),
            axi.arid.eq(identity(bursts, self.id_width)),
            axi.arsize.eq(axi.signature.size),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(CACHE),
            axi.arvalid.eq(bursts.valid),
            bursts.ready.eq(axi.arready),
            axi.rready.eq(1),
        ]
        m.d.sync += [
            self.begun.eq(axi.arvalid & axi.arready & (bursts.of_life == self.life)),
            self.ended.eq(axi.rvalid & axi.rlast & (axi.rid[-1] == self.life)),
            self.count_bus_errors.eq(axi.rvalid & (axi.rresp != Response.OKAY)),
        ]
        return m


class WriteArbiter(wiring.Component):
    """Brings the clients' writes to AW and W and the answers back from B. The AXI ID is as of the :class:`ReadArbiter`.

    AWVALID comes 1 or 2 cycles after a client's burst, at most one burst every 2 cycles, round robin. W follows the
    order of AW; a client's beats are at W 2 cycles later, one a cycle. The first is taken with its burst, if that had
    to wait for its turn and nobody's data is under way, else in the next cycle or later: so a burst's first beat comes
    a cycle after its address at the earliest. Up to two bursts may have been taken whose data is not complete. BREADY
    is always 1. W is a register, and no path leads from WREADY to a client.

    The clients may be reset while this block goes on, as of the :class:`ReadArbiter`. Data that is still to come then
    is made up, without strobes: it changes no memory.

    Parameters
    ----------
    data_width : int
    clients : int
        At most half of ``1 << id_width``.
    id_width : int

    Members
    -------
    client : array of ``WritePort``
    stop, life : 1
        As of the :class:`ReadArbiter`.
    cut : 1
        The clients are in reset from the next cycle on; only with ``stop``. A burst may still be taken in its first
        cycle.
    axi : ``Axi4``
        AW, W and B; the other channels rest.
    begun, ended : 1
        Strobes: the bus has taken an address of this life, or answered a burst. Registers.
    count_bus_errors : 1
        An answer came that was not OKAY.
    """

    def __init__(self, data_width, clients, id_width=5):
        check_clients(clients, id_width)
        self.data_width = data_width
        self.clients = clients
        self.id_width = id_width
        super().__init__(
            {
                "client": In(WritePort(data_width)).array(clients),
                "stop": In(1),
                "life": In(1),
                "cut": In(1),
                "axi": Out(Axi4(data_width, id_width)),
                "begun": Out(1),
                "ended": Out(1),
                "count_bus_errors": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        axi = self.axi
        m.submodules.bursts = bursts = BurstArbiter(self.clients)
        m.submodules.skid = skid = Skid(WriteBeat(self.data_width))
        now, then = Signal(self.clients), Signal(self.clients)  # whose data is next on W, one bit each,
        busy, more = Signal(), Signal()  # if it is anybody's
        owner = Signal(self.clients)  # who may give a beat: `now`, or whose burst is taken in this cycle
        made_up = Signal()  # the data of `now` and `then`
        moves, more_next, made_up_next = Signal(), Signal(), Signal()
        held, step = Signal(), Signal()  # a beat is on its way to the skid; it moves on
        for number, client in enumerate(self.client):
            wiring.connect(m, wiring.flipped(client.burst), bursts.i[number])
            m.d.comb += [
                client.beat.ready.eq(owner[number] & step),
                client.answer.eq(axi.bvalid & (axi.bid == Cat(Const(number, self.id_width - 1), self.life))),
                client.error.eq(axi.bresp != Response.OKAY),
            ]
        beats = [client.beat for client in self.client]
        last, made_last, given, done = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            owner.eq(Mux(busy, now & ~made_up.replicate(self.clients), bursts.sure)),
            step.eq(~held | skid.i.ready),
            last.eq((owner & Cat(beat.payload.last for beat in beats)).any()),
            given.eq(step & (owner & Cat(beat.valid for beat in beats)).any()),
            done.eq(given & last),
        ]
        with m.If(step):
            m.d.sync += [held.eq(given), made_last.eq(made_up & last)]

        # What is left of `now` matters when it is made up; a burst's length is known a cycle after it was taken.
        taken = Signal(8)
        length, next_length = Signal(8), Signal(8)
        chosen, chosen_now = Signal(), Signal()
        m.d.sync += [chosen.eq(bursts.chosen.any()), chosen_now.eq(moves)]
        with m.If(given):
            m.d.sync += taken.eq(Mux(last, 0, taken + 1))
        with m.If(chosen):
            m.d.sync += next_length.eq(bursts.length)
        with m.If(chosen & chosen_now):
            m.d.sync += length.eq(bursts.length)
        with m.Elif(done):
            m.d.sync += length.eq(Mux(chosen, bursts.length, next_length))

        m.d.comb += [
            bursts.enable.eq(~more_next & ~self.stop & ~made_up_next),
            bursts.life.eq(self.life),
            axi.awaddr.eq(bursts.address),
            axi.awlen.eq(bursts.length),
            axi.awid.eq(identity(bursts, self.id_width)),
            axi.awsize.eq(axi.signature.size),
            axi.awburst.eq(Burst.INCR),
            axi.awcache.eq(CACHE),
            axi.awvalid.eq(bursts.valid),
            bursts.ready.eq(axi.awready),
            skid.i.payload.eq(gather(m, "beat", owner, [beat.payload for beat in beats], step)),
            skid.i.valid.eq(held),
            Cat(axi.wdata, axi.wstrb, axi.wlast).eq(skid.o.payload),
            axi.wvalid.eq(skid.o.valid),
            skid.o.ready.eq(axi.wready),
            axi.bready.eq(1),
        ]
        with m.If(made_last):
            m.d.comb += skid.i.payload.last.eq(1)
        with m.If(made_up):
            m.d.comb += [given.eq(step & busy), last.eq(taken == length)]
        m.d.comb += [
            moves.eq(done | ~busy),
            more_next.eq((more | bursts.chosen.any()) & ~moves),  # nothing is chosen while one waits
            made_up_next.eq(self.cut | (made_up & busy)),
        ]
        m.d.sync += [more.eq(more_next), made_up.eq(made_up_next)]
        with m.If(bursts.chosen.any()):
            m.d.sync += then.eq(bursts.chosen)
        with m.If(moves):
            m.d.sync += now.eq(Mux(more, then, bursts.chosen))
            m.d.sync += busy.eq((more | bursts.chosen.any()) & ~(done & ~busy))  # a single beat may go with its burst
        m.d.sync += [
            self.begun.eq(axi.awvalid & axi.awready & (bursts.of_life == self.life)),
            self.ended.eq(axi.bvalid & (axi.bid[-1] == self.life)),
            self.count_bus_errors.eq(axi.bvalid & (axi.bresp != Response.OKAY)),
        ]
        return m
