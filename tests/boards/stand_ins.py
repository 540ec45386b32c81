"""Programs of our own in the place of yosys, nextpnr and ecppack."""

import json
import sys

__all__ = ["ECPPACK", "NEXTPNR", "NEXTPNR_SAYS", "PLACED", "REPORT", "YOSYS", "stand_in"]


def stand_in(tmp_path, monkeypatch, variable, text):
    """Puts a program of our own in the place of a tool."""
    program = tmp_path / variable.lower()
    program.write_text(f"#!{sys.executable}\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv(variable, str(program))


NETLIST = {"modules": {"top": {"ports": {}, "cells": {}, "netnames": {}}}}
YOSYS = f"open('top.json', 'w').write({json.dumps(NETLIST)!r})"
PLACED = {
    "fmax": {"clk": {"achieved": 99.5, "constraint": 100.0}},
    "utilization": {"TRELLIS_COMB": {"used": 3, "available": 9}},
    "critical_paths": [],
}
NEXTPNR = f"""
import json, shutil, sys
given = dict(zip(sys.argv, sys.argv[1:]))
if "--write" in given:
    shutil.copy(given["--json"], given["--write"])
if "--textcfg" in given:
    open(given["--textcfg"], "w").write("config")
placed = {PLACED!r}
"""
"""Its arguments are in ``given``, and it has written what was placed; a report is to be written after it."""

REPORT = """
if "--report" in given:
    open(given["--report"], "w").write(json.dumps(placed))
"""
NEXTPNR_SAYS = NEXTPNR + REPORT
ECPPACK = "open('top.bit', 'w').write('bits')"
