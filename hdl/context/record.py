"""The engine's part of a queue pair's record in host memory, as words of 64 bits.

Two words of header, then the sections one behind the other, then a checksum of all that.
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from ..stream.words import WORD_BITS

__all__ = ["HEADER_WORDS", "RecordHeader", "checked", "most_words", "seed"]

COUNT_BITS = 11
"""Bits of the number of words of a section."""

HEADER_WORDS = 2


class RecordHeader(data.StructLayout):
    """How many words each of the sections has, and how many the record has, header and checksum included."""

    def __init__(self, sections):
        super().__init__({"counts": data.ArrayLayout(COUNT_BITS, sections), "words": COUNT_BITS + 1})
        if not sections or self.size > HEADER_WORDS * WORD_BITS:
            raise ValueError(f"sections must be 1 to 10, not {sections!r}")


def most_words(limits):
    """Words of a record whose sections have ``limits`` words at most."""
    return HEADER_WORDS + sum(limits) + 1


def seed(index):
    """Where the checksum of the record of QP ``index`` begins: a record that belongs to another QP does not fit."""
    value = Value.cast(index)
    return Cat(value, Const(0x5645_5242_454E_4121 >> len(value), WORD_BITS - len(value)))


def checked(checksum, word):
    """The checksum, with one word more: each word counts, and its place."""
    return checksum.rotate_left(1) ^ word
