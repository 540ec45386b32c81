"""A copy of some words of a context, for the one block that reads them."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .ram import Ram
from .record import word_layout
from .transfer import AttributeWrite

__all__ = ["Table"]


class Table(wiring.Component):
    """Keeps the ``words`` of ``record`` for ``depth`` objects; listens to the command block's broadcast.

    Reading takes 2 cycles, as of :class:`.ram.Ram`. A write is never stalled.

    Parameters
    ----------
    record : Record
        :data:`verbena.hdl.abi.contexts.QP_CONTEXT` or ``CQ_CONTEXT``.
    words : iterable of int
        The 32-bit words to keep, ascending.
    depth : int
        Objects.

    Members
    -------
    write : ``AttributeWrite`` with ``write_en``
        Broadcast. Words not kept are ignored.
    index, row
        Read address and, 2 cycles later, a view with every field of the words kept.
    """

    def __init__(self, record, words, depth):
        self.record = record
        self.words = sorted(words)
        self.depth = depth
        self.layout = word_layout(record, self.words)
        super().__init__(
            {"write": In(AttributeWrite), "write_en": In(1), "index": In(range(max(2, depth))), "row": Out(self.layout)}
        )

    @staticmethod
    def words_of(record, *names):
        """Words that hold the fields ``names``."""
        words = set()
        for name in names:
            field = record.fields[name]
            words.update(range(field.offset // 32, (field.offset + field.width - 1) // 32 + 1))
        return sorted(words)

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(32 * len(self.words), self.depth, granularity=32)
        m.d.comb += [ram.w_addr.eq(self.write.index), ram.r_addr.eq(self.index), self.row.as_value().eq(ram.r_data)]
        for lane, word in enumerate(self.words):
            m.d.comb += [
                ram.w_data.word_select(lane, 32).eq(self.write.data),
                ram.w_en[lane].eq(self.write_en & (self.write.word == word)),
            ]
        return m
