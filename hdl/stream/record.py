"""Hardware layouts from the records of :mod:`verbena.hdl.abi`."""

from amaranth.lib import data

__all__ = ["fields_layout", "record_layout", "word_layout"]


def record_layout(record):
    """Layout of ``record`` as it stands in memory: ``8 * record.size`` bits, byte 0 in the least significant bits."""
    return data.FlexibleLayout(
        record.size * 8, {name: data.Field(field.width, field.offset) for name, field in record.fields.items()}
    )


def word_layout(record, words):
    """Layout of the 32-bit ``words`` of ``record``, packed one behind the other in the order given: what a table that
    keeps only these words
    reads. Holds every field of which all words are kept, in ascending consecutive places."""
    words = list(words)
    fields = {}
    for name, field in record.fields.items():
        first, last = field.offset // 32, (field.offset + field.width - 1) // 32
        if first in words:
            place = words.index(first)
            if words[place : place + last - first + 1] == list(range(first, last + 1)):
                fields[name] = data.Field(field.width, place * 32 + field.offset % 32)
    return data.FlexibleLayout(32 * len(words), fields)


def fields_layout(record, names):
    """Layout of the fields ``names`` of ``record``, packed in the order given."""
    return data.StructLayout({name: record.fields[name].width for name in names})
