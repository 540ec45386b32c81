"""Makes this folder's helpers importable."""

import sys
from pathlib import Path

import pytest
from verbena.boards import sim
from verbena.sw import port

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))


@pytest.fixture(scope="module")
def network():
    """The network of the devices ``sim0``, a node, and ``sim1``; afterwards these names mean what they did before."""
    port.port_names()  # now they mean something
    kept = [(registry, dict(registry)) for registry in (port._openers, port._open)]
    yield sim.provide_devices()
    for registry, before in kept:
        registry.clear()
        registry.update(before)
