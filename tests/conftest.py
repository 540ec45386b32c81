"""Helpers of the tests are plain modules (``from streams import send_all``), found through ``sys.path``."""

import os
import sys
from pathlib import Path

from amaranth.hdl import Elaboratable
from hypothesis import settings
from verbena.sim.devices import configure

HERE = Path(__file__).parent

# Appended, not inserted: a helper folder must never hide a module of the standard library (there is a tests/hdl/queue).
for folder in ("", "hdl", "sim", "sim/trace", "sw", "adapter", "formal", "interop"):
    folder = HERE / folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

# One example is a whole simulation, so its time says nothing about the code.
settings.register_profile("verbena", deadline=None, print_blob=True)
settings.load_profile("verbena")

# A constructor that raises ValueError leaves an elaboratable behind, which Amaranth then calls unused; filters do not
# reach warnings that the garbage collector raises after the last test.
Elaboratable._MustUse__silence = True

# A switch that happens to run is none of the tests'.
os.environ["VERBENA_SIM"] = ""

# Whoever looks for the bug that shows once in a thousand seeds says VERBENA_SEED; the suite is the same every time.
configure(seed=int(os.environ.get("VERBENA_SEED") or 1))


def pytest_addoption(parser):
    parser.addoption("--waves", metavar="FOLDER", help="leave there the waves of each block's test, and a view of them")


def pytest_configure(config):
    if folder := config.getoption("--waves"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.environ["VERBENA_TEST_WAVES"] = str(Path(folder).absolute())


def pytest_assertrepr_compare(op, left, right):
    """Frames that differ are told field by field."""
    from frame_fields import compare

    return compare(left, right) if op == "==" else None
