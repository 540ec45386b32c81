"""The points of a sweep: parameters with their values, and how a point becomes a command."""

import itertools
import re
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from verbena.sw.cli import COMMANDS
from verbena.sw.tools.command import plain

__all__ = ["GridError", "Sweep", "command_of", "read_toml", "values_of"]

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\*(\d+))?")
_KEYS = ("program", "arguments", "grid", "seeds", "result", "x", "y")


class GridError(ValueError):
    """The sweep cannot be made."""


@dataclass
class Sweep:
    """``grid``: lists of values by parameter; ``seeds``: a list, or empty: the program's own; ``result``: the file that
    the program leaves, with ``{folder}``, or None; ``x`` and ``y``: columns of the plot, or None.
    """

    program: str = ""
    arguments: list = field(default_factory=list)
    grid: dict = field(default_factory=dict)
    seeds: list = field(default_factory=list)
    result: str | None = None
    x: str | None = None
    y: str | None = None

    def points(self):
        """All combinations, as dictionaries; the seed last, and changing first."""
        axes = self.grid | ({"seed": self.seeds} if self.seeds else {})
        return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def values_of(text):
    """Values such as ``1,2,5``, ``1..8`` or ``64..4096*4``: numbers where they can be, and otherwise words."""
    found = []
    for part in str(text).split(","):
        if match := _RANGE.fullmatch(part):
            first, last, factor = int(match[1]), int(match[2]), int(match[3] or 1)
            if last < first or (match[3] and (factor < 2 or first < 1)):
                raise GridError(f"there is no range {part!r}")
            while first <= last:
                found.append(first)
                first = first * factor if match[3] else first + 1
        elif part:
            found.append(_value(part))
        else:
            raise GridError(f"a value is missing in {text!r}")
    return found


def read_toml(path):
    """The :class:`Sweep` in a TOML file: its attributes, ``[grid]`` with lists, or texts as of :func:`values_of`."""
    try:
        with Path(path).open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise GridError(plain(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GridError(f"{path}: {error}") from None
    if unknown := sorted(set(table) - set(_KEYS)):
        raise GridError(f"{path}: there is no {unknown[0]!r}; there are: {', '.join(_KEYS)}")
    for name, kind, what in (("grid", dict, "a table"), ("arguments", list, "a list"), ("program", str, "a name")):
        if not isinstance(table.get(name, kind()), kind):
            raise GridError(f"{path}: {name} must be {what}, not {table[name]!r}")
    sweep = Sweep(**table)
    sweep.arguments = [str(argument) for argument in sweep.arguments]
    sweep.grid = {name: _list(values) for name, values in sweep.grid.items()}
    sweep.seeds = _list(sweep.seeds)
    return sweep


def _list(values):
    return values if isinstance(values, list) else values_of(values)


def command_of(program, arguments, point, folder):
    """Command and environment of a point. A script runs as ``verbena run`` does it, so that it may import pyverbs.

    ``{name}`` in an argument is the parameter's value, ``{folder}`` a folder of the point's own. A parameter in capital
    letters is a variable of the environment. Others that no argument names are options, ``--name value``; the seed is
    the variable ``VERBENA_SEED``, too.
    """
    environment = {name: str(value) for name, value in point.items() if name.isupper()}
    if "seed" in point:
        environment["VERBENA_SEED"] = str(point["seed"])
    values, named = {**point, "folder": folder}, set()

    def fill(match):
        named.add(match[1])
        return str(values[match[1]])

    names = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
    filled = [re.sub(rf"\{{({names})\}}", fill, argument) for argument in arguments]
    for name, value in point.items():
        if not name.isupper() and name not in named and name != "seed":
            filled += [f"--{name}", str(value)]
    if program in COMMANDS:
        start = [sys.executable, "-m", "verbena.sw.cli", program]
    elif program.endswith(".py"):
        start = [sys.executable, "-m", "verbena.sw.cli", "run", program]
    elif re.fullmatch(r"\w+(\.\w+)+", program):
        start = [sys.executable, "-m", program]
    else:
        start = [program]
    return [*start, *filled], environment
