"""The plain model: what memory may be, and what not."""

import pytest
from verbena.sim.soak.model import Difference, Operation, Peer


def peer():
    model = Peer(10_000)
    before = model.write(5000, b"new!")
    model.open.append(Operation(0, "RDMA_WRITE", True, (5000, 4), before=before, data=b"new!"))
    return model


def test_memory_is_the_models():
    model = peer()
    memory = bytearray(10_000)
    with pytest.raises(Difference, match="slice: byte 0x1388 is 0x00, not 0x6e"):
        model.check(bytes(memory), "slice")
    memory[5000:5004] = b"new!"
    model.check(bytes(memory), "slice")


@pytest.mark.parametrize("found", [b"new!", b"\0\0\0\0", b"ne\0\0", b"\0\0w!"])
def test_what_is_open_may_have_happened_or_not_or_in_part(found):
    model = peer()
    memory = bytearray(10_000)
    memory[5000:5004] = found
    model.settle(bytes(memory), "slice")
    assert model.read(5000, 4) == found
    assert not model.open
    model.check(bytes(memory), "slice")


@pytest.mark.parametrize(("at", "value"), [(4999, 1), (5004, 1), (5001, ord("n")), (9999, 255)])
def test_nothing_else_may(at, value):
    model = peer()
    memory = bytearray(10_000)
    memory[at] = value
    with pytest.raises(Difference, match=f"slice: byte {at:#x} is {value:#04x}, which nobody wrote"):
        model.settle(bytes(memory), "slice")


def test_changes_of_what_is_read_are_fenced():
    model = Peer(100)
    model.open.append(Operation(0, "RDMA_READ", True, (10, 10), result=bytes(10)))
    assert model.fence(19, 1)
    assert not model.fence(20, 5)
    assert not model.fence(5, 5)
