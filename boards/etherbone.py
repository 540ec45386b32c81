"""Etherbone over UDP: registers and memory reached from the network, as LiteX's tools do it."""

from contextlib import contextmanager

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.ethernet.arp_icmp import Service

from .bridge_bus import BridgeBus

__all__ = ["PORT", "Etherbone"]

PORT = 1234

MAGIC = 0x4E6F
VERSION, SIZES = 0x10, 0x44
"""Version 1; addresses and data of 32 bits."""

PROBE_REPLY, NO_READS = 0x02, 0x04
"""Flags beside the version; a probe is the lowest bit."""

ALL_BYTES = 0x000F
"""The beginning of a record: no flags, and the byte enables."""

CYCLE = 0x10
"""The only flag of a record that means what is done anyway."""

IP_LENGTH, SENDER, PAYLOAD, RECORD = 8, 15, 21, 25
"""Words of the frame (:class:`verbena.hdl.ethernet.arp_icmp.Service`)."""

IP_AND_UDP, HEADER_BYTES, RECORD_BYTES = 28, 8, 4


class Etherbone(wiring.Component):
    """Answers Etherbone packets (version 1): a probe, or one record of writes and then reads, of up to 255 words each.

    A packet from another address than the ``allowed`` ones, and one that is malformed or longer than it says, has no
    effect and no answer. Nor has a record from the first address on at which nothing is.
    Each word takes some 15 cycles and the time of the bus.

    Parameters
    ----------
    sources : int
        Addresses that may be allowed.

    Members
    -------
    service : ``Service``, flipped
    bus : ``BridgeBus``
    allowed : ``sources`` of 32
        IPv4 addresses; 0 is nobody's.
    count_served, count_denied, count_refused : 1
        A packet was answered, or its writes done; came from elsewhere; was malformed or for no address.
    """

    def __init__(self, sources=2):
        self.sources = sources
        super().__init__(
            {
                "service": In(Service()),
                "bus": Out(BridgeBus()),
                "allowed": In(32).array(sources),
                "count_served": Out(1),
                "count_denied": Out(1),
                "count_refused": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        service, request, answer = self.service, self.bus.request, self.bus.answer
        word = service.r_data
        source, target = Signal(11), Signal(11)  # word that is read, or will be written
        wait = Signal(2)
        high, value = Signal(16), Signal(32)  # the first word of a number; an address, or what comes from there
        number = Cat(word, high)
        allowed, bad, probe = Signal(), Signal(), Signal()
        length, needed = Signal(12), Signal(12)
        writes, reads, done = Signal(8), Signal(8), Signal(8)
        m.d.comb += [service.place.eq(source), answer.ready.eq(1)]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)

        @contextmanager
        def reading(name):
            """A state in which the word at ``source`` is there; the next state finds the one behind it."""
            with m.State(name):
                m.d.sync += wait.eq(wait + 1)
                with m.If(wait == 3):
                    m.d.sync += source.eq(source + 1)
                    yield

        @contextmanager
        def putting(name, content):
            """A state that writes the word at ``target``."""
            with m.State(name):
                m.d.comb += [service.place.eq(target), service.w_data.eq(content), service.w_en.eq(1)]
                m.d.sync += target.eq(target + 1)
                yield

        @contextmanager
        def reading_both(name):
            """Two such states, ``name`` with _HIGH and _LOW; in the second one ``number`` is what both read."""
            with reading(f"{name}_HIGH"):
                m.d.sync += high.eq(word)
                m.next = f"{name}_LOW"
            with reading(f"{name}_LOW"):
                yield

        def ask(address, write):
            payload = request.payload
            m.d.sync += [request.valid.eq(1), payload.address.eq(address), payload.write.eq(write)]
            m.d.sync += payload.data.eq(number)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [source.eq(IP_LENGTH), done.eq(0)]
                with m.If(service.start):
                    m.next = "LENGTH"
            with reading("LENGTH"):
                m.d.sync += [length.eq(word - IP_AND_UDP), source.eq(SENDER)]
                m.next = "SENDER_HIGH"
            with reading_both("SENDER"):
                m.d.sync += [allowed.eq(Cat((each == number) & (each != 0) for each in self.allowed).any())]
                m.d.sync += source.eq(PAYLOAD)
                m.next = "MAGIC"
            with reading("MAGIC"):
                m.d.sync += bad.eq(word != MAGIC)
                m.next = "VERSION"
            with reading("VERSION"):
                m.d.sync += [probe.eq(word[8]), source.eq(RECORD), needed.eq(HEADER_BYTES)]
                with m.If((word & 0xF0FF) != (VERSION << 8 | SIZES)):
                    m.d.sync += bad.eq(1)
                m.next = "FLAGS"
                with m.If(word[8]):
                    m.next = "ADMIT"
            with reading("FLAGS"):
                with m.If((word & ~(CYCLE << 8) & 0xFFFF) != ALL_BYTES):
                    m.d.sync += bad.eq(1)
                m.next = "COUNTS"
            with reading("COUNTS"):
                m.d.sync += [writes.eq(word[8:]), reads.eq(word[:8])]
                m.next = "NEEDED"
            with m.State("NEEDED"):
                # An address goes before the writes, and one before the reads.
                words = writes + (writes != 0) + reads + (reads != 0)
                m.d.sync += needed.eq(HEADER_BYTES + RECORD_BYTES + (words << 2))
                with m.If(words == 0):
                    m.d.sync += bad.eq(1)
                m.next = "ADMIT"
            with m.State("ADMIT"):
                m.d.sync += target.eq(Mux(probe, PAYLOAD + 1, RECORD + 2))
                with m.If(~allowed):
                    m.d.comb += self.count_denied.eq(1)
                    m.next = "NOTHING"
                with m.Elif(bad | (needed > length)):
                    m.d.comb += self.count_refused.eq(1)
                    m.next = "NOTHING"
                with m.Elif(probe):
                    m.next = "PUT_VERSION"
                with m.Elif(writes != 0):
                    m.next = "WRITE_HIGH"
                with m.Else():
                    m.next = "BASE_HIGH"

            with reading_both("WRITE"):
                m.d.sync += value.eq(number)
                m.next = "DATA_HIGH"
            with reading_both("DATA"):
                ask(value, 1)
                m.next = "WRITTEN"
            with m.State("WRITTEN"):
                with m.If(answer.valid):
                    m.d.sync += [value.eq(value + 4), writes.eq(writes - 1)]
                    m.next = "DATA_HIGH"
                    with m.If(answer.payload.error):
                        m.d.comb += self.count_refused.eq(1)
                        m.next = "NOTHING"
                    with m.Elif(writes == 1):
                        m.next = "BASE_HIGH"
                        with m.If(reads == 0):
                            m.d.comb += self.count_served.eq(1)
                            m.next = "NOTHING"

            # The address that the answer is for comes back, and the values take the places of their addresses.
            with reading_both("BASE"):
                m.d.sync += value.eq(number)
                m.next = "PUT_HIGH"
            with reading_both("READ"):
                ask(number, 0)
                m.next = "READ"
            with m.State("READ"):
                with m.If(answer.valid):
                    m.d.sync += [value.eq(answer.payload.data), done.eq(done + 1)]
                    m.next = "PUT_HIGH"
                    with m.If(answer.payload.error):
                        m.d.comb += self.count_refused.eq(1)
                        m.next = "NOTHING"
            with putting("PUT_HIGH", value[16:]):
                m.next = "PUT_LOW"
            with putting("PUT_LOW", value[:16]):
                m.next = "READ_HIGH"
                with m.If(done == reads):
                    m.d.sync += target.eq(PAYLOAD + 1)
                    m.next = "PUT_VERSION"

            with putting("PUT_VERSION", Mux(probe, PROBE_REPLY, NO_READS) << 8 | VERSION << 8 | SIZES):
                m.d.sync += target.eq(RECORD)
                m.next = "PUT_FLAGS"
                with m.If(probe):
                    m.next = "ANSWER"
            with putting("PUT_FLAGS", ALL_BYTES):
                m.next = "PUT_COUNTS"
            with putting("PUT_COUNTS", reads << 8):
                m.next = "ANSWER"
            with m.State("ANSWER"):
                size = HEADER_BYTES + RECORD_BYTES + 4 + (reads << 2)
                m.d.comb += [service.done.eq(1), service.size.eq(Mux(probe, HEADER_BYTES, size))]
                m.d.comb += self.count_served.eq(1)
                m.next = "IDLE"
            with m.State("NOTHING"):
                m.d.comb += service.done.eq(1)
                m.next = "IDLE"
        return m
