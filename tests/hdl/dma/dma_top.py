"""Blocks below tops of their own."""

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.engine import DmaEngine

__all__ = ["LARGEST", "Alone", "engine"]

LARGEST = {"small": 64, "large": 256}
"""Bytes of what the readers of :func:`engine` may be asked for."""


def engine(data_width, atomics=16):
    """A DMA engine with two readers of structures and two writers."""
    readers = {"small": (4, LARGEST["small"]), "large": (32, LARGEST["large"])}
    return DmaEngine(data_width, readers=readers, writers={"cqe": (16,), "eqe": (8, 512)}, atomics=atomics)


class Alone(Elaboratable):
    """``make(...)`` as ``block``, with an arbiter for it alone; ``axi`` is the port."""

    def __init__(self, make, *arguments, **options):
        self.block = block = make(*arguments, **options)
        kind = ReadArbiter if "valid" in block.port.signature.members else WriteArbiter
        self.arbiter = kind(block.data_width, 1)
        self.axi = self.arbiter.axi

    def elaborate(self, platform):
        m = Module()
        m.submodules.block = self.block
        m.submodules.arbiter = self.arbiter
        wiring.connect(m, self.block.port, self.arbiter.client[0])
        return m
