"""The command ``verbena``: one name for all programs of the package.

``verbena [options] NAME [arguments]`` calls ``main(arguments)`` of the program, and ends with the status it returns.
"""

import importlib
import importlib.metadata
import os
import sys

from .tools.command import command_line

__all__ = ["COMMANDS", "TESTS", "main"]

_PERFTEST = "verbena.sw.tools.perftest.__main__:main"

COMMANDS = {
    "board": ("verbena.boards.bring_up:main", "bring up a board"),
    "ibv_asyncwatch": ("verbena.sw.tools.asyncwatch:asyncwatch", "asynchronous events of a device, as they come"),
    "ibv_devices": ("verbena.sw.tools.devices:devices", "list the devices"),
    "ibv_devinfo": ("verbena.sw.tools.devices:devinfo", "attributes of devices and their ports"),
    "ibv_rc_pingpong": ("verbena.sw.tools.pingpong:main", "the same as rc-pingpong"),
    "ibv_srq_pingpong": ("verbena.sw.tools.pingpong:srq", "the same as srq-pingpong"),
    "ibv_ud_pingpong": ("verbena.sw.tools.pingpong:ud", "the same as ud-pingpong"),
    "ibv_uc_pingpong": ("verbena.sw.tools.pingpong:uc", "the same as uc-pingpong"),
    "mckey": ("verbena.sw.tools.mckey:main", "datagrams to a multicast group that is joined by rdma_cm"),
    "perftest": (_PERFTEST, "measure bandwidth or latency, as perftest does"),
    "rc-pingpong": ("verbena.sw.tools.pingpong:main", "two ends send a message to and fro, as ibv_rc_pingpong does"),
    "rping": ("verbena.sw.tools.rping:main", "a client's memory is read and written, over rdma_cm"),
    "run": ("verbena.sw.run:main", "run a program that imports pyverbs, with Verbena's devices"),
    "sim": ("verbena.sim.switch_cli:main", "a switch for programs that each have a simulated adapter"),
    "srq-pingpong": (
        "verbena.sw.tools.pingpong:srq",
        "the same on queue pairs with one receive queue, as ibv_srq_pingpong does",
    ),
    "stat": ("verbena.sw.tools.stat:main", "counters of a device, live in the terminal or as JSON"),
    "sweep": ("verbena.sim.sweep.__main__:main", "a program over parameters and seeds, on cores or a Dask cluster"),
    "uc-pingpong": ("verbena.sw.tools.pingpong:uc", "the same over an unreliable connection, as ibv_uc_pingpong does"),
    "udaddy": ("verbena.sw.tools.udaddy:main", "datagrams to a service that is found by rdma_cm, and their answers"),
    "ud-pingpong": ("verbena.sw.tools.pingpong:ud", "the same by datagrams, as ibv_ud_pingpong does"),
    "trace": ("verbena.sim.trace.__main__:main", "a run or a capture as one HTML page: timeline and sequence chart"),
}
"""Programs by name: ``module:function``, and what it does in one line. A module is imported when it is called."""

TESTS = {
    f"ib_{verb}_{what}": (f"{verb}_{what}", f"{long} of {verb.upper() if verb != 'atomic' else 'atomics'}")
    for verb in ("write", "read", "send", "atomic")
    for what, long in (("bw", "bandwidth"), ("lat", "latency"))
}
"""Familiar names of perftest's programs: the test that ``perftest`` calls so, and what it measures."""

COMMANDS |= {name: (_PERFTEST, text) for name, (_, text) in TESTS.items()}

OPTIONS = {
    "--exact": ("VERBENA_EXACT", "1", "an adapter's time moves only inside its program's calls"),
    "--true-tick": ("VERBENA_TICK", "640", "simulated adapters' timers take true time"),
}
"""Options before NAME: the variable of the environment that each sets, to what, and what that does."""


def _help():
    yield "usage: verbena [options] NAME [arguments]; verbena NAME --help tells more"
    yield ""
    width = max(map(len, COMMANDS))
    yield f"  {'--version':<{width}}  tell the version, and no more"
    for option, (variable, value, text) in OPTIONS.items():
        yield f"  {option:<{width}}  {text} ({variable}={value})"
    yield ""
    for name, (_, text) in sorted(COMMANDS.items()):
        yield f"  {name:<{width}}  {text}"


@command_line
def main(arguments=None):
    """Command line."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    while arguments and arguments[0] in OPTIONS:
        variable, value, _ = OPTIONS[arguments.pop(0)]
        os.environ[variable] = value
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("\n".join(_help()))
        return 0 if arguments else 1
    name, *rest = arguments
    if name == "--version":
        print(f"verbena {importlib.metadata.version('verbena')}")
        return 0
    if name not in COMMANDS:
        print(f"verbena: there is no command {name!r}; there are: {', '.join(sorted(COMMANDS))}", file=sys.stderr)
        return 1
    module, function = COMMANDS[name][0].split(":")
    given = {"test": TESTS[name][0]} if name in TESTS else {}
    return getattr(importlib.import_module(module), function)(rest, **given)


if __name__ == "__main__":
    sys.exit(main())
