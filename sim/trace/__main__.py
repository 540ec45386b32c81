"""``verbena trace``: a run, or a capture, as one HTML page.

::

    verbena trace hello.py                   # runs it, and writes hello.html
    verbena trace --first 100 perftest write_bw --size 64
    verbena trace frames.pcapng              # of a capture, the message sequence chart

What stands behind a program is the program's, behind a capture it is ours. A program runs with ``VERBENA_CAPTURE``,
``VERBENA_CAPTURE_BUS`` and ``VERBENA_CAPTURE_FRAMES`` set (:mod:`..devices`).
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from verbena.sw.cli import COMMANDS
from verbena.sw.tools.command import Parser, command_line, first_line, plain, whole_number

from .capture_file import CaptureError, read_capture
from .page import data_of, render

__all__ = ["main"]

CAPTURES = (".pcap", ".pcapng")
NO_CAPTURE = (
    "opened no simulated adapter by its name (one that makes a World captures it by world.capture(FILE, bus=True, "
    'frames="both"), and FILE is what to show)'
)
USAGE = """%(prog)s [options] PROGRAM [arguments of the program]
       %(prog)s [options] CAPTURE [options]"""


def _arguments(argv):
    options = Parser(prog="verbena trace", add_help=False)
    options.add_argument("-o", "--output", type=Path, help="the page (NAME.html)")
    options.add_argument("--first", type=int, default=1000, metavar="N", help="messages that are shown (1000)")
    options.add_argument("--qp", type=whole_number, help="only messages and packets of this QP number")
    options.add_argument("--capture", type=Path, help="keep the run's capture in this file")
    parser = Parser(prog=options.prog, usage=USAGE, description=first_line(__doc__), parents=[options])
    parser.add_argument(
        "what",
        metavar="PROGRAM or CAPTURE",
        help="a Python script, a program of verbena or of the PATH; or a pcap or pcapng file",
    )
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="arguments",
        help="of the program: all that stands behind it, also -o; options of ours stand before it",
    )
    args = parser.parse_args(argv)
    if Path(args.what).suffix in CAPTURES and args.arguments:
        # There is no program to have them. They follow the options that stand before, which they may overrule.
        behind = Parser(prog=parser.prog, usage=USAGE, parents=[options])
        args = behind.parse_args(args.arguments, argparse.Namespace(**vars(args) | {"arguments": []}))
    if args.first < 1:
        parser.error(f"--first must be at least 1, not {args.first}")
    return args


def _command(what):
    """How the program is started, a script as one that may import pyverbs; None if there is none."""
    if what in COMMANDS:
        return [sys.executable, "-m", "verbena.sw.cli", what]
    if what.endswith(".py"):
        return [sys.executable, "-m", "verbena.sw.cli", "run", what] if Path(what).is_file() else None
    found = shutil.which(what)
    return [found] if found else None


def _run(command, capture):
    """Runs a program to its end; returns its status."""
    settings = {"VERBENA_CAPTURE": str(capture), "VERBENA_CAPTURE_BUS": "1", "VERBENA_CAPTURE_FRAMES": "both"}
    with subprocess.Popen(command, env=os.environ | settings) as program:
        try:
            status = program.wait()
        except KeyboardInterrupt:  # which the program has got, too: what it left is shown
            status = program.wait()
        return status if status >= 0 else 128 - status  # as a shell tells of a signal


@command_line
def main(argv=None):
    """Command line; returns the status: that of the program, or 1 if there is no page."""
    args = _arguments(argv)
    status, path = 0, Path(args.what)
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix not in CAPTURES:
            command = _command(args.what)
            if command is None:
                print(f"verbena trace: there is no program {args.what!r}", file=sys.stderr)
                return 1
            path = (args.capture or Path(folder) / "run.pcapng").absolute()
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                print(f"verbena trace: cannot write {plain(error)}", file=sys.stderr)
                return 1
            status = _run([*command, *args.arguments], path)
            if not path.exists():
                print(f"verbena trace: {args.what} {NO_CAPTURE}", file=sys.stderr)
                return status or 1
        output = args.output or Path(f"{Path(args.what).stem}.html")
        try:
            data = data_of(read_capture(path), args.first, args.qp)
            output.write_text(render(data, " ".join([Path(args.what).name, *args.arguments])))
        except (CaptureError, OSError) as error:
            print(f"verbena trace: {plain(error)}", file=sys.stderr)
            return status or 1
    print(f"{output}: {data['summary']}")
    return status


if __name__ == "__main__":
    sys.exit(main())
