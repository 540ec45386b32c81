"""Whole programs of pyverbs' style, run unchanged over simulated adapters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")
SAID = ["send", "send_imm", "send_inline", "write", "write_imm", "read", "atomics", "aborted"]


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_extended_verbs_and_events(times):
    result = subprocess.run(
        [sys.executable, "-m", "verbena.sw.cli", "run", PROGRAMS / "extended_verbs.py", str(times)],
        env=os.environ | {"VERBENA_SEED": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"{name} ok" for name in SAID] + ["done"]
