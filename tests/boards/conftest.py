"""Makes this folder's helpers importable, and those of the Ethernet blocks' tests."""

import sys
from pathlib import Path

import pytest
from verbena.boards import sim
from verbena.sw import port

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "hdl" / "ethernet"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


@pytest.fixture(scope="module")
def network():
    """The network of the devices ``sim0``, a node, and ``sim1``; afterwards these names mean what they did before."""
    port.port_names()  # now they mean something
    kept = [(registry, dict(registry)) for registry in (port._openers, port._open)]
    yield sim.provide_devices()
    for registry, before in kept:
        registry.clear()
        registry.update(before)
