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
from cases import groups as all_groups
from filelock import FileLock, Timeout
from image import ImageError, build, check_host
from judge import judge
from machine import GuestError
from report import Report
from verbena.sim.model import BuildError, build_directory, rnic
from verbena.sim.model import build as build_model

ROOT = build_directory() / "interop"


def selected(only, seed):
    """Groups of cases by name, those whose names match the pattern ``only``."""
    chosen = {
        name: [case for case in cases if re.search(only, f"{name}: {case.name} as {case.role}")]
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


def run_group(machines, folder, name, cases, report):
    """Runs cases on one bench, made of ``machines``; a new one after each failure, in a folder of its own. Returns the
    captures.
    """
    captures = []
    left = list(cases)
    while left:
        place = folder / re.sub(r"\W+", "-", f"{name} {len(captures) or ''}".strip())
        with Bench(*machines, place) as bench:
            captures.append(place / CAPTURE)
            good = True
            while left and good:
                case = left.pop(0)
                report.begin(f"{name}: {case.name}")
                good = run_case(bench, case, report)
    return captures


def run(only, seed):
    """The whole suite; the exit status."""
    check_host()
    groups = selected(only, seed)
    # Asked for once: the sources may change while this runs.
    design = rnic()
    model = build_model(design, verbose=True)
    image = build(ROOT)
    folder = ROOT / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report(sum(map(len, groups.values())))
    with ProcessPoolExecutor(1) as pool, report:
        snapshot = prepare(image, folder)
        judged = []
        for name, cases in groups.items():
            for capture in run_group((design, image, snapshot), folder, name, cases, report):
                judged.append(pool.submit(judge, capture))
        snapshot.unlink()
        report.begin("judge the captures")
        verdicts = [future.result() for future in judged]
    report.table()
    report.write(ROOT.parent / "interop.json")
    complaints = [complaint for _, more in verdicts for complaint in more]
    for complaint in complaints[:20]:
        report.say(complaint)
    frames = sum(count for count, _ in verdicts)
    report.say(f"{frames} RoCE frames judged by scapy (ICRC) and tshark: {len(complaints)} complaints")
    report.say(f"seed {seed}; captures and logs: {folder}; model: {model.directory.name}; guest: {image.folder.name}")
    return bool(report.failed or complaints or not report.lines)


def main():
    parser = argparse.ArgumentParser(prog="make interop", description=__doc__)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose `group: name as role` matches this")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults (%(default)s)")
    options = parser.parse_args()
    if options.list:
        for name, cases in selected(options.only, options.seed).items():
            for case in cases:
                print(f"{name}: {case.name} as {case.role}")
        return 0
    ROOT.mkdir(parents=True, exist_ok=True)
    # So that no guest is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        with FileLock(ROOT / "lock", timeout=0):
            return run(options.only, options.seed)
    except Timeout:
        print("interop: another run is going on here", file=sys.stderr)
        return 1
    except (ImageError, GuestError, BuildError) as error:
        print(f"interop: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
