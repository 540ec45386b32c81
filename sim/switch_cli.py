"""``verbena sim``: a switch for programs that each have a simulated adapter.

Programs of the same user find it by themselves, or by VERBENA_SIM=FOLDER. Each takes the first adapter that is free, or
the one whose name it asks for. Ctrl-C ends the switch.
"""

import argparse
import ipaddress
import math
import signal
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

from verbena.sw.tools.command import Parser, command_line, plain

from .attach import default_folder
from .library import FRAMES
from .link import LATENCY_NS, MTU
from .ports import Faults
from .switch import AdapterOptions, Network

__all__ = ["main", "plan"]

ADAPTERS = 8
FIRST = "10.0.0.1"
LEAST_DELAY_NS = 20.0
"""Three cycles of 156.25 MHz: an adapter needs two."""

FAULTS = [f.name for f in fields(Faults)]
LINE = ("delay_ns", "rate_gbps", "queue_bytes", "ecn_bytes")
NETWORK = ("adapters", "first_address", "mtu", "seed", "capture", "capture_frames")


def _parser():
    parser = Parser(prog="verbena sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help=f"for the sockets (default: {default_folder()})")
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="TOML with these options; those given here count more"
    )
    parser.add_argument("-n", "--adapters", type=int, help=f"how many (default: {ADAPTERS})")
    parser.add_argument("--first-address", metavar="IP", help=f"of sim0; the others follow (default: {FIRST})")
    parser.add_argument("--mtu", type=int, help=f"the largest: 256 to 4096 (default: {MTU})")
    parser.add_argument(
        "--delay-ns", type=float, metavar="NS", help=f"of each cable, each way (default: {LATENCY_NS:g})"
    )
    parser.add_argument(
        "--rate-gbps", type=float, metavar="GBPS", help="of each line to an adapter (default: as fast as frames come)"
    )
    parser.add_argument(
        "--queue-bytes", type=int, metavar="N", help="that may wait for a line; more is dropped (default: any)"
    )
    parser.add_argument(
        "--ecn-bytes", type=int, metavar="N", help="waiting, from which on frames are marked (default: never)"
    )
    for name in FAULTS[:6]:
        parser.add_argument(f"--{name}", type=float, metavar="P", help="probability of this fault, for each frame")
    for name in FAULTS[6:]:
        option = name.replace("_cycles", "-ns")
        parser.add_argument(
            f"--{option}-most" if option == "delay-ns" else f"--{option}",
            dest=name,
            type=int,
            metavar="NS",
            help="such frames are late by so much at most (default: 2000)",
        )
    parser.add_argument("--seed", type=int, help="of the faults (default: 1)")
    parser.add_argument("-w", "--capture", type=Path, metavar="FILE", help="a pcapng file for all frames")
    parser.add_argument(
        "--capture-frames",
        choices=FRAMES,
        help="where they are taken: as adapters send or receive them (default: sent)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not tell who comes and goes")
    return parser


def _known(table, names, where):
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table of options, not {table!r}")
    for name in table:
        if name not in names:
            raise ValueError(f"{where}: there is no option {name!r}; there are: {', '.join(names)}")


def _read(path):
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def _number(name, value, least, most=None, kind=(int, float)):
    right = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
    if not right or value < least or (most is not None and value > most):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} must be {limits}, not {value!r}")
    return value


def _line(table):
    """What of a table, checked, goes to :class:`.switch.AdapterOptions`."""
    line = {name: table[name] for name in LINE if name in table}
    for name, value in line.items():
        _number(
            name,
            value,
            LEAST_DELAY_NS if name == "delay_ns" else 0,
            kind=int if name.endswith("_bytes") else (int, float),
        )
    faults = table.get("faults", {})
    _known(faults, FAULTS, "faults")
    for name, value in faults.items():
        _number(name, value, 0)
    line["faults"] = Faults(**faults)
    if not line.get("rate_gbps") and (line.get("queue_bytes") or line.get("ecn_bytes")):
        raise ValueError("queue_bytes and ecn_bytes need a rate_gbps: without a rate nothing waits")
    return line


def plan(options):
    """The arguments of :class:`.switch.Network` that command line and file ask for. ``ValueError`` with one line."""
    table = _read(options.config) if options.config else {}
    _known(table, (*NETWORK, *LINE, "faults", "adapter"), options.config)
    given = {name: getattr(options, name) for name in (*NETWORK, *LINE) if getattr(options, name) is not None}
    faults = {name: getattr(options, name) for name in FAULTS if getattr(options, name) is not None}
    _known(table.get("faults", {}), FAULTS, "faults")
    common = table | given | {"faults": table.get("faults", {}) | faults}
    own = table.get("adapter", [])
    if not isinstance(own, list):
        raise ValueError(f"each adapter is a table of its own, [[adapter]], not {own!r}")
    count = _number("adapters", common.get("adapters", max(ADAPTERS if not own else 0, len(own))), 1, 250, int)
    if len(own) > count:
        raise ValueError(f"adapters is {count}, but there are {len(own)} tables [[adapter]]")
    mtu = common.get("mtu", MTU)
    if mtu not in (256, 512, 1024, 2048, 4096):
        raise ValueError(f"mtu must be 256, 512, 1024, 2048 or 4096, not {mtu!r}")
    first = ipaddress.IPv4Address(common.get("first_address", FIRST))
    adapters = []
    for i in range(count):
        mine = own[i] if i < len(own) else {}
        _known(mine, ("address", *LINE, "faults"), f"adapter {i}")
        _known(mine.get("faults", {}), FAULTS, f"faults of adapter {i}")
        merged = common | mine | {"faults": common["faults"] | mine.get("faults", {})}
        address = str(ipaddress.IPv4Address(mine.get("address", first + i)))
        adapters.append(AdapterOptions(address, **_line(merged)))
    addresses = [adapter.address for adapter in adapters]
    for address in addresses:
        if addresses.count(address) > 1:
            raise ValueError(f"two adapters have the address {address}")
    if (frames := common.get("capture_frames", "sent")) not in FRAMES:
        raise ValueError(f"capture_frames must be {', '.join(FRAMES)}, not {frames!r}")
    capture = common.get("capture")
    if capture is not None and not isinstance(capture, str | Path):
        raise ValueError(f"capture must be the name of a file, not {capture!r}")
    return {
        "adapters": adapters,
        "mtu": mtu,
        "seed": _number("seed", common.get("seed", 1), 0, (1 << 63) - 1, int),
        "capture": capture,
        "capture_frames": frames,
    }


def _interrupt(*_):
    raise KeyboardInterrupt


@command_line
def main(arguments=None):
    """Command line."""
    options = _parser().parse_args(arguments)
    folder = options.folder or default_folder()
    say = (lambda *_: None) if options.quiet else (lambda line: print(line, flush=True))
    for number in (signal.SIGINT, signal.SIGTERM):  # also if a shell starts it in the background, without SIGINT
        signal.signal(number, _interrupt)
    try:
        with Network(folder, tell=say, **plan(options)) as network:
            names = list(network.names)
            say(f"{len(names)} adapters, {names[0]} to {names[-1]}, at {folder}; Ctrl-C ends the switch")
            if options.folder and folder.resolve() != default_folder().resolve():
                say(f"programs find it with VERBENA_SIM={folder.absolute()}")
            while True:
                network.step()
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # of what is printed
        raise
    except (ValueError, OSError) as error:
        print(f"verbena sim: {plain(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
