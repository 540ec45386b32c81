import pytest
from hypothesis import given
from hypothesis import strategies as st
from verbena.hdl.abi.header import records
from verbena.hdl.abi.record import Field, Record
from verbena.hdl.stream.record import record_layout, word_layout

ALL = st.sampled_from(records())


def values_of(data, record):
    return {name: data.draw(st.integers(0, field.mask), label=name) for name, field in record.fields.items()}


@given(data=st.data(), record=ALL)
def test_unpack_reverses_pack(data, record):
    values = values_of(data, record)
    packed = record.pack(**values)
    assert len(packed) == record.size
    assert record.unpack(packed) == values
    assert b"".join(word.to_bytes(4, "little") for word in record.words(**values)) == packed


@given(data=st.data(), record=ALL)
def test_record_layout_is_the_memory(data, record):
    values = values_of(data, record)
    view = record_layout(record).from_bits(int.from_bytes(record.pack(**values), "little"))
    assert {name: view[name] for name in record.fields} == values


@given(data=st.data(), record=ALL)
def test_word_layout_holds_the_fields_of_its_words(data, record):
    words = data.draw(st.lists(st.integers(0, record.size // 4 - 1), min_size=1, unique=True).map(sorted))
    values = values_of(data, record)
    layout = word_layout(record, words)
    memory = record.words(**values)
    view = layout.from_bits(sum(memory[word] << 32 * place for place, word in enumerate(words)))
    held = dict(iter(layout))
    for name, field in record.fields.items():
        whole = all(word in words for word in range(field.word, (field.offset + field.width - 1) // 32 + 1))
        assert (name in held) == whole
        if whole:
            assert view[name] == values[name]


@pytest.mark.parametrize(
    ("size", "fields", "message"),
    [
        (12, [], "12"),
        (16, [Field("a", 40), Field("b", 32)], "crosses a 64-bit boundary at bit 40"),
        (8, [Field("a", 8), Field("a", 8)], "stands twice"),
        (8, [Field("a", 64), Field("b", 8)], "more than its 8 bytes"),
    ],
)
def test_refuses_bad_records(size, fields, message):
    with pytest.raises(ValueError, match=message):
        Record("bad", size, fields)


def test_refuses_bad_values():
    record = Record("r", 8, [Field("a", 8)])
    for values in ({"b": 1}, {"a": 256}, {"a": -1}):
        with pytest.raises(ValueError, match=r"b|256|-1"):
            record.pack(**values)
    with pytest.raises(ValueError, match="7"):
        record.unpack(bytes(7))
