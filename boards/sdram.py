"""Single data rate SDRAM as the engine's host memory."""

from math import ceil

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from verbena.hdl.dma.axi import Axi4, Response
from verbena.hdl.stream.arbiter import StreamArbiter
from verbena.hdl.stream.fifo import Queue

from .bridge_bus import BridgeBus
from .sdram_pins import Command, SdramPins

__all__ = ["Sdram"]

READ_AHEAD = 16
"""Beats that have been asked for and not been taken."""

REFRESHES = 8
"""At the beginning."""

MODE_CYCLES = 2
ALL_BANKS = 1 << 10


class Sdram(wiring.Component):
    """All bytes of ``chip`` at ``base`` of the engine's bus, which a bridge reaches, too, by the same addresses.

    One burst at a time, reads, writes and the bridge in turns, of full beats with consecutive addresses that do not
    cross 4 KiB, as the engine makes them. A burst opens its row, moves a word a cycle, and closes it: 5 cycles before,
    and 6 behind, at 62.5 MHz. A word of which some bytes are written and others not is read, changed and written, which
    takes ``read_delay`` + 2 cycles. A refresh waits for the word that is under way, not for the burst, and what comes
    before the chip is ready waits.
    A burst outside of the memory is answered with DECERR, and has no effect.

    Parameters
    ----------
    data_width : int
        A multiple of ``chip.width``.
    chip : SdramChip
    base : int
        Bus address, a multiple of its size.
    clock : int
        Hz of ``sync``.
    read_delay : int
        Cycles from the one in which ``pins`` show a READ to the one in which they show its word.

    Members
    -------
    axi : ``Axi4``, flipped
    bus : ``BridgeBus``, flipped
        ``error`` outside of the memory. Only if ``chip.width`` is 32.
    pins : ``SdramPins``
        Registers.
    """

    def __init__(self, data_width, chip, base, clock, read_delay=4):
        if data_width % chip.width or chip.width != 32:
            raise ValueError(f"chip.width must be 32, not {chip.width!r}")
        if base % chip.size:
            raise ValueError(f"base must be a multiple of {chip.size:#x}, not {base:#x}")
        if read_delay < chip.cas + 1:
            raise ValueError(f"read_delay must be more than CAS, {chip.cas}, not {read_delay!r}")
        self.data_width = data_width
        self.chip = chip
        self.base = base
        self.clock = clock
        self.read_delay = read_delay
        super().__init__({"axi": In(Axi4(data_width)), "bus": In(BridgeBus()), "pins": Out(SdramPins(chip))})

    def _cycles(self, seconds):
        return ceil(seconds * self.clock - 1e-9)

    def elaborate(self, platform):
        m = Module()
        axi, request, answer, pins, chip = self.axi, self.bus.request, self.bus.answer, self.pins, self.chip
        lanes = self.data_width // chip.width
        lane_bits, column_bits = ceil_log2(lanes), ceil_log2(chip.columns)
        word_bits = ceil_log2(chip.size) - 2
        places = word_bits + 2

        # --- Who wants what: words of 32 bits, one behind the other.
        count_bits = 9 + lane_bits
        access_layout = data.StructLayout(
            {"word": word_bits, "count": count_bits, "id": 4, "write": 1, "bridge": 1, "good": 1}
        )
        m.submodules.arbiter = arbiter = StreamArbiter(access_layout, 3)
        for turn, channel, write in zip(arbiter.i, ("aw", "ar"), (1, 0)):
            address = getattr(axi, f"{channel}addr")
            m.d.comb += [
                turn.valid.eq(getattr(axi, f"{channel}valid")),
                getattr(axi, f"{channel}ready").eq(turn.ready),
                turn.payload.word.eq(Cat(Const(0, lane_bits), address[2 + lane_bits :])),
                turn.payload.count.eq((getattr(axi, f"{channel}len") + 1) << lane_bits),
                turn.payload.id.eq(getattr(axi, f"{channel}id")),
                turn.payload.write.eq(write),
                turn.payload.good.eq(address[places:] == self.base >> places),
            ]
        turn, address = arbiter.i[2], request.payload.address
        m.d.comb += [
            turn.valid.eq(request.valid & ~answer.valid),
            request.ready.eq(turn.ready & ~answer.valid),
            turn.payload.word.eq(address[2:]),
            turn.payload.count.eq(1),
            turn.payload.write.eq(request.payload.write),
            turn.payload.bridge.eq(1),
            turn.payload.good.eq(address[places:] == self.base >> places & (1 << 32 - places) - 1),
        ]
        access = Signal(access_layout)
        put = Signal(32)  # what the bridge writes
        with m.If(answer.ready):
            m.d.sync += answer.valid.eq(0)

        # --- What comes back is put together, and waits for its user.
        item = data.StructLayout({"data": self.data_width, "id": 4, "last": 1, "error": 1})
        m.submodules.beats = beats = Queue(item, READ_AHEAD)
        asked = Signal(range(READ_AHEAD + 1))  # beats
        ask, ask_last = Signal(), Signal()
        returning, lasts = Signal(self.read_delay + 1), Signal(self.read_delay + 1)
        lane = Signal(max(1, lane_bits))
        gathered = Signal(self.data_width)
        came = returning[-1]
        beat = Signal()  # a beat is asked for
        read_word = Signal(32)
        m.d.sync += [returning.eq(Cat(ask, returning)), lasts.eq(Cat(ask_last, lasts)), beats.i.valid.eq(0)]
        m.d.sync += asked.eq(asked + beat - (axi.rvalid & axi.rready))
        with m.If(came):
            m.d.sync += read_word.eq(pins.dq_i)
        with m.If(came & ~access.bridge & ~access.write):
            m.d.sync += [
                gathered.eq(Cat(gathered, pins.dq_i)[32:]),
                lane.eq(lane + 1),
                beats.i.valid.eq(lane == lanes - 1),
                beats.i.payload.last.eq(lasts[-1]),
                beats.i.payload.error.eq(0),
            ]
        m.d.comb += [
            beats.i.payload.data.eq(gathered),
            beats.i.payload.id.eq(access.id),
            axi.rvalid.eq(beats.o.valid),
            beats.o.ready.eq(axi.rready),
            axi.rdata.eq(beats.o.payload.data),
            axi.rid.eq(beats.o.payload.id),
            axi.rlast.eq(beats.o.payload.last),
            axi.rresp.eq(Mux(beats.o.payload.error, Response.DECERR, Response.OKAY)),
        ]

        # --- When a command may come.
        pause = Signal(range(max(self._cycles(chip.refresh), MODE_CYCLES, 8) + 1))  # cycles until the next one
        active = Signal(range(self._cycles(chip.row_active) + 1))  # until the row may be closed
        recover = Signal(range(max(chip.cas, chip.write_recovery) + 1))  # likewise, for the last word's sake
        interval = self._cycles(chip.refresh_all / chip.rows) - 1
        power_up = self._cycles(chip.power_up)
        timer, due = Signal(range(max(interval, power_up) + 1), init=power_up), Signal()
        m.d.sync += timer.eq(timer - 1)
        with m.If(timer == 0):
            m.d.sync += [timer.eq(interval), due.eq(1)]
        for counter in (pause, active, recover):
            with m.If(counter != 0):
                m.d.sync += counter.eq(counter - 1)
        m.d.sync += [pins.command.eq(Command.NOP), pins.dq_oe.eq(0)]

        def issue(command, cycles=1):
            """The next command comes ``cycles`` later at the earliest."""
            m.d.sync += [pins.command.eq(command), pause.eq(cycles - 1)]

        def column(command, recovery):
            issue(command)
            m.d.sync += [pins.bank.eq(bank), pins.address.eq(access.word[:column_bits]), recover.eq(recovery - 1)]

        # --- The commands.
        bank = access.word[column_bits : column_bits + len(pins.bank)]
        row = access.word[column_bits + len(pins.bank) :]
        left = Signal(count_bits)
        refreshes = Signal(range(REFRESHES + 1))
        started, changed = Signal(), Signal()
        at_lane = access.word[:lane_bits]
        strobe = Mux(access.bridge, 0xF, axi.wstrb.word_select(at_lane, 4))
        word = Mux(access.bridge, put, axi.wdata.word_select(at_lane, 32))
        there = access.bridge | axi.wvalid
        merged = Cat(Mux(strobe[n], word.word_select(n, 8), read_word.word_select(n, 8)) for n in range(4))
        ends = at_lane == lanes - 1  # a beat, with this word
        fills = access.word[:column_bits].all()  # the row's last word

        def advance():
            m.d.sync += [access.word.eq(access.word + 1), left.eq(left - 1)]
            with m.If((left == 1) | fills):
                m.next = "CLOSE"

        with m.If(~started):
            with m.FSM(name="beginning"):
                with m.State("POWER"):
                    with m.If(due):
                        issue(Command.PRECHARGE, self._cycles(chip.precharge))
                        m.d.sync += [pins.address.eq(ALL_BANKS), refreshes.eq(REFRESHES)]
                        m.next = "REFRESH"
                with m.State("REFRESH"):
                    with m.If(pause == 0):
                        with m.If(refreshes == 0):
                            issue(Command.MODE, MODE_CYCLES)
                            m.d.sync += [pins.bank.eq(0), pins.address.eq(chip.cas << 4), started.eq(1)]
                        with m.Else():
                            issue(Command.REFRESH, self._cycles(chip.refresh))
                            m.d.sync += refreshes.eq(refreshes - 1)
        with m.Else():
            with m.FSM():
                with m.State("IDLE"):
                    with m.If(due):
                        m.next = "REFRESH"
                    with m.Elif(~returning.any()):
                        m.d.comb += arbiter.o.ready.eq(1)
                        m.d.sync += [access.eq(arbiter.o.payload), put.eq(request.payload.data)]
                        with m.If(arbiter.o.valid):
                            m.d.sync += left.eq(arbiter.o.payload.count)
                            m.next = "OPEN"
                            with m.If(~arbiter.o.payload.good):
                                m.next = "REFUSE"
                with m.State("OPEN"):
                    with m.If(pause == 0):
                        issue(Command.ACTIVATE, self._cycles(chip.row_to_column))
                        m.d.sync += [pins.bank.eq(bank), pins.address.eq(row)]
                        m.d.sync += active.eq(self._cycles(chip.row_active) - 1)
                        m.next = "MOVE"
                with m.State("MOVE"):
                    with m.If(due):
                        m.next = "CLOSE"
                    with m.Elif((pause == 0) & ~access.write):
                        with m.If(access.bridge | (asked != READ_AHEAD) | (at_lane != 0)):
                            column(Command.READ, chip.cas)
                            m.d.comb += [ask.eq(1), ask_last.eq(left == 1), beat.eq(~access.bridge & (at_lane == 0))]
                            advance()
                    with m.Elif((pause == 0) & there):
                        with m.If(strobe.all() | ~strobe.any()):
                            with m.If(strobe.any()):
                                column(Command.WRITE, chip.write_recovery)
                                m.d.sync += [pins.dq_o.eq(word), pins.dq_oe.eq(1)]
                            m.d.comb += axi.wready.eq(~access.bridge & ends)
                            advance()
                        with m.Else():
                            column(Command.READ, chip.cas)
                            m.d.comb += ask.eq(1)
                            m.next = "MERGE"
                with m.State("MERGE"):
                    m.d.sync += changed.eq(came)
                    with m.If(changed):
                        column(Command.WRITE, chip.write_recovery)
                        m.d.sync += [pins.dq_o.eq(merged), pins.dq_oe.eq(1)]
                        m.d.comb += axi.wready.eq(ends)
                        m.next = "MOVE"
                        advance()
                with m.State("CLOSE"):
                    with m.If((active == 0) & (recover == 0) & (pause == 0)):
                        issue(Command.PRECHARGE, self._cycles(chip.precharge))
                        m.d.sync += pins.address.eq(ALL_BANKS)
                        m.next = "IDLE"
                        with m.If(left != 0):
                            m.next = "REFRESH"
                        with m.Elif(access.write | access.bridge):
                            m.next = "ANSWER"
                with m.State("REFRESH"):
                    with m.If(~due):
                        m.next = "OPEN"
                    with m.Elif(pause == 0):
                        issue(Command.REFRESH, self._cycles(chip.refresh))
                        m.d.sync += due.eq(0)
                        m.next = "IDLE"
                        with m.If(left != 0):
                            m.next = "OPEN"
                with m.State("REFUSE"):
                    final = left == lanes
                    with m.If(access.bridge):
                        m.next = "ANSWER"
                    with m.Elif(access.write):
                        m.d.comb += axi.wready.eq(1)
                        with m.If(axi.wvalid):
                            m.d.sync += left.eq(left - lanes)
                            with m.If(final):
                                m.next = "ANSWER"
                    with m.Elif(asked != READ_AHEAD):
                        m.d.comb += beat.eq(1)
                        m.d.sync += [
                            left.eq(left - lanes),
                            beats.i.valid.eq(1),
                            beats.i.payload.last.eq(final),
                            beats.i.payload.error.eq(1),
                        ]
                        with m.If(final):
                            m.next = "IDLE"
                with m.State("ANSWER"):
                    with m.If(access.bridge):
                        with m.If(~returning.any()):
                            m.d.sync += [
                                left.eq(0),
                                answer.valid.eq(1),
                                answer.payload.data.eq(read_word),
                                answer.payload.error.eq(~access.good),
                            ]
                            m.next = "IDLE"
                    with m.Else():
                        m.d.comb += [
                            axi.bvalid.eq(1),
                            axi.bid.eq(access.id),
                            axi.bresp.eq(Mux(access.good, Response.OKAY, Response.DECERR)),
                        ]
                        with m.If(axi.bready):
                            m.next = "IDLE"
        return m
