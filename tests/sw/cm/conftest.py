"""Two managers on one wire, without an engine."""

import pytest
from sides import FAR, NEAR, Side, Wire


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def sides(wire):
    return Side(wire, "near", NEAR), Side(wire, "far", FAR)
