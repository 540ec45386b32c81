"""The whole DMA engine for tests: structure readers, a payload reader, a structure and a payload writer on one port."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.axi import Axi4
from verbena.hdl.dma.reader import PayloadReader
from verbena.hdl.dma.structure import StructureReader, StructureWriter
from verbena.hdl.dma.writer import PayloadWriter
from verbena.hdl.stream.packet import PacketBeat
from verbena.hdl.stream.transfer import Done, Piece, ReadRequest

__all__ = ["DmaTop", "alone"]


class DmaTop(wiring.Component):
    def __init__(self, data_width, *, depths=(32, 128), buffer=None, bursts=16):
        self.data_width = data_width
        self.readers = [StructureReader(data_width, depth) for depth in depths]
        self.payload_reader = PayloadReader(data_width, buffer)
        self.payload_writer = PayloadWriter(data_width, bursts=bursts)
        self.structure_writer = StructureWriter(data_width)
        beat = PacketBeat(data_width)
        super().__init__(
            {
                "axi": Out(Axi4(data_width)),
                "read_request": In(stream.Signature(ReadRequest)).array(len(depths)),
                "read_data": Out(stream.Signature(beat)).array(len(depths)),
                "read_piece": In(stream.Signature(Piece)),
                "read_payload": Out(stream.Signature(beat)),
                "write_request": In(stream.Signature(ReadRequest)),
                "write_data": In(stream.Signature(beat)),
                "write_answer": Out(stream.Signature(Done)),
                "write_piece": In(stream.Signature(Piece)),
                "write_payload": In(stream.Signature(beat)),
                "write_done": Out(stream.Signature(Done)),
                "count_read_errors": Out(1),
                "count_write_errors": Out(1),
                "count_stall": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.read = read = ReadArbiter(self.data_width, len(self.readers) + 1)
        m.submodules.write = write = WriteArbiter(self.data_width, 2)
        for number, reader in enumerate(self.readers):
            m.submodules[f"reader_{number}"] = reader
            wiring.connect(m, reader.port, read.client[number])
            wiring.connect(m, wiring.flipped(self.read_request[number]), reader.request)
            wiring.connect(m, reader.data, wiring.flipped(self.read_data[number]))
        m.submodules.payload_reader = reader = self.payload_reader
        wiring.connect(m, reader.port, read.client[len(self.readers)])
        wiring.connect(m, wiring.flipped(self.read_piece), reader.piece)
        wiring.connect(m, reader.payload, wiring.flipped(self.read_payload))
        m.submodules.structure_writer = writer = self.structure_writer
        wiring.connect(m, writer.port, write.client[0])
        wiring.connect(m, wiring.flipped(self.write_request), writer.request)
        wiring.connect(m, wiring.flipped(self.write_data), writer.data)
        wiring.connect(m, writer.done, wiring.flipped(self.write_answer))
        m.submodules.payload_writer = writer = self.payload_writer
        wiring.connect(m, writer.port, write.client[1])
        wiring.connect(m, wiring.flipped(self.write_piece), writer.piece)
        wiring.connect(m, wiring.flipped(self.write_payload), writer.payload)
        wiring.connect(m, writer.done, wiring.flipped(self.write_done))
        channels = {"r": read, "w": write}
        for name, member in self.axi.signature.members.items():
            owner = channels["r" if name.startswith(("ar", "r")) else "w"]
            if member.flow == Out:
                m.d.comb += getattr(self.axi, name).eq(getattr(owner.axi, name))
            else:
                m.d.comb += getattr(owner.axi, name).eq(getattr(self.axi, name))
        m.d.comb += [
            self.count_read_errors.eq(read.count_bus_errors),
            self.count_write_errors.eq(write.count_bus_errors),
            self.count_stall.eq(self.payload_writer.count_stall_rx_memory),
        ]
        return m


def alone(block):
    """A module with ``block`` and an arbiter for it alone, and the AXI port."""
    m = Module()
    m.submodules.block = block
    kind = ReadArbiter if "valid" in block.port.signature.members else WriteArbiter
    m.submodules.arbiter = arbiter = kind(block.data_width, 1)
    wiring.connect(m, block.port, arbiter.client[0])
    return m, arbiter.axi
