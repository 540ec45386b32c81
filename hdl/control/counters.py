"""The engine's counters."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.counters import COUNTERS
from ..stream.ram import Ram

__all__ = ["Counters"]

GROUP = 8
"""Counters of which one is chosen a cycle before the group is."""


class Counters(wiring.Component):
    """Adds up what the engine counts, in 64 bits each, without losing any.

    Each counter has a small one of its own that runs freely, and a row of 64 bits in memory. A scan visits one counter
    a cycle, ``period`` cycles a round (one for each counter), and adds to the row by how much the small one is ahead of
    the row's low bits. Between two visits it advances by at most ``period * (2 ** width - 1)``; it has the bits of that
    number, so the difference is never ambiguous, whatever arrives.

    A read answers within ``period + 4`` cycles and is up to ``period + 1`` cycles behind. Both words of a counter
    stand in one row that is written at once, so to read the high, the low and the high word, until the high ones
    agree, gives a value that was true in between. A reset of the engine does not clear the rows.

    Parameters
    ----------
    counters : dict of Counter
        Default: :data:`verbena.hdl.abi.counters.COUNTERS`. 5 to 64 of them, 1 to 26 bits wide.

    Members
    -------
    count_<name> : ``width`` of the counter
        Added each cycle.
    addr : stream of 8
        Index of a 32-bit word: counter *i* has its low word at ``2 * i``, its high word at ``2 * i + 1``.
    data : stream of 32
        The word, one for each ``addr``; 0 beyond the counters. The next ``addr`` is taken after it.
    """

    def __init__(self, counters=COUNTERS):
        if not 5 <= len(counters) <= 64:
            raise ValueError(f"counters must be 5 to 64, not {len(counters)!r}")
        for counter in counters.values():
            if not 1 <= counter.width <= 26:
                raise ValueError(f"width of counter {counter.name!r} must be 1 to 26, not {counter.width!r}")
        self.counters = dict(counters)
        self.period = len(self.counters)
        super().__init__(
            {f"count_{counter.name}": In(counter.width) for counter in self.counters.values()}
            | {"addr": In(stream.Signature(8)), "data": Out(stream.Signature(32))}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(64, self.period)
        index_bits = ceil_log2(self.period)
        scan = Signal(index_bits)
        m.d.sync += scan.eq(Mux(scan == self.period - 1, 0, scan + 1))

        # A reset that cleared these, but not the rows, would look as if they had advanced.
        counts = []
        for counter in self.counters.values():
            most = self.period * ((1 << counter.width) - 1)
            count = Signal(range(most + 1), name=f"small_{counter.name}", reset_less=True)
            added = Signal(counter.width, name=f"added_{counter.name}", reset_less=True)  # what says so, says it late
            m.d.sync += [added.eq(getattr(self, f"count_{counter.name}")), count.eq(count + added)]
            counts.append(count)

        # Row and count meet 2 cycles after the visit. Difference, low word, high word: a cycle each, the last of which
        # writes the row; the next visit must not be before.
        width = max(len(count) for count in counts)
        visited = [Signal(index_bits, name=f"visited{age}") for age in range(1, 5)]
        m.d.sync += [now.eq(before) for before, now in zip([scan, *visited], visited)]
        count, ahead, mask = (Signal(width, name=name) for name in ("count", "ahead", "mask"))
        for bit in range(width):  # a multiplexer for each bit is smaller than one for all of them
            lanes = [each[bit] if bit < len(each) else 0 for each in counts]
            groups = [Cat(lanes[first : first + GROUP]) for first in range(0, self.period, GROUP)]
            chosen = Signal(len(groups), name=f"chosen{bit}")
            m.d.sync += [
                chosen.eq(Cat(group.bit_select(scan[:3], 1) for group in groups)),
                count[bit].eq(chosen.bit_select(visited[0][3:], 1)),
            ]
        with m.Switch(visited[1]):
            for number, each in enumerate(counts):
                with m.Case(number):
                    m.d.comb += mask.eq((1 << len(each)) - 1)
        row = Signal(64)
        low, high = Signal(33), Signal(32)
        alive = Signal(4)  # nothing is written of what stood in the pipeline before a reset
        m.d.sync += [
            ahead.eq((count - ram.r_data) & mask),
            row.eq(ram.r_data),
            low.eq(row[:32] + ahead),
            high.eq(row[32:]),
            alive.eq(Cat(1, alive)),
        ]
        m.d.comb += [
            ram.r_addr.eq(scan),
            ram.w_addr.eq(visited[3]),
            ram.w_data.eq(Cat(low[:32], high + low[32])),
            ram.w_en.eq(alive[3]),
        ]

        # A reader waits until the scan comes by, and takes what the scan read.
        wanted = self.addr.payload[1:]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.addr.valid):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += self.data.payload.eq(Mux(self.addr.payload[0], ram.r_data[32:], ram.r_data[:32]))
                with m.If(wanted >= self.period):
                    m.d.sync += self.data.payload.eq(0)
                    m.next = "SAY"
                with m.Elif(visited[1] == wanted):
                    m.next = "SAY"
            with m.State("SAY"):
                m.d.comb += [self.data.valid.eq(1), self.addr.ready.eq(self.data.ready)]
                with m.If(self.data.ready):
                    m.next = "IDLE"
        return m
