"""Traces: what stood at the ports of a block before each clock edge, and the file that holds them."""

import json
import zlib
from dataclasses import asdict, dataclass

__all__ = ["Block", "Port", "Trace", "append", "read"]


@dataclass(frozen=True)
class Port:
    """A port of a block, as its Verilog has it.

    ``handshake`` says that it is ``valid`` or ``ready`` of a stream. ``gate`` is the port without which the value means
    nothing: the ``valid`` of the stream whose payload this is.
    """

    name: str
    width: int
    output: bool = False
    clock: bool = False
    handshake: bool = False
    gate: str | None = None

    @property
    def size(self):
        """Bytes that Verilator keeps it in."""
        return next((size for size in (1, 2, 4, 8) if self.width <= 8 * size), -(-self.width // 32) * 4)


@dataclass(frozen=True)
class Block:
    """A block of one set of parameters. ``key`` changes with its logic; it is the name of its Verilog module.

    ``parameters`` are only for the reader.
    """

    key: str
    name: str
    parameters: str
    ports: tuple

    @property
    def row(self):
        """Bytes of a row of a trace: a byte for each port that is a clock, 1 if it rises, and the values of others."""
        return sum(port.size for port in self.ports)

    def to_json(self):
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text):
        fields = json.loads(text)
        return cls(**{**fields, "ports": tuple(Port(**port) for port in fields["ports"])})


@dataclass(frozen=True)
class Trace:
    """The rows of one simulation, one behind the other, and the test that it belongs to."""

    test: str
    rows: bytes


def append(path, test, packed):
    """Puts a trace, its rows packed by zlib, at the end of a file. No other process may write that file."""
    head = test.encode()
    with path.open("ab") as file:
        file.write(len(head).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + head + packed)


def read(path):
    """All traces of a file."""
    with path.open("rb") as file:
        while sizes := file.read(8):
            head = file.read(int.from_bytes(sizes[:4], "little"))
            yield Trace(head.decode(), zlib.decompress(file.read(int.from_bytes(sizes[4:], "little"))))
