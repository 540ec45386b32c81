"""Views of waves, the signals worth looking at first: for GTKWave (``.gtkw``) and for Surfer (a command file).

``python -m verbena.sim.waves FILE.vcd`` makes them for waves of the engine that are there already.
"""

import argparse
import re
import sys
from pathlib import Path

from verbena.sw.tools.command import command_line, first_line

__all__ = ["fsm_states", "main", "save_all", "save_views", "signals"]

GROUPS = {
    "host registers": r"axil__",
    "host memory": r"axi__",
    "frames out": r"tx__",
    "frames in": r"rx__",
    "interrupt": r"interrupt$",
}
"""Of the ports of the top, by name."""

_NOT_SHOWN = re.compile(r"__(aw|ar)(prot|lock|cache|qos|burst|size)$")
_SCOPE = re.compile(
    r"\$scope\s+\w+\s+(\S+)\s+\$end|\$upscope\s+\$end|\$var\s+\w+\s+(\d+)\s+\S+\s+(\S+)|\$enddefinitions"
)
_UNIQUE = re.compile(r"\$\d+")
_STREAM = re.compile(r"(.*)__(valid|ready|payload)((?:\..+)?)$")


def signals(vcd):
    """Full names and widths of all signals of a VCD file, in its order."""
    scopes, found = [], []
    with Path(vcd).open() as file:
        for line in file:
            for match in _SCOPE.finditer(line):
                if match[0].startswith("$enddefinitions"):
                    return found
                if match[1]:
                    scopes.append(match[1])
                elif match[2]:
                    found.append((".".join([*scopes, match[3]]), int(match[2])))
                else:
                    scopes.pop()
    return found


def fsm_states(component):
    """Names of the states of all state machines below ``component``: ``{"block.part": {0: "IDLE"}}``."""
    from amaranth.hdl import Fragment

    found = {}

    def walk(fragment, path):
        for statements in fragment.statements.values():
            for statement in statements:
                for signal in statement._lhs_signals():
                    if getattr(signal, "name", "") == "fsm_state" and signal._decoder is not None:
                        names = found.setdefault(".".join(path), {})
                        for value in range(1 << len(signal)):
                            try:
                                names[value] = signal._decoder(value).rpartition("/")[0]
                            except KeyError:
                                break
        for number, (part, name, _) in enumerate(fragment.subfragments):
            walk(part, [*path, name or f"U${number}"])

    walk(Fragment.get(component, None), [])
    return found


def _tables():
    """What numbers mean, by what the full names of signals with them match, and their width."""
    from ..hdl.abi.commands import Command
    from ..hdl.abi.cqe import WcOpcode, WcStatus
    from ..hdl.transport.common.aeth import AethSyndrome
    from ..hdl.wire.opcodes import OPCODES

    return [
        ("bth_opcode", r"\.transport\.opcode$", 8, {code: row.name for code, row in OPCODES.items()}),
        ("syndrome", r"\.transport\.syndrome$", 8, {value: value.name for value in AethSyndrome}),
        ("command", r"\.command(__payload)?\.opcode$", 4, {value: value.name for value in Command}),
        ("wc_opcode", r"\.completion__payload\.opcode$", 8, {value: value.name for value in WcOpcode}),
        ("wc_status", r"\.completion__payload\.status$", 8, {value: value.name for value in WcStatus}),
    ]


def _clean(name):
    """Without the numbers that make names unique, and from the block on that has it."""
    return _UNIQUE.sub("", name)


def _choose(vcd):
    """Groups of signals, as ``{title: {subtitle: [(name, width)]}}``: the ports of the top, the state machines, then
    the streams of the blocks that the top is made of.
    """
    names = signals(vcd)
    # The scope around the top has the ports as well, but `interrupt` by another name.
    depth = min((name.count(".") for name, _ in names if name.endswith(".interrupt")), default=1)
    # What has a number there is the end of the same wire at a block.
    tops = [(name, width) for name, width in names if name.count(".") == depth and not _UNIQUE.search(name)]
    groups = {"clock": {"": [(name, width) for name, width in tops if name.rsplit(".", 1)[1] in ("clk", "rst")]}}
    for title, pattern in GROUPS.items():
        chosen = [(n, w) for n, w in tops if re.match(pattern, n.rsplit(".", 1)[1]) and not _NOT_SHOWN.search(n)]
        groups[title] = {"": sorted(set(chosen))}
    groups["states"] = {"": [(name, width) for name, width in names if name.endswith(".fsm_state")]}
    for name, width in names:
        parts = name.split(".")
        if (
            len(parts) > depth + 1
            and (match := _STREAM.match(_clean(".".join(parts[depth + 1 :]))))
            and "." not in match[1]
        ):
            groups.setdefault(_clean(parts[depth]), {}).setdefault(match[1], []).append((name, width))
    found = {title: {sub: rows for sub, rows in parts.items() if rows} for title, parts in groups.items()}
    return {title: parts for title, parts in found.items() if parts}


def _vector(name, width):
    return name if width == 1 else f"{name}[{width - 1}:0]"


class _Names:
    """Files that tell GTKWave what numbers mean, written when they are first asked for."""

    def __init__(self, folder, states):
        self._folder = folder
        self._states = {_clean(path): names for path, names in states.items()}
        self._tables = _tables()

    def file_of(self, name, width):
        """Path of the file for a signal; None if its numbers mean nothing else."""
        clean = _clean(name)
        if clean.endswith(".fsm_state"):
            block = clean.removesuffix(".fsm_state")
            for path, names in self._states.items():
                if block == path or block.endswith(f".{path}"):
                    return self._write(f"{path}.states", width, names)
            return None
        for title, pattern, bits, names in self._tables:
            if width == bits and re.search(pattern, clean):
                return self._write(title, width, names)
        return None

    def _write(self, title, width, names):
        path = self._folder / f"{title}.txt"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            digits = -(-width // 4)
            path.write_text("".join(f"{value:0{digits}x} {name}\n" for value, name in names.items()))
        return str(path)


def save_views(vcd, states=None):
    """Writes a view for each viewer next to a VCD file and returns their paths.

    ``gtkwave view.gtkw`` opens the waves with the view; ``surfer -c view.sucl waves.vcd`` likewise. In GTKWave a stream
    is a group, names are without the numbers that make them unique, and opcodes, statuses and the ``states`` of state
    machines (:func:`fsm_states`) stand there as text.
    """
    from vcd.gtkw import GTKWSave

    vcd = Path(vcd).absolute()
    gtkwave, surfer = vcd.with_suffix(".gtkw"), vcd.with_suffix(".sucl")
    names, commands = _Names(vcd.with_suffix(".names"), states or {}), []
    with gtkwave.open("w") as file:
        save = GTKWSave(file)
        save.dumpfile(str(vcd))
        save.timestart(0)
        for title, parts in _choose(vcd).items():
            ports = "" in parts
            commands.append(f"divider_add {title}")
            with save.group(title, closed=not ports or title == "states"):
                for subtitle, rows in parts.items():
                    if subtitle:
                        save.begin_group(subtitle, closed=False)
                    for name, width in rows:
                        commands.append(f"variable_add {name}")
                        short = _clean(".".join(name.split(".")[2:]) if title == "states" else name.rpartition("__")[2])
                        save.trace(
                            _vector(name, width),
                            alias=short if subtitle or title == "states" else _clean(name.rsplit(".", 1)[1]),
                            datafmt="hex" if width > 1 else "bin",
                            translate_filter_file=names.file_of(name, width),
                        )
                    if subtitle:
                        save.end_group(subtitle, closed=False)
    surfer.write_text("\n".join([*commands, "zoom_fit"]) + "\n")
    return gtkwave, surfer


def save_all(prefix, design):
    """Views of the waves of all adapters of a world, of the engine ``design`` (:class:`.model.Design`)."""
    component = design.make()
    states = {} if isinstance(component, str) else fsm_states(component)
    path = Path(prefix)
    for vcd in sorted(path.parent.glob(f"{path.name}.*.vcd")):
        save_views(vcd, states)


@command_line
def main(argv=None):
    """Command line."""
    from .model import rnic

    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("waves", type=Path, nargs="+", help="VCD files of the engine in its standard configuration")
    args = parser.parse_args(argv)
    states = fsm_states(rnic().make())
    for vcd in args.waves:
        print(*save_views(vcd, states), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
