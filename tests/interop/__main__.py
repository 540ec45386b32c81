"""``make interop``: the simulated adapter against Linux' Soft-RoCE; see docs/interop.md."""

import argparse
import re
import shutil
import signal
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

from bench import CAPTURE, Bench, prepare
from cases import ADAPTER_CASES, NODE_CASES
from cases import groups as all_groups
from filelock import FileLock, Timeout
from image import ImageError, build, check_host
from judge import judge
from machine import GuestError
from report import Report
from stations import AdapterStation, NodeStation
from verbena.boards import sim as board
from verbena.hdl.config import Config
from verbena.sim.model import BuildError, build_directory, rnic
from verbena.sim.model import build as build_model

ROOT = build_directory() / "interop"


STATIONS = {
    # What hangs on the cable, of which designs, and which cases it can bear.
    "adapter": (AdapterStation, [rnic], ADAPTER_CASES),
    "node": (NodeStation, [board.design], NODE_CASES),
}
RESULTS = {"adapter": "interop.json", "node": "node-interop.json"}


def selected(station, only, seed, every=1):
    """Groups of cases by name: of those for this station whose names match the pattern ``only``, every so many."""
    patterns = STATIONS[station][2], only
    chosen = {
        name: [
            case for case in cases if all(re.search(each, f"{name}: {case.name} as {case.role}") for each in patterns)
        ][::every]
        for name, cases in all_groups(seed).items()
    }
    return {name: cases for name, cases in chosen.items() if cases}


def run_case(bench, case, report):
    """Runs a case; whether it passed."""
    bench.cable.begin(case.mtu, f"{case.name}, adapter is {case.role}")
    start = time.monotonic()
    complaint = None
    try:
        case.run(bench)
    except Exception as error:
        complaint = f"{type(error).__name__}: {error}"
        with (bench.folder / "failures.log").open("a") as log:
            log.write(f"{case.name} as {case.role}, MTU {case.mtu}\n{traceback.format_exc()}\n")
    report.add(case, bench.cable, complaint, time.monotonic() - start)
    return complaint is None


def run_group(make, folder, name, cases, report):
    """Runs cases on one bench, ``make(place)``; a new one after each failure, in a folder of its own. Returns the
    captures.
    """
    captures = []
    left = list(cases)
    while left:
        place = folder / re.sub(r"\W+", "-", f"{name} {len(captures) or ''}".strip())
        with make(place) as bench:
            captures.append(place / CAPTURE)
            good = True
            while left and good:
                case = left.pop(0)
                report.begin(f"{name}: {case.name}")
                good = run_case(bench, case, report)
    return captures


def run(station, only, seed, slots=64, every=1):
    """The whole suite; the exit status."""
    check_host()
    kind, sources, _ = STATIONS[station]
    if slots != Config().slots:
        sources = [lambda: rnic(slots=slots)]
    groups = selected(station, only, seed, every)
    # Asked for once: the sources may change while this runs.
    designs = [source() for source in sources]
    models = [build_model(design, verbose=True).directory.name for design in designs]
    image = build(ROOT)
    folder = ROOT / ("run" if station == "adapter" else f"run-{station}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report(sum(map(len, groups.values())))
    with ProcessPoolExecutor(1) as pool, report:
        snapshot = prepare(image, folder, kind.guest)

        def make(place):
            return Bench(kind(*designs), image, snapshot, place)

        judged = []
        for name, cases in groups.items():
            for capture in run_group(make, folder, name, cases, report):
                judged.append(pool.submit(judge, capture))
        snapshot.unlink()
        report.begin("judge the captures")
        verdicts = [future.result() for future in judged]
    report.table()
    report.write(ROOT.parent / RESULTS[station])
    complaints = [complaint for _, more in verdicts for complaint in more]
    for complaint in complaints[:20]:
        report.say(complaint)
    frames = sum(count for count, _ in verdicts)
    report.say(f"{frames} RoCE frames judged by scapy (ICRC) and tshark: {len(complaints)} complaints")
    report.say(f"seed {seed}; captures and logs: {folder}; models: {', '.join(models)}; guest: {image.folder.name}")
    return bool(report.failed or complaints or not report.lines)


def main():
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--station", choices=STATIONS, default="adapter", help="what talks to it (%(default)s)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose `group: name as role` matches this")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults (%(default)s)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of a group's cases every Nth (%(default)s)")
    parser.add_argument("--slots", type=int, default=64, help="queue pairs that are on chip at a time (%(default)s)")
    options = parser.parse_args()
    if options.every < 1:
        parser.error("every must be at least 1")
    if options.slots not in (4, 8, 16, 32, 64) or (options.slots != 64 and options.station != "adapter"):
        parser.error("slots must be 4, 8, 16, 32 or 64, and are the adapter's")
    if options.list:
        for name, cases in selected(options.station, options.only, options.seed, options.every).items():
            for case in cases:
                print(f"{name}: {case.name} as {case.role}")
        return 0
    ROOT.mkdir(parents=True, exist_ok=True)
    # So that no guest is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with FileLock(ROOT / "lock", timeout=0):
            return run(options.station, options.only, options.seed, options.slots, options.every)
    except Timeout:
        print("interop: another run is going on here", file=sys.stderr)
        return 1
    except (ImageError, GuestError, BuildError) as error:
        print(f"interop: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
