"""Blocks below tops of their own."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from verbena.hdl.dma.arbiter import ReadArbiter, WriteArbiter
from verbena.hdl.dma.engine import DmaEngine

__all__ = ["LARGEST", "alone", "engine"]

LARGEST = {"small": 64, "large": 256}
"""Bytes of what the readers of :func:`engine` may be asked for."""


def engine(data_width, atomics=16):
    """A DMA engine with two readers of structures and two writers."""
    readers = {"small": (32, LARGEST["small"]), "large": (128, LARGEST["large"])}
    return DmaEngine(data_width, readers=readers, writers={"cqe": 16, "eqe": 8}, atomics=atomics)


def alone(block):
    """A module with ``block`` and an arbiter for it alone, and the AXI port."""
    m = Module()
    m.submodules.block = block
    kind = ReadArbiter if "valid" in block.port.signature.members else WriteArbiter
    m.submodules.arbiter = arbiter = kind(block.data_width, 1)
    wiring.connect(m, block.port, arbiter.client[0])
    return m, arbiter.axi
