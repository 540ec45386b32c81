"""Helpers of the tests are plain modules (``from streams import send_all``), found through ``sys.path``."""

import os
import sys
from pathlib import Path

from amaranth.hdl import Elaboratable
from hypothesis import settings
from verbena.sim.devices import configure

HERE = Path(__file__).parent

# Appended, not inserted: a helper folder must never hide a module of the standard library (there is a tests/hdl/queue).
for folder in (HERE, HERE / "hdl", HERE / "sim", HERE / "sw", HERE / "adapter", HERE / "formal", HERE / "interop"):
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
