"""Views of waves, the signals worth looking at first: for GTKWave (``.gtkw``) and for Surfer (a command file)."""

import re
from pathlib import Path

__all__ = ["save_views", "signals"]

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


def _choose(vcd):
    """Groups of signals: the ports of the top, then the valid, ready and payload of the streams between its blocks."""
    names = signals(vcd)
    # The scope around the top has the ports as well, but `interrupt` by another name.
    depth = min((name.count(".") for name, _ in names if name.endswith(".interrupt")), default=1)
    tops = [(name, width) for name, width in names if name.count(".") == depth]
    groups = {"clock": [(name, width) for name, width in tops if name.rsplit(".", 1)[1] in ("clk", "rst")]}
    for title, pattern in GROUPS.items():
        chosen = [(n, w) for n, w in tops if re.match(pattern, n.rsplit(".", 1)[1]) and not _NOT_SHOWN.search(n)]
        groups[title] = sorted(set(chosen))
    # Streams of the blocks that the top is made of.
    for name, width in names:
        scope, _, member = name.rpartition(".")
        if name.count(".") == depth + 1 and re.search(r"__(valid|ready|payload)$", member):
            groups.setdefault(scope.rsplit(".", 1)[1], []).append((name, width))
    return {title: chosen for title, chosen in groups.items() if chosen}


def _vector(name, width):
    return name if width == 1 else f"{name}[{width - 1}:0]"


def save_views(vcd):
    """Writes a view for each viewer next to a VCD file and returns their paths.

    ``gtkwave view.gtkw`` opens the waves with the view; ``surfer -c view.sucl waves.vcd`` likewise.
    """
    vcd = Path(vcd).absolute()
    gtkwave, surfer = vcd.with_suffix(".gtkw"), vcd.with_suffix(".sucl")
    lines, commands = [f'[dumpfile] "{vcd}"', "[timestart] 0"], []
    for title, chosen in _choose(vcd).items():
        # @200: a comment; @22: hexadecimal; @28: a single bit.
        lines += ["@200", f"-{title}"]
        commands.append(f"divider_add {title}")
        for name, width in chosen:
            lines += ["@28" if width == 1 else "@22", _vector(name, width)]
            commands.append(f"variable_add {name}")
    gtkwave.write_text("\n".join(lines) + "\n")
    surfer.write_text("\n".join([*commands, "zoom_fit"]) + "\n")
    return gtkwave, surfer
