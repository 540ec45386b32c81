"""What makes frames of headers and payload, as the engine has it, but for a register between the two."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In
from verbena.hdl.stream.connections import connect_signals, link
from verbena.hdl.wire.encapsulator import Encapsulator
from verbena.hdl.wire.headers import NETWORKS
from verbena.hdl.wire.opcodes import SUPPORTED
from verbena.hdl.wire.packet_header import TransmitHeader
from verbena.hdl.wire.packetizer import Packetizer


class Framing(wiring.Component):
    """A packetizer behind an encapsulator. Its ports are the former's, but ``header``, ``gid`` and ``gid_en``, which
    are the latter's."""

    def __init__(self, data_width, opcodes=SUPPORTED, networks=NETWORKS[:1]):
        self.encapsulator = Encapsulator(opcodes, networks)
        self.packetizer = Packetizer(data_width, opcodes, networks)
        ports = dict(self.packetizer.signature.members) | dict(self.encapsulator.signature.members)
        super().__init__(
            {name: port for name, port in ports.items() if name != "i"}
            | {"header": In(stream.Signature(TransmitHeader)), "o": self.packetizer.signature.members["o"]}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.encapsulator = encapsulator = self.encapsulator
        m.submodules.packetizer = packetizer = self.packetizer
        link(m, self.header, encapsulator.i)
        link(m, encapsulator.o, packetizer.header)
        link(m, self.payload, packetizer.payload)
        link(m, packetizer.o, self.o)
        connect_signals(m, self, packetizer, "mac", "ip")
        connect_signals(m, packetizer, self, "count_stall_tx_payload", "count_stall_tx_wire")
        if encapsulator.several:
            connect_signals(m, self, encapsulator, "gid", "gid_en")
            connect_signals(m, packetizer, self, "tag")
        return m
