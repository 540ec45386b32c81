"""``make soft-roce``: a guest with Soft-RoCE and a simulated adapter on one cable, to try things.

A Python prompt on the adapter's side; time passes while nobody types. ``make soft-roce-shell``, in another terminal,
opens a shell in the guest.
"""

import argparse
import code
import contextlib
import os
import readline  # noqa: F401  # the prompt edits lines with it
import select
import socket
import sys
import termios
import threading
import time
import tty

from bench import Bench, prepare
from connection import REQUESTER, RESPONDER, Connection
from image import ImageError, build
from machine import GuestError
from stations import DEVICE, AdapterStation
from verbena.sim.model import BuildError, build_directory, rnic
from verbena.sw.tools import pingpong
from verbena.sw.tools.exchange.channel import Listener
from verbena.sw.tools.perftest import play
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.session import run

ROOT = build_directory() / "interop"
SHELL = ROOT / "shell"
"""Link to the socket of the guest's shell."""

PORT = 18515
GUEST = AdapterStation.guest
BANNER = f"""
The adapter is the device {DEVICE!r} of verbena.sw.verbs, 10.0.0.1; the guest is {GUEST}, its device is rxe0.
A shell in the guest: make soft-roce-shell, in another terminal. Ctrl-D here ends both.

  guest("ping -c 3 10.0.0.1")      runs a command in the guest
  serve("write_bw", size=5000)     our end of perftest; in the guest: ib_write_bw -d rxe0 -x 1 -F -u 22 -s 5000 10.0.2.2
  serve("pingpong", iterations=20) our end of it; in the guest: ibv_rc_pingpong -d rxe0 -g 1 -n 20 10.0.2.2
  c = connect()                    queue pairs and 64 KiB on both sides, connected; ours requests
  c.post("RDMA_WRITE", [[0, 100]], [[200, 100]]); c.finish()     from our offset 0 to the guest's 200; checks all bytes
  context, bench                   the open device; everything else: bench.cable, bench.guest, bench.station.world
"""


def prompt():
    """Runs both, with a prompt, until its end."""
    folder = ROOT / "soft-roce"
    design = rnic()
    image = build(ROOT)
    folder.mkdir(parents=True, exist_ok=True)
    snapshot = prepare(image, folder, AdapterStation.guest)
    with Bench(AdapterStation(design), image, snapshot, folder) as bench:
        snapshot.unlink()
        SHELL.unlink(missing_ok=True)
        SHELL.symlink_to(bench.guest.shell)
        with living(bench):
            code.interact(BANNER, local=names(bench), exitmsg="")
        SHELL.unlink()


@contextlib.contextmanager
def living(bench):
    """Inside, time passes by itself."""
    stop = threading.Event()

    def live():
        while not stop.is_set():
            bench.pump()
            # Let others have the device, too.
            time.sleep(0)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def names(bench):
    """What the prompt knows."""

    def guest(command):
        """Runs a shell command in the guest and prints what it says."""
        status, output = bench.guest.call("run", {"command": command, "seconds": 300}, 310)
        print(output, end="" if not status else f"(status {status})\n")

    def serve(name, **options):
        """Waits for a client in the guest: of ``ibv_rc_pingpong`` or of a program of perftest (without ``ib_``)."""
        with Listener(PORT, "127.0.0.1") as listener:
            if name == "pingpong":
                run(pingpong.server(bench.context, pingpong.Options(**options), listener))
            else:
                run(play.server(bench.context, KINDS[name], Options(**options), listener))

    def connect(role=REQUESTER, **options):
        """A :class:`.connection.Connection` between both sides."""
        return Connection(bench, role, **{"size": 1 << 16} | options)

    mine = {"bench": bench, "context": bench.context, "guest": guest, "serve": serve, "connect": connect}
    return mine | {"REQUESTER": REQUESTER, "RESPONDER": RESPONDER}


def shell():
    """Connects this terminal with the guest's shell; Ctrl-] leaves."""
    if not SHELL.is_socket():
        raise GuestError("no guest is running: make soft-roce, in another terminal")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(SHELL.readlink()))
        print("Ctrl-] leaves", flush=True)
        connection.sendall(b"\n")
        inlet = sys.stdin.fileno()
        before = termios.tcgetattr(inlet) if os.isatty(inlet) else None
        if before:
            tty.setraw(inlet)
        try:
            relay(inlet, connection)
        finally:
            if before:
                termios.tcsetattr(inlet, termios.TCSADRAIN, before)


def relay(inlet, connection):
    """Bytes to and fro, until either side ends."""
    while True:
        for ready in select.select([inlet, connection], [], [])[0]:
            data = os.read(inlet, 4096) if ready == inlet else connection.recv(4096)
            if not data or (ready == inlet and b"\x1d" in data):
                return
            if ready == inlet:
                connection.sendall(data)
            else:
                sys.stdout.buffer.write(data)
                sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(prog="make soft-roce", description=__doc__)
    parser.add_argument("--shell", action="store_true", help="open a shell in the guest that runs")
    options = parser.parse_args()
    try:
        shell() if options.shell else prompt()
    except (ImageError, GuestError, BuildError, OSError) as error:
        print(f"soft-roce: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
