"""Single data rate SDRAM as the engine's host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from verbena.hdl.dma.axi import Axi4, Response
from verbena.hdl.stream.arbiter import StreamArbiter

from .bridge_bus import BridgeBus
from .sdram_commands import SdramCommands
from .sdram_pins import SdramPins
from .sdram_reads import SdramReads

__all__ = ["Sdram"]

REFRESHES = 8
"""At the beginning."""

WORD = 4
"""Bytes."""


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
    chip : SdramChip
        32 bits wide.
    base : int
        Bus address, a multiple of its size.
    clock : int
        Hz of ``sync``.
    read_delay : int
        Cycles from the one in which ``pins`` show a READ to the one in which they show its word, more than
        ``chip.cas``.

    Members
    -------
    axi : ``Axi4``, flipped
    bus : ``BridgeBus``, flipped
        ``error`` outside of the memory.
    pins : ``SdramPins``
        Registers.

    Raises
    ------
    ValueError
        ``chip.width``, ``base`` or ``read_delay`` is none of these.
    """

    def __init__(self, data_width, chip, base, clock, read_delay=4):
        if chip.width != 8 * WORD:
            raise ValueError(f"chip.width must be {8 * WORD}, not {chip.width!r}")
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

    def elaborate(self, platform):
        m = Module()
        chip, lanes = self.chip, self.data_width // (8 * WORD)
        lane_bits, column_bits, bank_bits = ceil_log2(lanes), ceil_log2(chip.columns), len(self.pins.bank)
        # Words of 32 bits, one behind the other; the state machine goes on in ``word`` and ``left``.
        self._lanes, self._lane_bits = lanes, lane_bits
        self._layout = data.StructLayout(
            {
                "word": ceil_log2(chip.size // WORD),
                "count": 9 + lane_bits,
                "id": len(self.axi.awid),
                "write": 1,
                "bridge": 1,
                "good": 1,
            }
        )
        self._access = access = Signal(self._layout)
        self._left = Signal(9 + lane_bits)
        self._put = Signal(8 * WORD)  # what the bridge writes
        self._lane, self._column = access.word[:lane_bits], access.word[:column_bits]
        self._bank, self._row = access.word[column_bits:][:bank_bits], access.word[column_bits + bank_bits :]
        self._commands = SdramCommands(m, chip, self.clock, self.pins)
        turns = self._choose(m)
        self._reads = SdramReads(m, self.axi, self.pins.dq_i, access, self.read_delay)
        with m.If(self.bus.answer.ready):
            m.d.sync += self.bus.answer.valid.eq(0)

        started = Signal()
        with m.If(~started):
            self._begin(m, started)
        with m.Else():
            with m.FSM():
                self._take(m, turns)
                self._open(m)
                self._move(m)
                self._merge(m)
                self._close(m)
                self._refresh(m)
                self._refuse(m)
                self._answer(m)
        return m

    def _choose(self, m):
        """Reads, writes and the bridge in turns; returns the stream of their accesses."""
        axi, request, lane_bits = self.axi, self.bus.request, self._lane_bits
        places = ceil_log2(self.chip.size)
        m.submodules.arbiter = arbiter = StreamArbiter(self._layout, 3)
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
        turn, address, idle = arbiter.i[2], request.payload.address, ~self.bus.answer.valid
        m.d.comb += [
            turn.valid.eq(request.valid & idle),
            request.ready.eq(turn.ready & idle),
            turn.payload.word.eq(address[2:]),
            turn.payload.count.eq(1),
            turn.payload.write.eq(request.payload.write),
            turn.payload.bridge.eq(1),
            turn.payload.good.eq(address[places:] == self.base >> places & (1 << 32 - places) - 1),
        ]
        return arbiter.o

    def _begin(self, m, started):
        """What the chip wants behind power-up."""
        commands = self._commands
        left = Signal(range(REFRESHES + 1))
        with m.FSM(name="beginning"):
            with m.State("POWER"):
                with m.If(commands.due):
                    commands.precharge()
                    m.d.sync += left.eq(REFRESHES)
                    m.next = "REFRESH"
            with m.State("REFRESH"):
                with m.If(commands.pause == 0):
                    with m.If(left == 0):
                        commands.mode()
                        m.d.sync += started.eq(1)
                    with m.Else():
                        commands.refresh()
                        m.d.sync += left.eq(left - 1)

    def _take(self, m, turns):
        """The next access, when nothing of the one before is on its way back."""
        with m.State("IDLE"):
            with m.If(self._commands.due):
                m.next = "REFRESH"
            with m.Elif(~self._reads.busy):
                m.d.comb += turns.ready.eq(1)
                m.d.sync += [self._access.eq(turns.payload), self._put.eq(self.bus.request.payload.data)]
                with m.If(turns.valid):
                    m.d.sync += self._left.eq(turns.payload.count)
                    m.next = "OPEN"
                    with m.If(~turns.payload.good):
                        m.next = "REFUSE"

    def _open(self, m):
        with m.State("OPEN"):
            with m.If(self._commands.pause == 0):
                self._commands.activate(self._bank, self._row)
                m.next = "MOVE"

    def _read(self, m):
        self._commands.read(self._bank, self._column)
        m.d.comb += self._reads.ask.eq(1)

    def _advance(self, m):
        """A word is done."""
        m.d.sync += [self._access.word.eq(self._access.word + 1), self._left.eq(self._left - 1)]
        with m.If((self._left == 1) | self._column.all()):
            m.next = "CLOSE"

    def _written(self):
        """Its bytes' strobes, a word, and whether they are there."""
        axi, bridge = self.axi, self._access.bridge
        strobe = Mux(bridge, 0xF, axi.wstrb.word_select(self._lane, WORD))
        return strobe, Mux(bridge, self._put, axi.wdata.word_select(self._lane, 8 * WORD)), bridge | axi.wvalid

    def _move(self, m):
        """A word a cycle; one of which only some bytes are written is read first."""
        commands, access = self._commands, self._access
        strobe, word, there = self._written()
        with m.State("MOVE"):
            with m.If(commands.due):
                m.next = "CLOSE"
            with m.Elif((commands.pause == 0) & ~access.write):
                with m.If(access.bridge | ~self._reads.full | (self._lane != 0)):
                    self._read(m)
                    m.d.comb += [
                        self._reads.ask_last.eq(self._left == 1),
                        self._reads.ask_beat.eq(~access.bridge & (self._lane == 0)),
                    ]
                    self._advance(m)
            with m.Elif((commands.pause == 0) & there):
                with m.If(strobe.all() | ~strobe.any()):
                    with m.If(strobe.any()):
                        commands.write(self._bank, self._column, word)
                    m.d.comb += self.axi.wready.eq(~access.bridge & (self._lane == self._lanes - 1))
                    self._advance(m)
                with m.Else():
                    self._read(m)
                    m.next = "MERGE"

    def _merge(self, m):
        """The word has come, is changed and written."""
        strobe, word, _ = self._written()
        merged = Cat(Mux(strobe[n], word.word_select(n, 8), self._reads.word.word_select(n, 8)) for n in range(WORD))
        there = Signal()
        with m.State("MERGE"):
            m.d.sync += there.eq(self._reads.came)
            with m.If(there):
                self._commands.write(self._bank, self._column, merged)
                m.d.comb += self.axi.wready.eq(self._lane == self._lanes - 1)
                m.next = "MOVE"
                self._advance(m)

    def _close(self, m):
        commands, access = self._commands, self._access
        with m.State("CLOSE"):
            with m.If((commands.active == 0) & (commands.recover == 0) & (commands.pause == 0)):
                commands.precharge()
                m.next = "IDLE"
                with m.If(self._left != 0):
                    m.next = "REFRESH"
                with m.Elif(access.write | access.bridge):
                    m.next = "ANSWER"

    def _refresh(self, m):
        """A refresh, if it is time, and then what is left of the burst."""
        commands = self._commands
        with m.State("REFRESH"):
            with m.If(~commands.due):
                m.next = "OPEN"
            with m.Elif(commands.pause == 0):
                commands.refresh()
                m.d.sync += commands.due.eq(0)
                m.next = "IDLE"
                with m.If(self._left != 0):
                    m.next = "OPEN"

    def _refuse(self, m):
        """A burst outside of the memory: all beats of a write are taken, all beats of a read are answered."""
        access, left = self._access, self._left
        final = left == self._lanes
        with m.State("REFUSE"):
            with m.If(access.bridge):
                m.next = "ANSWER"
            with m.Elif(access.write):
                m.d.comb += self.axi.wready.eq(1)
                with m.If(self.axi.wvalid):
                    m.d.sync += left.eq(left - self._lanes)
                    with m.If(final):
                        m.next = "ANSWER"
            with m.Elif(~self._reads.full):
                self._reads.refuse(final)
                m.d.sync += left.eq(left - self._lanes)
                with m.If(final):
                    m.next = "IDLE"

    def _answer(self, m):
        """To a write, or to the bridge."""
        axi, answer, access = self.axi, self.bus.answer, self._access
        with m.State("ANSWER"):
            with m.If(access.bridge):
                with m.If(~self._reads.busy):
                    m.d.sync += [
                        self._left.eq(0),
                        answer.valid.eq(1),
                        answer.payload.data.eq(self._reads.word),
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
