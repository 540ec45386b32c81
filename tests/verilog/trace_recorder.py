"""A plugin for pytest: ``--record FOLDER`` writes a trace of each block that a test simulates.

Traced are the simulator's top, or if that is no component the components directly in it. A row is taken before each
rising edge of a clock; in a design without clocks, whenever time goes on. It holds the inputs, resets of clock domains
among them, and the outputs. ``FOLDER/KEY.il`` is the block's RTLIL, ``KEY.json`` its :class:`block_trace.Block`, and
``KEY-PROCESS.traces`` its traces.

A simulation whose ports do not tell all is named in ``FOLDER/left_out-PROCESS``, with the reason: one that sets a
signal inside the block, for example.
"""

import hashlib
import os
import re
import zlib
from collections import defaultdict
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Signal, Value
from amaranth.hdl._ast import Concat, SignalSet
from amaranth.hdl._mem import MemoryData
from amaranth.lib import memory, stream, wiring
from amaranth.sim import pysim
from block_trace import Block, Port, append

__all__ = ["TOP", "recording"]

TOP = "verbena_block"
"""The block's module, until the text that names it is known."""

INPUT = re.compile(r"^  wire (?:width \d+ +)?input +\d+ +\\(\S+)$", re.MULTILINE)
CHUNK = 1 << 16
"""Bytes of rows that are packed at once."""


class Untraceable(Exception):
    """Why the ports of a block do not tell all."""


def _ports(path, signature, interface):
    """(:class:`Port`, signal) of the ports of an interface object that have any bits."""
    of_stream = isinstance(signature, stream.Signature) or isinstance(signature.flip(), stream.Signature)
    for name, member in signature.members.items():
        values = [((*path, name), getattr(interface, name))]
        for _ in member.dimensions:
            values = [((*at, index), value) for at, array in values for index, value in enumerate(array)]
        for at, value in values:
            if member.is_signature:
                yield from _ports(at, member.signature, value)
                continue
            signal = Value.cast(value)
            if isinstance(signal, Signal) and len(signal):
                gated = of_stream and name == "payload" and isinstance(interface.valid, Signal)
                gate = "__".join(map(str, (*path, "valid"))) if gated else None
                output, handshake = member.flow == wiring.Out, of_stream and name != "payload"
                yield Port("__".join(map(str, at)), len(signal), output, handshake=handshake, gate=gate), signal


def _components(design):
    """(component, fragment) of those in a design that stand in no other component; a bench's memory is no block."""
    found = [item for item in design.elaboratables.items() if isinstance(item[0], wiring.Component)]
    found = [item for item in found if not isinstance(item[0], memory.Memory)]
    fragments = {id(fragment) for _, fragment in found}

    def outermost(fragment):
        while (fragment := design.fragments[fragment].parent) is not None:
            if id(fragment) in fragments:
                return False
        return True

    return [(component, fragment) for component, fragment in found if outermost(fragment)]


def _fragments(fragment):
    yield fragment
    for child, _, _ in fragment.subfragments:
        yield from _fragments(child)


def _convert(component, design):
    """RTLIL of a component of a design, elaborated once more for that.

    Blocks show tests what is inside them as attributes that ``elaborate`` sets. Those must stay the simulated ones.
    """
    saved = [(each, dict(vars(each))) for each in design.elaboratables]
    try:
        return rtlil.convert(component, name=TOP, emit_src=False)
    finally:
        for each, attributes in saved:
            vars(each).clear()
            vars(each).update(attributes)


class _Recorded:
    """A block in one simulation."""

    def __init__(self, component, fragment, design, state):
        text = _convert(component, design)
        top = text[text.index(f"module \\{TOP}\n") :]
        ports = list(_ports((), component.signature, component))
        known = {port.name for port, _ in ports}
        domains = set()
        # What the signature does not know are clocks and resets of domains.
        for name in INPUT.findall(top[: top.index("\nend\n")]):
            if name in known:
                continue
            prefix, _, kind = name.rpartition("_")
            if kind not in ("clk", "rst") or (prefix or "sync") not in fragment.domains:
                raise Untraceable(f"{name} is no port")
            domains.add(prefix or "sync")
            ports.append((Port(name, 1, clock=kind == "clk"), getattr(fragment.domains[prefix or "sync"], kind)))
        inside = list(_fragments(fragment))
        used = {domain for each in inside for domain in each.statements} - {"comb"}
        if not used <= domains:
            raise Untraceable(f"{', '.join(sorted(used - domains))} is the renamed domain")

        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        kind = type(component)
        parameters = {name: value for name, value in vars(component).items() if isinstance(value, int | str)}
        self.block = Block(
            key=f"block_{digest}",
            name=f"{kind.__module__.removeprefix('verbena.')}.{kind.__qualname__}",
            parameters=", ".join(f"{name}={value}" for name, value in parameters.items() if name[0] != "_"),
            ports=tuple(port for port, _ in ports),
        )
        self.rtlil = text.replace(TOP, self.block.key)
        self.inputs = SignalSet(signal for port, signal in ports if not port.output)
        self.signals = SignalSet(signal for each in inside for signal in design.fragments[each].used_signals)
        self.fields, self.clocks, offset = [], {}, 0
        for port, signal in ports:
            if port.clock:
                self.clocks[id(signal)] = offset
            slot = state.slots[state.get_signal(signal)]
            self.fields.append((slot, 0 if port.clock else (1 << port.width) - 1, port.size))
            offset += port.size
        self._start()

    def _start(self):
        self.packer = zlib.compressobj(1)
        self.packed = []
        self.waiting = bytearray()
        self.row = self.last = b""
        self.secret = None

    def again(self):
        """The same block in the next simulation, of the same simulator after its reset."""
        same = copy(self)
        same._start()
        return same

    def take(self):
        """Begins a row with the values of now."""
        self.row = bytearray().join([(slot.curr & mask).to_bytes(size, "little") for slot, mask, size in self.fields])

    def rise(self, clock):
        """Says that a clock rises at the end of this row."""
        if (offset := self.clocks.get(id(clock))) is not None:
            self.row[offset] = 1

    def finish(self):
        """Ends the row; one that says the same as the one before, without a clock, is left out."""
        if not self.row:
            return
        if self.row != self.last or any(self.row[offset] for offset in self.clocks.values()):
            self.waiting += self.row
        self.last, self.row = self.row, b""
        if len(self.waiting) >= CHUNK:
            self.packed.append(self.packer.compress(self.waiting))
            self.waiting = bytearray()

    def heed(self, expression):
        """Remembers what a test sets that is no input."""
        if isinstance(expression, Concat):
            for part in expression.parts:
                self.heed(part)
            return
        if isinstance(expression, MemoryData._Row):
            # Of which block the memory is nobody says.
            self.secret = "a row of memory"
            return
        for signal in expression._lhs_signals():
            if signal in self.signals and signal not in self.inputs:
                self.secret = signal.name

    def write(self, folder, test):
        path = folder / f"{self.block.key}.json"
        if not path.exists():
            for name, text in ((f"{self.block.key}.il", self.rtlil), (path.name, self.block.to_json())):
                part = folder / f"{name}.{os.getpid()}"
                part.write_text(text)
                part.replace(folder / name)
        packed = [*self.packed, self.packer.compress(bytes(self.waiting)), self.packer.flush()]
        append(folder / f"{self.block.key}-{os.getpid()}.traces", test, b"".join(packed))


@contextmanager
def recording(folder, test):
    """Traces of all simulations that begin in this context go to a folder when it ends."""
    recorded, left_out = [], []

    class Engine(pysim.PySimEngine):
        def __init__(self, design):
            super().__init__(design)
            self.blocks, self.moment = None, None

        def reset(self):
            super().reset()
            self.moment = None
            if self.blocks is not None:
                for block in self.blocks:
                    block.finish()
                self.blocks = [block.again() for block in self.blocks]
                recorded.extend(self.blocks)

        def _begin(self):
            self.blocks = []
            for component, fragment in _components(self._design):
                try:
                    self.blocks.append(_Recorded(component, fragment, self._design, self.state))
                except Untraceable as error:
                    left_out.append((type(component).__name__, str(error)))
            recorded.extend(self.blocks)
            clocks = [process.slot for process in self._processes if isinstance(process, pysim.PyClockProcess)]
            for slot in clocks:
                self.state.slots[slot].add_waker(self._waker(self.state.slots[slot].signal))
            self.clocked = bool(clocks)

        def _waker(self, clock):
            def waker(old, new):
                if new and not old:
                    # Several clocks may rise at a time, and their registers see the same values.
                    if self.moment != self.now:
                        self._row()
                    for block in self.blocks:
                        block.rise(clock)
                return True

            return waker

        def _row(self):
            self.moment = self.now
            for block in self.blocks:
                block.finish()
                block.take()

        def set_value(self, expression, value):
            if self.blocks is None:
                self._begin()
            for block in self.blocks:
                block.heed(Value.cast(expression))
            return super().set_value(expression, value)

        def advance(self):
            if self.blocks is None:
                self._begin()
            result = super().advance()
            if not self.clocked:
                self._row()
            return result

    from streams import shared  # found once the tests' conftest is loaded, which comes after this plugin

    saved, pysim.PySimEngine = pysim.PySimEngine, Engine
    shared.cache_clear()  # each test simulates blocks of its own
    try:
        yield
    finally:
        pysim.PySimEngine = saved
        shared.cache_clear()
        for block in recorded:
            block.finish()
            if block.secret is None:
                block.write(folder, test)
            else:
                left_out.append((block.block.name, f"{block.secret} is set inside"))
        with (folder / f"left_out-{os.getpid()}").open("a") as file:
            file.writelines(f"{test}\t{name}\t{reason}\n" for name, reason in left_out)


def pytest_addoption(parser):
    parser.addoption("--record", type=Path, metavar="FOLDER", help="write traces of the blocks that are simulated")
    parser.addoption("--every", type=int, default=1, metavar="N", help="every Nth test (%(default)s)")


def pytest_collection_modifyitems(config, items):
    """Of a test's cases two are recorded: the first at its narrowest bus, and the last at its widest."""
    if not config.getoption("record"):
        return
    from case_width import ends

    functions = defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    kept = {case for cases in list(functions.values())[:: config.getoption("every")] for case in ends(cases)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    if not (folder := item.config.getoption("record")):
        return (yield)
    folder.mkdir(parents=True, exist_ok=True)
    with recording(folder, item.nodeid):
        return (yield)
