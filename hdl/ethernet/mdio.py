"""The management interface of PHYs (IEEE 802.3, clause 22)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["Mdio", "MdioAnswer", "MdioRequest"]

MdioRequest = data.StructLayout({"write": 1, "phy": 5, "register": 5, "data": 16})
MdioAnswer = data.StructLayout({"data": 16, "missing": 1})

PREAMBLE = 32
TURNAROUND = PREAMBLE + 14
END = PREAMBLE + 32


class Mdio(wiring.Component):
    """Reads and writes registers of PHYs, one at a time: 64 periods of the clock each.

    Parameters
    ----------
    divider : int
        Cycles of half a period of the clock, at least 2; a period is 400 ns at least by the standard.

    Members
    -------
    request : stream of ``MdioRequest``
    answer : stream of ``MdioAnswer``
        One for each request. ``missing``: no PHY has answered a read.
    clock : 1
        MDC.
    o, oe, i : 1
        MDIO: what we say, whether we do, and what stands there. ``i`` may be asynchronous.
    """

    def __init__(self, divider):
        if not isinstance(divider, int) or divider < 2:
            raise ValueError(f"divider must be an int of at least 2, not {divider!r}")
        self.divider = divider
        super().__init__(
            {
                "request": In(stream.Signature(MdioRequest)),
                "answer": Out(stream.Signature(MdioAnswer)),
                "clock": Out(1),
                "o": Out(1),
                "oe": Out(1),
                "i": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request = self.request.payload
        there = Signal()
        m.submodules.synchronizer = FFSynchronizer(self.i, there)
        cycle, half = Signal(range(self.divider)), Signal()  # second half of the period: the clock is high
        period = Signal(range(END))
        text = Signal(32)  # what is to be sent, or has come, the next bit on top
        write, seen = Signal(), Signal()
        answer = self.answer
        m.d.comb += [self.o.eq(text[-1]), answer.payload.data.eq(text[:16]), self.clock.eq(half)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.request.ready.eq(1)
                m.d.sync += [period.eq(0), write.eq(request.write), text.eq(~0), answer.payload.missing.eq(0)]
                with m.If(self.request.valid):
                    m.d.sync += self.oe.eq(1)
                    m.next = "RUN"
                body = Signal(32)
                m.d.sync += body.eq(
                    Cat(
                        request.data,
                        Const(0b10, 2),
                        request.register,
                        request.phy,
                        Mux(request.write, 0b01, 0b10),
                        Const(0b01, 2),
                    )
                )
            with m.State("RUN"):
                m.d.sync += cycle.eq(cycle + 1)
                with m.If(cycle == self.divider - 1):
                    m.d.sync += [cycle.eq(0), half.eq(~half)]
                    with m.If(~half):
                        # The edge at which both sides look.
                        with m.If(~write & (period == TURNAROUND + 1)):
                            m.d.sync += answer.payload.missing.eq(there)
                        m.d.sync += seen.eq(there)
                    with m.Else():
                        m.d.sync += [period.eq(period + 1), text.eq(Cat(seen, text[:-1]))]
                        with m.If(period == PREAMBLE - 1):
                            m.d.sync += text.eq(body)
                        with m.If((period == TURNAROUND - 1) & ~write):
                            m.d.sync += self.oe.eq(0)
                        with m.If(period == END - 1):
                            m.d.sync += self.oe.eq(0)
                            m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += answer.valid.eq(1)
                with m.If(answer.ready):
                    m.next = "IDLE"
        return m
