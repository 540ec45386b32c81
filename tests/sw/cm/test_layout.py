"""Big-endian layouts."""

import random

import pytest
from verbena.sw.cm.layout import Layout


def test_fields_stand_as_they_are_drawn():
    layout = Layout("it", [("a", 4), ("b", 12), ("_", 3), ("c", 5), ("d", 24)], 4)
    assert layout.size == 10
    assert layout.pack(b"xy", a=0xF, b=0x123, c=0x1F, d=0xABCDEF) == bytes.fromhex("f1231fabcdef") + b"xy\0\0"
    values = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert layout.unpack(layout.pack(**values)) == {**values, "private_data": bytes(4)}


def test_any_values_come_back():
    rng = random.Random("any values")
    for _ in range(50):
        widths = [rng.choice((1, 3, 8, 24, 64, 128)) for _ in range(rng.randrange(1, 9))]
        fields = [(f"f{n}", width) for n, width in enumerate(widths)] + [("_", -sum(widths) % 8)]
        layout = Layout("it", fields)
        values = {f"f{n}": rng.randrange(1 << width) for n, width in enumerate(widths)}
        assert layout.unpack(layout.pack(**values)) == values


def test_what_is_wrong():
    with pytest.raises(ValueError, match="9 bits, which are no whole bytes"):
        Layout("it", [("a", 9)])
    with pytest.raises(ValueError, match="'a' stands twice in it"):
        Layout("it", [("a", 4), ("a", 4)])
    layout = Layout("it", [("a", 8)], 1)
    with pytest.raises(ValueError, match="it has 2 bytes, not 3"):
        layout.unpack(bytes(3))
    with pytest.raises(ValueError, match=r"it\.a has 8 bits and cannot hold 256"):
        layout.pack(a=256)
    with pytest.raises(ValueError, match="it has no field 'b'"):
        layout.pack(b=1)
