"""Over the scatter/gather entries of a WQE: where a packet's payload goes."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...abi.wqe import SGE, SGE_MAX
from ...stream.transfer import LENGTH_BITS

__all__ = ["Place", "Portion", "ScatterWalk"]

Place = data.StructLayout({"address": 64, "key": 32, "left": 32, "sge": range(SGE_MAX + 1)})
"""Where the next byte of a message goes: ``left`` bytes fit behind ``address``; ``sge`` is the next entry."""

Portion = data.StructLayout({"key": 32, "address": 64, "length": LENGTH_BITS, "discard": 1, "last": 1})
"""An access, as far as the walk knows it (:data:`verbena.hdl.stream.transfer.AccessRequest`)."""


class ScatterWalk(wiring.Component):
    """Cuts the payload of a packet into accesses: what fits the present entry, then entry after entry. If there are no
    more entries, the rest is discarded, and ``short`` says so. Each packet has exactly one run.

    The present entry is ``place``, which the neighbour loads before each packet and keeps after it. Further entries are
    asked for with ``want``, and arrive as two words of memory, the address first.

    The first access is valid in the cycle after ``go``, if something fits the present entry or the payload is empty or
    discarded. An entry more takes 2 cycles, and what its two words take; an empty one 1.

    Members
    -------
    load, start : 1, ``Place``
        Take this for ``place``. Not later than 1 cycle before ``go``, and not during a run.
    go, length, discard : 1, 13, 1
        Begin a run. ``length`` shows the payload since 1 cycle before ``go``, unless it is discarded.
    portion : stream of ``Portion``
    done : 1
        The run's last access is taken in this cycle.
    place : ``Place``
        Behind what was placed last, from the cycle after it was taken on. Undefined after a discard.
    short : 1
        Entries were exhausted before the payload; from the last access on until the next ``go``.
    want : 1
        Entry ``place.sge`` is needed. Falls in the cycle after ``take_size`` or ``exhausted``.
    word, take_address, take_size, exhausted : 64, 1, 1, 1
        The answer: ``word`` is the entry's first, then its second word; or there is no such entry.
    """

    def __init__(self):
        super().__init__(
            {
                "load": In(1),
                "start": In(Place),
                "go": In(1),
                "length": In(LENGTH_BITS),
                "discard": In(1),
                "portion": Out(stream.Signature(Portion)),
                "done": Out(1),
                "place": Out(Place),
                "short": Out(1),
                "want": Out(1),
                "word": In(64),
                "take_address": In(1),
                "take_size": In(1),
                "exhausted": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        place, portion = self.place, self.portion.payload
        rest = Signal(LENGTH_BITS)  # of the packet
        enough = Signal()
        cut = Signal()
        size = {name: SGE.fields[name].offset - 64 for name in ("length", "lkey")}
        m.d.comb += [
            # Cheaper than a comparison of 32 bits.
            enough.eq(place.left[LENGTH_BITS:].any() | (place.left[:LENGTH_BITS] >= rest)),
            portion.key.eq(place.key),
            portion.address.eq(place.address),
            self.done.eq(self.portion.valid & self.portion.ready & portion.last),
        ]
        with m.If(cut):
            m.d.sync += [portion.last.eq(enough), portion.length.eq(Mux(enough, rest, place.left[:LENGTH_BITS]))]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += cut.eq(1)
                m.d.sync += [rest.eq(self.length), portion.discard.eq(self.discard & (self.length != 0))]
                with m.If(self.load):
                    m.d.sync += place.eq(self.start)
                with m.If(self.discard):
                    m.d.sync += [portion.last.eq(1), portion.length.eq(self.length)]
                with m.If(self.go):
                    m.d.sync += self.short.eq(0)
                    m.next = "SEND"
                    with m.If(~self.discard & (rest != 0) & (place.left == 0)):
                        m.next = "ENTRY"
            with m.State("ENTRY"):
                m.d.comb += self.want.eq(1)
                with m.If(self.take_address):
                    m.d.sync += place.address.eq(self.word)
                with m.If(self.take_size):
                    m.d.sync += [
                        place.left.eq(self.word[size["length"] :][:32]),
                        place.key.eq(self.word[size["lkey"] :][:32]),
                        place.sge.eq(place.sge + 1),
                    ]
                    m.next = "CUT"
                with m.If(self.exhausted):
                    m.d.sync += [
                        self.short.eq(1),
                        portion.discard.eq(1),
                        portion.length.eq(rest),
                        portion.last.eq(1),
                    ]
                    m.next = "SEND"
            with m.State("CUT"):
                m.d.comb += cut.eq(1)
                m.next = "SEND"
                with m.If(place.left == 0):
                    m.next = "ENTRY"
            with m.State("SEND"):
                m.d.comb += self.portion.valid.eq(1)
                with m.If(self.portion.ready):
                    m.d.sync += [
                        place.address.eq(place.address + portion.length),
                        place.left.eq(place.left - portion.length),
                        rest.eq(rest - portion.length),
                    ]
                    m.next = "ENTRY"
                    with m.If(portion.last):
                        m.next = "IDLE"
        return m
