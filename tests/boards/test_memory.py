"""Block RAM behind AXI and the bridge."""

import pytest
from memory_users import BASE, outside, three_users
from streams import make_rng
from verbena.boards.memory import BlockMemory

SIZE = 8192


@pytest.mark.parametrize("width", [64, 128])
def test_three_users(width):
    three_users(BlockMemory(width, SIZE, BASE), make_rng())


def test_outside():
    outside(BlockMemory(64, SIZE, BASE), make_rng(), SIZE)


@pytest.mark.parametrize(("size", "base"), [(1000, 0), (2048, 0), (8192, 4096)])
def test_arguments(size, base):
    with pytest.raises(ValueError, match="must be"):
        BlockMemory(64, size, base)
