"""``verbena stat``: counters of a device, live in the terminal, or as JSON.

``verbena stat -d DEVICE`` looks at a device that runs by itself, or at one of ``verbena sim`` that another program has;
nothing of it is changed. A simulated device without a switch is there only in the program that uses it: ``verbena stat
-d sim0 -- NAME [arguments]`` runs another of ``verbena``'s programs and shows its counters meanwhile. A look takes a
simulated device some cycles.
"""

import contextlib
import json
import sys
import threading

from ..cli import COMMANDS
from ..cli import main as command
from ..control import read_counters
from ..port import glass_on, open_port, port_names
from .command import Parser, plain
from .session import ToolError

__all__ = ["Look", "main", "told_by"]

DEVICES = "the device's"
"""The times of a device that runs by itself."""

LONGEST = 86400
"""Seconds of an interval."""


def told_by(port):
    """All counters of a port, as a dictionary for machines."""
    return {
        "device": port.name,
        "time_ns": port.time_ns(),
        "times": getattr(port, "clock_text", None) or DEVICES,
        "counters": read_counters(port),
    }


class Look:
    """What :func:`told_by` says at one time; ``before`` is the look before this one, or None."""

    def __init__(self, told, before=None):
        self.record = told
        self.counters = told["counters"]
        self._before = before

    def changes(self):
        """By how much each counter is more than before."""
        before = {} if self._before is None else self._before.counters
        return {name: value - before.get(name, 0) for name, value in self.counters.items()}

    def table(self, *, every=False):
        """As a table of rich, of the counters that are not 0, or of ``every`` one."""
        from rich.table import Table

        times = self.record["times"]
        title = f"{self.record['device']}, {self.record['time_ns'] / 1e3:.1f} µs"
        title += "" if times == DEVICES else f" ({times})"
        table = Table("counter", title=title)
        table.add_column("value", justify="right")
        if self._before:
            table.add_column("since", justify="right")
        changes = self.changes()
        for name, value in self.counters.items():
            if every or value:
                since = [f"+{changes[name]}" if changes[name] else ""] if self._before else []
                table.add_row(name, str(value), *since)
        return table


def _tell(port):
    return port.look() if hasattr(port, "look") else told_by(port)


def _looks(port, interval, stop):
    """Looks, one each ``interval`` seconds of the wall's clock, until ``stop`` is set; the last one after that. At a
    device of another program, until that ends.
    """
    look = None
    while True:
        last = stop.is_set()
        if (told := _tell(port)) is None:
            return
        look = Look(told, look)
        yield look
        if last:
            return
        stop.wait(interval)


def _show(looks, args):
    if args.json:
        for look in looks:
            print(json.dumps(look.record), flush=True)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        for look in looks:
            live.update(look.table(every=args.all), refresh=True)


def _while_it_runs(port, args, program):
    """Runs the program and shows the counters meanwhile; returns its status."""
    stop, failed = threading.Event(), []

    def show():
        try:
            _show(_looks(port, args.interval, stop), args)
        except BrokenPipeError as error:  # the program may go on
            failed.append(error)

    thread = threading.Thread(target=show)
    thread.start()
    try:
        status = command(program)
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
    return status


def _once(port, args):
    if (told := _tell(port)) is None:
        raise ToolError("the program has ended")
    look = Look(told)
    if args.json:
        print(json.dumps(look.record))
    else:
        from rich.console import Console

        Console(highlight=False).print(look.table(every=args.all))


def _parser():
    parser = Parser(
        prog="verbena stat",
        description="Counters of a device. Behind -- stands another of verbena's programs, which uses the device.",
        usage="%(prog)s [options] [-- NAME [arguments]]",
    )
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks; default: %(default)g")
    parser.add_argument("--once", action="store_true", help="one look, after the program if there is one")
    parser.add_argument("--json", action="store_true", help="one line of JSON a look")
    parser.add_argument("--all", action="store_true", help="also counters that are 0")
    return parser


def _of_another(args):
    """Shows a device that another program has, until that ends; False if there is none to be looked at."""
    try:
        glass = glass_on(args.ib_dev)
    except LookupError as error:
        raise ToolError(f"{error}: say what shall use it behind --") from None
    if glass is None:
        return False
    with contextlib.closing(glass):
        if args.once:
            _once(glass, args)
        else:
            _show(_looks(glass, args.interval, threading.Event()), args)
            print("the program has ended", file=sys.stderr)
    return True


def _run(args, program):
    if not 0 < args.interval <= LONGEST:
        raise ToolError(f"the interval must be more than 0, and at most {LONGEST} seconds, not {args.interval:g}")
    if program and program[0] not in COMMANDS:
        raise ToolError(f"there is no command {program[0]!r}; there are: {', '.join(sorted(COMMANDS))}")
    if not program and _of_another(args):
        return 0
    names = port_names() if args.ib_dev is None else [args.ib_dev]
    if not names:
        raise ToolError("there is no device")
    port = open_port(names[0])
    if args.once:
        status = command(program) if program else 0
        _once(port, args)
        return status
    if program:
        return _while_it_runs(port, args, program)
    if getattr(port, "clock_text", None) is not None:
        alone = f"{port.name} is simulated, in this program alone"
        raise ToolError(f"{alone}: say what shall use it behind --, or use it over `verbena sim`")
    _show(_looks(port, args.interval, threading.Event()), args)
    return 0


def main(argv=None):
    """Command line. The status is that of the program behind ``--``, if there is one."""
    argv = sys.argv[1:] if argv is None else list(argv)
    at = argv.index("--") if "--" in argv else len(argv)
    args, program = _parser().parse_args(argv[:at]), argv[at + 1 :]
    try:
        return _run(args, program)
    except ImportError as error:
        print(f"verbena stat: {error.name} is missing; --json needs nothing more", file=sys.stderr)
    except BrokenPipeError:  # of what is printed
        raise
    except (ToolError, OSError) as error:
        print(f"verbena stat: {plain(error)}", file=sys.stderr)
    return 1
