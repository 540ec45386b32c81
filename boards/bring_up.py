"""From a bitstream to a node that Linux can reach: ``verbena-board ecpix5-85f``.

It loads the bitstream with openFPGALoader, waits until the node answers, tells what it is, registers a region of its
memory, and prints what is to be typed on both sides. Whatever fails is told in one line, with status 1.
"""

import errno
import ipaddress
import os
import subprocess
import sys
import time
from pathlib import Path

from verbena.sw.port import open_port
from verbena.sw.tools.command import Parser, command_line, first_line
from verbena.sw.verbs.device import Context
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.pyverbs_error import PyverbsError

from .build import DEFAULT_IP, find_boards, read_boards
from .tools import BuildError

__all__ = ["BringUpError", "bring_up", "load", "main"]

ACCESS = 1 | 2 | 4 | 8
"""Local write, remote write, read and atomic."""

LINK_SECONDS = 10.0
"""How long a PHY may need to have a link."""

PAUSE = 0.1

SIZE = 4096


class BringUpError(RuntimeError):
    """The bitstream cannot be loaded, or what is loaded does not answer."""


def load(board, bitstream):
    """Loads a bitstream into the FPGA of ``board``; the program is openFPGALoader, or what OPENFPGALOADER names."""
    if not bitstream.is_file():
        raise BringUpError(f"there is no {bitstream}: make bitstream BOARD={board.name}")
    command = [os.environ.get("OPENFPGALOADER") or "openFPGALoader", *board.loader, str(bitstream)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise BringUpError(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = done.stdout.strip().splitlines() or ["no message"]
        raise BringUpError(f"{command[0]} failed: {lines[-1]}")


def _wait(device, seconds):
    """The port of ``device``, once it answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            return open_port(device)
        except OSError as error:
            if error.errno not in (errno.ETIMEDOUT, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
                raise BringUpError(str(error)) from None
            time.sleep(PAUSE)
            if time.monotonic() > end:
                raise BringUpError(
                    f"{device} does not answer: is the cable in, and are you a host that it allows?"
                ) from None


def bring_up(device, *, say=print):
    """Opens ``device``, tells about it, and prints what to type. ``BringUpError`` if it does not answer."""
    port = _wait(device, LINK_SECONDS)
    mac = ":".join(f"{byte:02x}" for byte in port.mac.to_bytes(6, "big"))
    ip = ipaddress.IPv4Address(port.ip)
    say(f"{device}: MAC {mac}, IPv4 {ip}, memory {port.memory.size // 1024} KiB at {port.memory.base:#x}")
    try:
        context = Context(name=device)
        region = MR(PD(context), SIZE, ACCESS)
    except PyverbsError as error:
        raise BringUpError(str(error)) from None
    say(f"region of {SIZE} bytes at {region.buf:#x}, rkey {region.rkey:#010x}")
    sizes = f"-m 1024 -s {SIZE} -n 1000"
    say(f"here:     verbena-perftest write_bw -d {device} {sizes}")
    say("on Linux: sudo rdma link add rxe0 type rxe netdev eth0")
    say(f"          ib_write_bw -d rxe0 -x 1 -F {sizes} <this host>")
    context.close()


@command_line
def main(argv=None):
    """Command line; returns the status."""
    parser = Parser(prog="verbena-board", description=first_line(__doc__))
    parser.add_argument("board", help=f"one of {', '.join(sorted(find_boards()))}")
    parser.add_argument("--board-file", type=Path, metavar="PATH", help="a Python file with more of them: BOARDS")
    parser.add_argument("--bitstream", type=Path, help="default: build/BOARD/top.bit")
    parser.add_argument("--no-load", action="store_true", help="it runs already")
    parser.add_argument("--ip", default=DEFAULT_IP, help="of the node, as its bitstream has it (%(default)s)")
    parser.add_argument("--device", help="another device of the driver, such as a simulated one")
    args = parser.parse_args(argv)
    try:
        boards = find_boards() | (read_boards(args.board_file) if args.board_file else {})
        if args.board not in boards:
            raise BringUpError(f"there is no board {args.board!r}; there are {', '.join(sorted(boards))}")
        if not args.no_load:
            load(boards[args.board], args.bitstream or Path("build") / args.board / "top.bit")
        bring_up(args.device or f"etherbone:{args.ip}")
    except (BringUpError, BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
