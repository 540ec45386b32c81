"""The record of a QP: lines with owners, and states of the blocks that fit their parts."""

import pytest
from amaranth.hdl import Shape
from amaranth.lib import data
from verbena.hdl.abi.header import markdown
from verbena.hdl.abi.qpc import LINE_BYTES, LINE_WORDS, QP_REQUESTER, QP_RESPONDER, ContextRecord, Owned
from verbena.hdl.abi.record import Field
from verbena.hdl.transport.completer.ack_context import AckContext
from verbena.hdl.transport.receive.layouts import ReadProgress, RecvPlace, RequestState
from verbena.hdl.transport.requester.requester_context import RequesterContext
from verbena.hdl.transport.responder.acknowledger import Memory

HALVES = (QP_REQUESTER, QP_RESPONDER)


def leaves(shape, path):
    """(name, width) of all fields of a layout, those in it too."""
    if isinstance(shape, data.StructLayout):
        for name, field in shape:
            yield from leaves(field.shape, f"{path}_{name}")
    else:
        yield path, Shape.cast(shape).width


@pytest.mark.parametrize(("record", "part", "state"), [
    (QP_RESPONDER, "request_state", RequestState),
    (QP_RESPONDER, "place", RecvPlace),
    (QP_RESPONDER, "acknowledge", Memory),
    (QP_REQUESTER, "read_progress", ReadProgress),
    (QP_REQUESTER, "ack_context", AckContext),
    (QP_REQUESTER, "send", RequesterContext),
])  # fmt: skip
def test_states_have_their_places(record, part, state):
    """Each field of what a block keeps has a place of its width, and a part has no more, but for exceptions."""
    places = {field.name: field.width for field in record.places[part][1]}
    wanted = dict(leaves(state, part))
    assert wanted.items() <= places.items()
    assert set(places) - set(wanted) <= {"send_draining"}


@pytest.mark.parametrize("record", HALVES)
def test_a_part_has_one_owner_and_stands_in_one_line(record):
    assert set(record.owners) == set(record.places)
    for line, fields in record.places.values():
        for field in fields:
            assert field.offset // (8 * LINE_BYTES) == line
            assert field.offset + field.width <= 64 * (line * LINE_WORDS + record.words_used(line))


@pytest.mark.parametrize("record", HALVES)
def test_the_driver_writes_a_line_of_its_own(record):
    """What the driver writes while the QP lives stands in a line that the engine never writes."""
    lines = {part: line for part, (line, _) in record.places.items()}
    assert [part for part, line in lines.items() if line == lines["producer"]] == ["producer"]
    assert [part for part, line in lines.items() if line == lines["attributes"]] == ["attributes"]


def test_lines_are_told_in_the_documentation():
    assert "| 2 | `0x80` | `place` | responder | 164 |" in markdown()


@pytest.mark.parametrize(("owners", "lines", "message"), [
    ({"a": "x", "b": "y"}, {0: [[Owned("v", 3, part="a")]]}, r"must be those of \['a'\], not \['a', 'b'\]"),
    ({"a": "x"}, {0: [[Owned("v", 3, part="a")]], 1: [[Owned("w", 3, part="a")]]}, "'a' of record 'r' in several"),
    ({"a": "x"}, {0: [[Owned("v", 60, part="a"), Field("_", 5)]]}, "crosses a 64-bit boundary at bit 60"),
])  # fmt: skip
def test_bad_records(owners, lines, message):
    with pytest.raises(ValueError, match=message):
        ContextRecord("r", 0, owners, lines, "")
