"""The walk along a WQE's scatter/gather entries: which piece of memory each gives to a packet."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...abi.wqe import SGE
from ...stream.transfer import LENGTH_BITS
from ..common.layouts import SGE_COUNT_BITS, ReadTarget
from .requester_context import BLOCKS_BITS
from .wqe_words import WqeWord

__all__ = ["Gather"]


class Gather(wiring.Component):
    """Takes the entries' words as they arrive: the length and key of one, then its address; a cycle later ``cut`` says
    that the entry's piece is known.

    The first ``start_blocks`` times 256 bytes belong to earlier packets. An entry that has no more is passed over; that
    is how the byte is found at which a message goes on.

    Members
    -------
    load, start_blocks : 1, 23
        A packet may begin in the next cycle; where.
    active : 1
        Words are for this packet.
    arriving, word : ``WqeWord``, 64
    sized, size : 1, 13
        How many bytes to gather: in the cycle before the first address at the latest.
    whole : 1
        Nothing is gathered, and the walk ends with the first entry. To be looked at from the first entry's length on.
    pair : 1
        With ``whole``: it ends with the second entry, which is shown at ``second``.
    atomic : 1
        The entry must hold as much as is to be gathered.
    count : 5
        Entries that there are.
    sum : 64
        ``word``; in the cycle of the first address, and in that of REMOTE behind it, plus the bytes of earlier packets.
    cut : 1
        The next five hold.
    key, address, length : 32, 64, 13
        The piece; none if ``length`` is 0. Key and address stay after the last ``cut``.
    complete : 1
        The packet has all its bytes with this piece.
    unfit : 1
        There is no such entry, and one is needed; or it holds another length than ``atomic`` allows.
    entry_length : 32
        What the entry holds behind the offset. Stays after the last ``cut``.
    second : ``address``, ``length``, ``lkey``
        The second entry of a ``pair``. Stays after ``cut``.
    offset : 31
        From the second cycle after ``load`` to the first address: bytes of earlier packets.
    """

    def __init__(self):
        super().__init__(
            {
                "load": In(1),
                "start_blocks": In(BLOCKS_BITS),
                "active": In(1),
                "arriving": In(WqeWord),
                "word": In(64),
                "sized": In(1),
                "size": In(LENGTH_BITS),
                "whole": In(1),
                "pair": In(1),
                "atomic": In(1),
                "count": In(SGE_COUNT_BITS),
                "sum": Out(64),
                "cut": Out(1),
                "key": Out(32),
                "address": Out(64),
                "length": Out(LENGTH_BITS),
                "complete": Out(1),
                "unfit": Out(1),
                "entry_length": Out(32),
                "second": Out(ReadTarget["second"].shape),
                "offset": Out(31),
            }
        )

    def elaborate(self, platform):
        m = Module()
        field = {name: self.word[f.offset % 64 : f.offset % 64 + f.width] for name, f in SGE.fields.items()}
        entry = Signal(SGE_COUNT_BITS)
        chunk = Signal(LENGTH_BITS)  # still to be gathered
        left = self.entry_length
        remote = Signal()  # REMOTE has come, which needs the offset, too
        over = Signal()  # the entry has no more than the offset
        enough, equal, exhausted = Signal(), Signal(), Signal()
        half = Signal()  # the first entry of a pair has come
        behind = field["length"] - self.offset
        m.d.comb += [
            self.sum.eq(self.word + self.offset),
            equal.eq(left == chunk),
            enough.eq(~over & ((left[LENGTH_BITS:] != 0) | (left[:LENGTH_BITS] >= chunk))),
        ]
        m.d.sync += self.cut.eq(0)
        sizes, addresses = (
            self.active & (self.arriving == word) for word in (WqeWord.ENTRY_SIZE, WqeWord.ENTRY_ADDRESS)
        )
        with m.If(sizes & half):
            with m.If(~self.cut):  # the third entry's length comes right behind
                m.d.sync += [self.second.length.eq(field["length"]), self.second.lkey.eq(field["lkey"])]
        with m.Elif(sizes):
            m.d.sync += [self.key.eq(field["lkey"]), left.eq(behind), over.eq(behind[-1] & ~self.whole)]
        with m.If(addresses & half):
            m.d.sync += [self.cut.eq(1), self.second.address.eq(self.word)]
        with m.Elif(addresses):
            there = entry < self.count
            m.d.sync += [
                self.cut.eq(~(self.whole & self.pair)),
                half.eq(self.whole & self.pair),
                self.address.eq(self.sum),
                self.length.eq(Mux(enough, chunk, left)),
                self.complete.eq((there & enough) | (chunk == 0) | self.whole),
                self.unfit.eq((~there & (chunk != 0) & ~self.whole) | (self.atomic & ~equal)),
                exhausted.eq(~enough | equal),
            ]
            with m.If(over):
                # At once: the next entry's length comes in the next cycle but one after this one's address.
                m.d.sync += [self.offset.eq(-left), self.length.eq(0)]
            with m.Elif(remote):
                m.d.sync += self.offset.eq(0)
        with m.If(self.arriving == WqeWord.REMOTE):
            m.d.sync += remote.eq(1)
            with m.If(~over):
                m.d.sync += self.offset.eq(0)
        with m.If(self.cut):
            m.d.sync += [entry.eq(entry + exhausted), chunk.eq(chunk - self.length)]
        with m.If(self.sized):
            m.d.sync += chunk.eq(self.size)
        with m.If(self.load):
            m.d.sync += [
                entry.eq(0),
                self.offset.eq(Cat(Const(0, 8), self.start_blocks)),
                remote.eq(0),
                half.eq(0),
            ]
        return m
