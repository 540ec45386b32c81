"""Helpers of the tests are plain modules (``from streams import send_all``), found through ``sys.path``."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from amaranth.hdl import Elaboratable
from hypothesis import settings
from verbena.sim.devices import configure

HERE = Path(__file__).parent

# Appended, not inserted: a helper folder must never hide a module of the standard library (there is a tests/hdl/queue).
for folder in ("", "hdl", "sim", "sim/trace", "sw", "sw/cm", "adapter", "formal", "interop"):
    folder = HERE / folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

# One example is a whole simulation, so its time says nothing about the code.
settings.register_profile("verbena", deadline=None, print_blob=True, derandomize=not os.environ.get("VERBENA_SEED"))
settings.load_profile("verbena")

# A constructor that raises ValueError leaves an elaboratable behind, which Amaranth then calls unused; filters do not
# reach warnings that the garbage collector raises after the last test.
Elaboratable._MustUse__silence = True

# A shell starts what it puts into the background without it, and so would be what the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Elaboration makes millions of objects that live for one test; to look at them again and again takes a seventh of the
# time.
gc.set_threshold(100_000, 20, 20)

# A switch that happens to run is none of the tests'.
os.environ["VERBENA_SIM"] = ""

# Tests run side by side, one on each core.
os.environ.setdefault("VERBENA_CORES", "1")

# Whoever looks for the bug that shows once in a thousand seeds says VERBENA_SEED; the suite is the same every time.
configure(seed=int(os.environ.get("VERBENA_SEED") or 1))


@pytest.fixture
def provided():
    """A function that provides a device, by name and opener, for this test alone."""
    from verbena.sw import port

    names = []

    def provide(name, opener):
        names.append(name)
        port.provide(name, opener)

    yield provide
    for name in names:
        port._openers.pop(name, None)
        port._open.pop(name, None)


def pytest_addoption(parser):
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="of slow cases that resemble others one in N (%(default)s), and of other slow tests; of proofs one in N; "
        "and at other widths than 64 bits one in N of a file's tests, of those for every width and of others",
    )
    parser.addoption("--waves", metavar="FOLDER", help="leave there the waves of each block's test, and a view of them")


def pytest_configure(config):
    if folder := config.getoption("--waves"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        os.environ["VERBENA_TEST_WAVES"] = str(Path(folder).absolute())


def spread(count, of):
    """``count`` different numbers below ``of``: the first, the last, and some from between, out of step with any
    parameter."""
    golden = (int(of * (place * 0.6180339887 % 1)) for place in range(1, 1 << 30))
    chosen = dict.fromkeys([0, of - 1][:count])
    while len(chosen) < min(count, of):
        chosen[next(golden)] = None
    return set(chosen)


def pytest_collection_modifyitems(config, items):
    """Where ``tests/samples.txt`` says how many of a function's cases show what there is, the others are slow. Of those
    ``--one-in`` takes some: of all those that are like cases that are not slow, of all others, and of all proofs. At
    other widths it takes some of a file's tests, of those for every width and of the others."""
    from case_width import ends

    # Last are files that take seconds each, so that all workers are busy to the end.
    items.sort(key=lambda item: item.path.is_relative_to(HERE / "hdl"))
    lines = (HERE / "samples.txt").read_text().split("\n")
    samples = {line.split()[0]: line.split()[1:] for line in lines if line and not line.startswith("#")}
    usual = os.environ.get("VERBENA_DATA_WIDTH", "64") == "64"  # otherwise it is one kind of engine more
    functions, alike = {}, set()
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in samples and not item.get_closest_marker("slow"):
            functions.setdefault(name, []).append(item)
    for name, cases in functions.items():
        count, elsewhere = int(samples[name][0]), int(samples[name][-1])
        if not usual:
            count = elsewhere if len(samples[name]) > 1 else max(1, count // 3)
        chosen = spread(count, len(cases))
        for place, item in enumerate(cases):
            if place not in chosen:
                compared = name.startswith("tests/hdl/") and item in ends(cases)
                item.add_marker("compared" if compared else "slow")
                alike.add(item)
    if (one_in := config.getoption("one_in")) > 1:
        pools = {}
        short = {item.nodeid.partition("[")[0] for item in items if not item.get_closest_marker("slow")}
        alike.update(item for item in items if item.nodeid.partition("[")[0] in short)
        for item in items:
            if item.path.is_relative_to(HERE / "formal"):
                pools.setdefault("proofs", []).append(item)
            elif item.get_closest_marker("slow"):
                pools.setdefault("alike" if item in alike else "others", []).append(item)
            elif not usual or item.get_closest_marker("few_slots"):
                pools.setdefault((item.path, bool(item.get_closest_marker("every_width"))), []).append(item)
        left = {item for cases in pools.values() for place, item in enumerate(cases) if place % one_in}
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def pytest_collection_finish():
    """What is there by now, some 300,000 objects, stays to the end: no collection looks at it again."""
    gc.collect()
    gc.freeze()


def pytest_assertrepr_compare(op, left, right):
    """Frames that differ are told field by field."""
    from frame_fields import compare

    return compare(left, right) if op == "==" else None
