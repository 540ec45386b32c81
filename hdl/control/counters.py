"""The engine's counters."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi.counters import COUNTERS
from ..stream.arbiter import pick
from ..stream.ram import Ram

__all__ = ["Counters"]

GROUP = 8
"""Counters of which one is chosen a cycle before the group is."""

TAPS = {3: 1, 4: 2, 5: 2, 6: 4, 7: 5}
"""Of a shift register of so many bits that goes through all states but one: in goes, inverted, the exclusive or of its
last bit and of this one.
"""


def _following(state):
    """The state behind ``state``, a signal."""
    return Cat(~(state[-1] ^ state[TAPS[len(state)]]), state[:-1])


def _ring(count):
    """The first ``count`` states behind 0 of the smallest shift register that has so many, as numbers."""
    bits = next(bits for bits in TAPS if (1 << bits) - 1 >= count)
    states = [0]
    while len(states) < (1 << bits) - 1:
        state = states[-1]
        states.append((state << 1 | ~(state >> bits - 1 ^ state >> TAPS[bits]) & 1) & (1 << bits) - 1)
    return states


class Counters(wiring.Component):
    """Adds up what the engine counts, in 64 bits each, without losing any.

    Each counter has a small one of its own, and a row of 64 bits in memory. A scan visits one counter a cycle,
    ``period`` cycles a round (one for each counter), adds the small one to the row, and sets it to 0. Until the next
    visit it is no more than ``period * (2 ** width - 1)``, whatever arrives. What counts events is no sum, but goes
    from state to state of a shift register with feedback; a table tells how many that were.

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
        scan = Signal(index_bits, reset_less=True)
        m.d.sync += scan.eq(Mux(scan == self.period - 1, 0, scan + 1))

        # No reset reaches all this: rows and what is not yet added to them belong together.
        turn = Signal(self.period, init=1, reset_less=True)  # `scan`, a bit each
        m.d.sync += turn.eq(turn.rotate_left(1))
        states = _ring(self.period)[: self.period]  # no more events than that fit between two visits, less one
        lanes, more = [], []  # of each counter: what a visit finds, and another event of that very cycle
        for number, counter in enumerate(self.counters.values()):
            most = self.period * ((1 << counter.width) - 1)
            shape = len(states).bit_length() if counter.width == 1 else range(most + 1)
            small = Signal(shape, name=f"small_{counter.name}", reset_less=True)
            added = Signal(counter.width, name=f"added_{counter.name}", reset_less=True)  # what says so, says it late
            m.d.sync += added.eq(getattr(self, f"count_{counter.name}"))
            if counter.width == 1:
                with m.If(added):
                    m.d.sync += small.eq(_following(small))
                lanes.append(small)
                more.append(added)
            else:
                total = (small + added)[: len(small)]
                m.d.sync += small.eq(total)
                lanes.append(total)
                more.append(Const(0, 1))
            with m.If(turn[number]):
                m.d.sync += small.eq(0)

        # Row and what is found meet 2 cycles after the visit. What it means, low word, high word: a cycle each, the
        # last of which writes the row; the next visit must not be before.
        visited = [Signal(index_bits, name=f"visited{age}", reset_less=True) for age in range(1, 5)]
        m.d.sync += [now.eq(before) for before, now in zip([scan, *visited], visited)]

        def visit(values, name):
            """Of one bit of each counter that of the one visited, 2 cycles later."""
            groups = [Cat(values[first : first + GROUP]) for first in range(0, self.period, GROUP)]
            chosen, found = Signal(len(groups), name=f"chosen_{name}"), Signal(name=f"found_{name}")
            m.d.sync += [
                chosen.eq(Cat(group.bit_select(scan[:3], 1) for group in groups)),
                found.eq(chosen.bit_select(visited[0][3:], 1)),
            ]
            return found

        # A multiplexer for each bit is smaller than one for all of them.
        width = max(len(each) for each in lanes)
        found = Cat(visit([each[bit] if bit < len(each) else 0 for each in lanes], f"{bit}") for bit in range(width))
        one_more = visit(more, "more")
        ahead, another = Signal(width, reset_less=True), Signal(reset_less=True)
        sums = [number for number, counter in enumerate(self.counters.values()) if counter.width > 1]
        state = found[: len(states).bit_length()]
        events = [states.index(each) if each in states else 0 for each in range(1 << len(state))]
        is_sum = Signal(reset_less=True)
        m.d.sync += [
            is_sum.eq(visited[0].matches(*sums)),
            ahead.eq(Mux(is_sum, found, pick(events, state))),
            another.eq(one_more),
        ]
        row = Signal(64, reset_less=True)
        low, high = Signal(33, reset_less=True), Signal(32, reset_less=True)
        alive = Signal(len(visited), reset_less=True)  # what the memory says before it was asked is not written
        m.d.sync += [
            alive.eq(Cat(1, alive)),
            row.eq(ram.r_data),
            low.eq((Cat(1, row[:32]) + Cat(another, ahead))[1:]),  # one adder: `another` is its carry
            high.eq(row[32:]),
        ]
        m.d.comb += [
            ram.r_addr.eq(scan),
            ram.w_addr.eq(visited[3]),
            ram.w_data.eq(Cat(low[:32], high + low[32])),
            ram.w_en.eq(alive[-1]),
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
