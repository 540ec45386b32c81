"""A serial line as a bridge, as LiteX's tools speak over it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from .bridge_bus import BridgeBus

__all__ = ["UartBridge"]

WRITE, READ = 1, 2
PATIENCE = 1 << 24
"""Cycles after which a command that does not end is forgotten."""


class UartBridge(wiring.Component):
    """Commands of 8-bit characters without parity: ``1``, count, address, and so many words that are written; or ``2``,
    count, address, and so many words come back. The address counts words; all numbers have their most significant byte
    first. What stands at no address reads as 0. The next command is to come when the answer is there.

    A command that stops in the midst is forgotten after 2^24 cycles, and so is a character that begins none.

    Parameters
    ----------
    divider : int
        Cycles a bit, at least 4.

    Members
    -------
    bus : ``BridgeBus``
    rx, tx : 1
        ``rx`` may be asynchronous.
    """

    def __init__(self, divider):
        if not isinstance(divider, int) or divider < 4:
            raise ValueError(f"divider must be an int of at least 4, not {divider!r}")
        self.divider = divider
        super().__init__({"bus": Out(BridgeBus()), "rx": In(1), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        request, answer = self.bus.request, self.bus.answer
        byte, came = self._receive(m)
        send, send_byte, sending = self._transmit(m)
        write, count, address, value = Signal(), Signal(8), Signal(30), Signal(32)
        place = Signal(3)  # bytes of a number so far
        idle = Signal(range(PATIENCE))
        m.d.comb += [
            request.payload.address.eq(address << 2),
            request.payload.data.eq(value),
            request.payload.write.eq(write),
            answer.ready.eq(1),
            send_byte.eq(value[24:]),
        ]
        m.d.sync += idle.eq(idle + 1)

        def gather(name, number, then):
            """A state that takes the four bytes of ``number``, and goes to ``then``."""
            with m.State(name):
                with m.If(idle.all()):
                    m.next = "COMMAND"
                with m.If(came):
                    m.d.sync += [number.eq(Cat(byte, number)), place.eq(place + 1), idle.eq(0)]
                    with m.If(place == 3):
                        m.d.sync += place.eq(0)
                        m.next = then

        with m.FSM():
            with m.State("COMMAND"):
                m.d.sync += [place.eq(0), idle.eq(0), write.eq(byte == WRITE)]
                with m.If(came & ((byte == WRITE) | (byte == READ))):
                    m.next = "COUNT"
            with m.State("COUNT"):
                with m.If(idle.all()):
                    m.next = "COMMAND"
                with m.If(came):
                    m.d.sync += count.eq(byte)
                    m.next = "ADDRESS"
            gather("ADDRESS", address, "NEXT")
            with m.State("NEXT"):
                with m.If(count == 0):
                    m.next = "COMMAND"
                with m.Elif(write):
                    m.next = "DATA"
                with m.Else():
                    m.next = "ASK"
            gather("DATA", value, "ASK")
            with m.State("ASK"):
                m.d.comb += request.valid.eq(1)
                m.d.sync += idle.eq(0)
                with m.If(request.ready):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += idle.eq(0)
                with m.If(answer.valid):
                    m.d.sync += [
                        value.eq(Mux(answer.payload.error, 0, answer.payload.data)),
                        count.eq(count - 1),
                        address.eq(address + 1),
                    ]
                    m.next = "SAY"
                    with m.If(write):
                        m.next = "NEXT"
            with m.State("SAY"):
                m.d.sync += idle.eq(0)
                m.d.comb += send.eq(~sending)
                with m.If(~sending):
                    m.d.sync += [value.eq(value << 8), place.eq(place + 1)]
                    with m.If(place == 3):
                        m.d.sync += place.eq(0)
                        m.next = "NEXT"
        return m

    def _receive(self, m):
        """A character, and the strobe that it came."""
        there, bits, timer = Signal(init=1), Signal(9), Signal(range(2 * self.divider))
        left = Signal(range(10))  # bits that are still to come, the stop bit among them
        came = Signal()
        m.submodules.synchronizer = FFSynchronizer(self.rx, there, init=1)
        m.d.sync += came.eq(0)
        with m.If(left == 0):
            m.d.sync += timer.eq(self.divider + self.divider // 2 - 2)
            with m.If(~there):
                m.d.sync += left.eq(9)
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [timer.eq(self.divider - 1), bits.eq(Cat(bits[1:], there)), left.eq(left - 1)]
            m.d.sync += came.eq((left == 1) & there)
        return bits[:8], came

    def _transmit(self, m):
        """A strobe that sends, what it sends, and whether something is being sent."""
        bits, timer, left = Signal(9), Signal(range(self.divider)), Signal(range(11))
        send, byte = Signal(), Signal(8)
        m.d.sync += self.tx.eq(Mux(left == 0, 1, bits[0]))
        with m.If(send):
            m.d.sync += [bits.eq(Cat(0, byte)), left.eq(10), timer.eq(self.divider - 1)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Elif(left != 0):
            m.d.sync += [bits.eq(Cat(bits[1:], 1)), left.eq(left - 1), timer.eq(self.divider - 1)]
        return send, byte, left != 0
