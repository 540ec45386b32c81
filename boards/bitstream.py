"""The steps from a board to its bitstream: yosys makes a netlist, nextpnr places and routes it, ecppack packs it."""

import json
import os
import shutil

from verbena.hdl.generate import mark_collisions

from .board import Top
from .floorplan import draw
from .nextpnr import PLACED, folder_of, place_and_route, signal_of
from .synthesis import finish, free_states, place_memories, synth_ecp5
from .tools import BuildError, run_tool, run_yosys

__all__ = ["COMPOSED", "check", "place", "publish", "synthesize"]

COMPOSED = ("top", "top.node", "top.node.rnic", "top.node.rnic.send", "top.node.rnic.wire")
"""What is no more than blocks of its own."""

RESULTS = ("top.bit", "report.json", "floorplan.png")

UNCONSTRAINED = 12
"""MHz: nextpnr's aim for a clock without a constraint."""


def synthesize(board, folder, *, mac, ip, allowed):
    """Leaves netlist and constraints of ``board`` in ``folder``, and nothing of an older bitstream."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in RESULTS:
        (folder / name).unlink(missing_ok=True)  # nobody shall take an old one for the new
    # Amaranth's own run of the tools would ask for programs that are not needed here.
    os.environ.setdefault("AMARANTH_ENV_TRELLIS", "")
    # No sources are named, for nextpnr's router would heed the length of their names.
    files = board.platform().prepare(Top(board, mac=mac, ip=ip, allowed=allowed), "top", emit_src=False).files
    (folder / "top.lpf").write_text(files["top.lpf"])
    (folder / "top.il").write_text(place_memories(free_states(mark_collisions(files["top.il"])), **board.memories))
    script = f"read_rtlil top.il; {synth_ecp5(folder, '-top top -json top.json')}"
    run_yosys(script, folder)
    finish(folder / "top.json", "top")


def place(board, folder, seed, say=lambda text: None):
    """Places, routes, packs and draws what :func:`synthesize` left in ``folder``; returns what the report says of it:
    clocks, utilization, and of what. The files are in ``folder / f"seed-{seed}"``.
    """
    platform = board.platform()
    package = platform._nextpnr_package_options[platform.package].upper()
    options = [platform._nextpnr_device_options[platform.device], "--package", package, "--speed", str(platform.speed)]
    options += ["--lpf", "top.lpf", "--textcfg", "top.config"]
    own = folder_of(seed, folder, "top.json", "top.lpf")
    routed = place_and_route(own, options, seed, say)
    report = {"board": board.name, "device": platform.device, "speed": platform.speed, "seed": seed}
    report |= _results(routed)
    say("packing the bitstream")
    run_tool("ecppack", ["--input", "top.config", "--bit", "top.bit"], own, "ecppack.log")
    module = json.loads((own / PLACED).read_text())["modules"]["top"]
    title = "{board}: {device}, seed {seed}".format_map(report)
    draw(module, routed, {name.removeprefix("top.") for name in COMPOSED[1:]}, title, own / "floorplan.png")
    (own / PLACED).unlink()  # large, and of no further use
    return report


def _results(nextpnr):
    clocks = {
        signal_of(name): {
            "mhz": round(each["achieved"], 2),
            "wanted_mhz": round(each["constraint"], 1),  # nextpnr counts in whole picoseconds
        }
        for name, each in nextpnr["fmax"].items()
    }
    return {"clocks": clocks, "utilization": {k: v for k, v in nextpnr["utilization"].items() if v["used"]}}


def check(report):
    """``BuildError`` if a clock is missed, or nobody has said how fast it is."""
    unknown = [name for name, each in report["clocks"].items() if each["wanted_mhz"] == UNCONSTRAINED]
    if unknown:
        raise BuildError(f"{report['board']} has no constraint for {', '.join(unknown)}")
    missed = [
        f"{name}: {each['mhz']} of {each['wanted_mhz']} MHz"
        for name, each in report["clocks"].items()
        if each["mhz"] < each["wanted_mhz"]
    ]
    if missed:
        raise BuildError(f"{report['board']} misses {', '.join(missed)}")


def publish(folder, report):
    """Makes what was placed with a seed the result in ``folder``, and ``report`` its report.json."""
    own = folder / f"seed-{report['seed']}"
    for name in ("top.bit", "floorplan.png"):
        shutil.copyfile(own / name, folder / name)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
