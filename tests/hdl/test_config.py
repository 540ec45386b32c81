"""The parameters of an engine, and what they change in it as a whole."""

import pytest
from verbena.hdl.config import Config
from verbena.hdl.rnic import Rnic


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("data_width", (32, 96, 1024)),
        ("qps", (1, 3, 1024)),
        ("cqs", (1, 1024)),
        ("window", (1, 48)),
        ("sq_area", (128, 8192)),
        ("rq_area", (300,)),
        ("mpt_sets", (2, 1024)),
        ("mtt_sets", (2, 1024)),
        ("transmit_buffer", (2048,)),
        ("receive_buffer", (4096,)),
        ("headers", (3, 65, 8.0)),
        ("address_width", (31, 65, "64")),
        ("requests", (1, None)),
        ("udp_port", (0, 65536)),
    ],
)
def test_what_is_refused(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            Config(**{name: value})


def blocks(config):
    """Names of the engine's blocks."""
    rnic = Rnic(config)
    rnic.elaborate(None)
    return set(rnic._blocks)


def test_an_engine_that_only_responds():
    """It has no block that only requests need, and one that answers for them."""
    everything, responding = blocks(Config()), blocks(Config(requests=False))
    gone = {"sq_fetch", "requester", "transmit_merge", "collector", "completer", "timers"}
    assert everything - responding == gone
    assert responding - everything == {"nobody"}
