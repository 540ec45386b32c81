"""The command ``verbena``: one name for all programs of the package.

``verbena NAME [arguments]`` calls ``main(arguments)`` of the program and ends with the status that it returns.
"""

import importlib
import sys

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "board": ("verbena.boards.bring_up:main", "bring up a board"),
    "perftest": ("verbena.sw.tools.perftest.__main__:main", "measure bandwidth or latency, as perftest does"),
    "rc-pingpong": ("verbena.sw.tools.pingpong:main", "two ends send a message to and fro, as ibv_rc_pingpong does"),
    "run": ("verbena.sw.run:main", "run a program that imports pyverbs, with Verbena's devices"),
    "sim": ("verbena.sim.switch_cli:main", "a switch for programs that each have a simulated adapter"),
    "sweep": ("verbena.sim.sweep.__main__:main", "a program over parameters and seeds, on cores or a Dask cluster"),
    "trace": ("verbena.sim.trace.__main__:main", "a run or a capture as one HTML page: timeline and sequence chart"),
}
"""Programs by name: ``module:function``, and what it does in one line. A module is imported when it is called."""


def _help():
    yield "usage: verbena NAME [arguments]; verbena NAME --help tells more"
    yield ""
    width = max(map(len, COMMANDS))
    for name, (_, text) in sorted(COMMANDS.items()):
        yield f"  {name:<{width}}  {text}"


def main(arguments=None):
    """Command line."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("\n".join(_help()))
        return 0 if arguments else 1
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"verbena: there is no command {name!r}; there are: {', '.join(sorted(COMMANDS))}", file=sys.stderr)
        return 1
    module, function = COMMANDS[name][0].split(":")
    try:
        return getattr(importlib.import_module(module), function)(rest)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
