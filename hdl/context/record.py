"""The engine's part of a queue pair's record in host memory, as words of 64 bits.

A word of header, then the sections one behind the other, then a checksum of all that.
"""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from ..stream.words import WORD_BITS

__all__ = ["HEADER_WORDS", "RecordHeader", "checked", "counts_layout", "most_words", "seed"]

HEADER_WORDS = 1


def counts_layout(limits):
    """A number of words for each of the sections: ``section_0`` and so on, up to its limit."""
    return data.StructLayout({f"section_{number}": range(limit + 1) for number, limit in enumerate(limits)})


class RecordHeader(data.StructLayout):
    """How many words each of the sections has, and how many the record has, header and checksum included; in one word.

    ``limits``: most words of each section, at least 1.
    """

    def __init__(self, limits):
        super().__init__({"counts": counts_layout(limits), "words": range(most_words(limits) + 1)})
        if not limits or self.size > HEADER_WORDS * WORD_BITS:
            raise ValueError(f"limits must be of some sections and fit {WORD_BITS} bits, not {limits!r}")


def most_words(limits):
    """Words of a record whose sections have ``limits`` words at most."""
    return HEADER_WORDS + sum(limits) + 1


def seed(index):
    """Where the checksum of the record of QP ``index`` begins: a record that belongs to another QP does not fit."""
    value = Value.cast(index)
    return Cat(value, Const(0x5645_5242_454E_4121 >> len(value), WORD_BITS - len(value)))


FOLD = (0, 1, 3, 4)
"""x**64 modulo x**64 + x**4 + x**3 + x + 1, the polynomial of ISO 3309's CRC of 64 bits."""


def checked(checksum, word):
    """The checksum, with one word more: the remainder of all words as one polynomial, so up to 3 bits that have changed
    never go unnoticed. It is no protection against who means to change a record, and can write a checksum as well.
    """
    moved = reduce(xor, (checksum << place for place in FOLD))
    over = moved[WORD_BITS:]
    return moved[:WORD_BITS] ^ reduce(xor, (over << place for place in FOLD)) ^ word
