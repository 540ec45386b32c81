"""Several streams into one."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .packet import PacketBeat

__all__ = ["FirstArbiter", "PacketArbiter", "SliceArbiter", "StreamArbiter", "gather"]


def pick(values, index):
    """``values[index]`` as a tree of 2 to 1 multiplexers: half the LUTs of what yosys makes of a switch."""
    values = list(values)
    for bit in index:
        values = [
            Mux(bit, values[k + 1], values[k]) if k + 1 < len(values) else values[k] for k in range(0, len(values), 2)
        ]
    return values[0]


def gather(m, name, chosen, items, step):
    """The one of ``items`` that is ``chosen``, a cycle later; none: zeros. It stays without ``step``.

    Each item has a register of its own, which is zero unless it is chosen, and all of them are ORed: a third of the
    LUTs that a multiplexer takes, since a flip-flop's enable and reset cost nothing.
    """
    together = 0
    for number, item in enumerate(items):
        item = Value.cast(item)
        held = Signal(len(item), name=f"{name}_{number}", reset_less=True)
        with m.If(step & ~chosen[number]):
            m.d.sync += held.eq(0)
        with m.Elif(step):
            m.d.sync += held.eq(item)
        together |= held
    return together


class _Arbiter(wiring.Component):
    def __init__(self, shape, count):
        if not isinstance(count, int) or count < 2:
            raise ValueError(f"count must be an int of at least 2, not {count!r}")
        self.shape = shape
        self.count = count
        super().__init__(
            {
                "i": In(stream.Signature(shape)).array(count),
                "o": Out(stream.Signature(shape)),
                "grant": Out(range(count)),
            }
        )

    def connect(self, m):
        """Connects the granted input to the output. Returns the vector of ``valid``."""
        valid = Signal(self.count)
        m.d.comb += [
            valid.eq(Cat(port.valid for port in self.i)),
            self.o.valid.eq(pick(valid, self.grant)),
            Value.cast(self.o.payload).eq(pick([Value.cast(port.payload) for port in self.i], self.grant)),
        ]
        for number, port in enumerate(self.i):
            m.d.comb += port.ready.eq(self.o.ready & (self.grant == number))
        return valid

    def move_round(self, m, valid):
        """Grants the next in the round that is valid; nobody valid: as it was."""
        with m.Switch(self.grant):
            for number in range(self.count):
                with m.Case(number):
                    for step in range(self.count - 1, 0, -1):
                        other = (number + step) % self.count
                        with m.If(valid[other]):
                            m.d.sync += self.grant.eq(other)


class StreamArbiter(_Arbiter):
    """Merges ``count`` streams, item by item, round robin.

    The grant is a register that stays where it was until somebody else wants it: an item of the input that has it
    passes in the same cycle, another one a cycle later. No cycle is lost while somebody waits. Nothing is buffered:
    ``o`` follows the inputs, and their ``ready`` follows ``o.ready``, in the same cycle.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.
    count : int
        Inputs, at least 2.

    Members
    -------
    i : ``count`` streams of ``shape``
    o : stream of ``shape``
    grant : 0 to ``count - 1``
        Input that ``o`` shows.
    """

    def elaborate(self, platform):
        m = Module()
        valid = self.connect(m)
        with m.If(~self.o.valid | self.o.ready):
            self.move_round(m, valid)
        return m


class SliceArbiter(_Arbiter):
    """Merges ``count`` streams, item by item, round robin, into a register: cycle by cycle the same as a
    :class:`StreamArbiter` with a :class:`.slice.Slice` behind it.

    For wide items, of which each input may leave some bits zero: those cost nothing, since ``o.payload`` is the OR of a
    register of each input. Parameters and members are the same, but ``grant`` is the input whose item is taken next.

    *Cycles*: an item comes out 1 cycle after it was taken, one every 2 cycles.
    """

    def elaborate(self, platform):
        m = Module()
        free = Signal(init=1)  # always the opposite of `o.valid`, for the many enables
        valid, turn = Signal(self.count), Signal(self.count)
        taken = pick(valid, self.grant)
        m.d.comb += [
            valid.eq(Cat(port.valid for port in self.i)),
            turn.eq(Cat(self.grant == number for number in range(self.count))),
            Value.cast(self.o.payload).eq(gather(m, "item", turn, [port.payload for port in self.i], free)),
        ]
        for number, port in enumerate(self.i):
            m.d.comb += port.ready.eq(free & turn[number])
        with m.If(~free):
            m.d.sync += [self.o.valid.eq(~self.o.ready), free.eq(self.o.ready)]
        with m.Else():
            m.d.sync += [self.o.valid.eq(taken), free.eq(~taken)]
        with m.If(free | ~taken):
            self.move_round(m, valid)
        return m


class FirstArbiter(wiring.Component):
    """Merges ``count`` streams, item by item: of those that are valid the first one passes, in the same cycle.

    For narrow items that come seldom, or that nobody stalls: the last input waits for all others.

    Parameters
    ----------
    shape : shape-like
        Shape of an item.
    count : int
        Inputs, at least 2.

    Members
    -------
    i : ``count`` streams of ``shape``
    o : stream of ``shape``
    """

    def __init__(self, shape, count):
        if not isinstance(count, int) or count < 2:
            raise ValueError(f"count must be an int of at least 2, not {count!r}")
        self.shape = shape
        self.count = count
        super().__init__({"i": In(stream.Signature(shape)).array(count), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        earlier = Const(0, 1)
        for port in self.i:
            m.d.comb += port.ready.eq(self.o.ready & ~earlier)
            earlier = earlier | port.valid
        m.d.comb += self.o.valid.eq(earlier)
        for port in reversed(self.i):
            with m.If(port.valid):
                m.d.comb += self.o.payload.eq(port.payload)
        return m


class PacketArbiter(_Arbiter):
    """Merges ``count`` streams of packets; a packet passes whole.

    The grant is a register, as of :class:`StreamArbiter`, and moves between packets only. Round robin loses no cycle
    while somebody waits. With ``priority`` the lowest valid input is next, and strictly so: a change to an input of
    lower priority costs one cycle, in which the better one could have begun again.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    count : int
        Inputs, at least 2.
    priority : bool
        Input 0 first, instead of round robin.

    Members
    -------
    i : ``count`` streams of ``PacketBeat``
    o : stream of ``PacketBeat``
    grant : 0 to ``count - 1``
        Input that ``o`` shows.
    """

    def __init__(self, data_width, count, *, priority=False):
        self.data_width = data_width
        self.priority = priority
        super().__init__(PacketBeat(data_width), count)

    def elaborate(self, platform):
        m = Module()
        valid = self.connect(m)
        inside = Signal()  # the granted packet has begun
        ending = Signal()
        m.d.comb += ending.eq(self.o.valid & self.o.ready & self.o.payload.last)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += inside.eq(~self.o.payload.last)
        idle = ~inside & ~self.o.valid
        if self.priority:
            for number in reversed(range(self.count)):
                with m.If(valid[number] & (idle | (ending & (number < self.grant)))):
                    m.d.sync += self.grant.eq(number)
        else:
            with m.If(idle | ending):
                self.move_round(m, valid)
        return m
