"""In which order the words of a send WQE are read."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.wqe import SEND_WQE, SGE_OFFSET
from ...queue.ring import BATCH, word_address

__all__ = ["WqeWord", "WqeWords"]


class WqeWord(enum.Enum):
    """Which word of the WQE it is."""

    NONE = 0
    START = 1  # opcode, flags, number of entries, immediate
    SIZE = 2  # rkey, length
    ENTRY_SIZE = 3  # length and key of a scatter/gather entry
    ENTRY_ADDRESS = 4
    REMOTE = 5  # remote address
    INLINE = 6
    PEER = 7  # UD: MAC address and port
    ROUTE_LAST = 8  # UD with a table of GIDs: second half of UD_ROUTE
    ROUTE_FIRST = 9  # and the first


class WqeWords(wiring.Component):
    """Asks for one word of a WQE a cycle: START, PEER (and the route) of a ``datagram``, SIZE, an entry's two, REMOTE,
    then entry after entry until ``stop``, or, with ``is_inline``, the inline data.

    Sizes come before addresses because more follows from them. The first address goes out in the cycle after ``start``,
    out of a register, because it goes to many block RAMs; and a word arrives two cycles after its address. Entries are
    asked for ahead of need; those that arrive after ``stop`` are to be ignored. An atomic's operands are its inline
    data: swap and compare; or the addend and a word that means nothing.

    Parameters
    ----------
    blocks : int
        Blocks of fetched WQEs: WQE ``i`` begins at ``i << log_sq_stride``, modulo a block's bytes.
    gids : bool
        WQEs of UD end in a route.

    Members
    -------
    start, stop : 1
        Begin, and go idle.
    index, large
        The WQE, and whether WQEs are 128 bytes instead of 64; they stay until ``stop``.
    places
        With ``start``: its QP's blocks, of pieces of its ring with an even and with an odd number.
    datagram : 1
        With ``start``: the QP is UD.
    is_inline, is_atomic, is_swap : 1
        Looked at from the cycle after REMOTE's, 5 cycles after ``start``, 6 of a ``datagram``, 8 with a route.
        ``is_atomic`` and ``is_swap`` only with ``is_inline``.
    inline_words : 4
        Looked at from the next cycle on: words of inline data.
    inline_room : 1
        One more may be asked for.
    inline_done : 1
        All inline data is asked for.
    address
        To the memory of WQEs.
    arriving, inline_last
        What the memory's word is in this cycle; it is the last of the inline data.
    """

    def __init__(self, blocks, gids=False):
        self.blocks = blocks
        self.gids = gids
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "places": In(data.ArrayLayout(ceil_log2(blocks), 2)),
                "index": In(16),
                "large": In(1),
                "datagram": In(1),
                "is_inline": In(1),
                "is_atomic": In(1),
                "is_swap": In(1),
                "inline_words": In(4),
                "inline_room": In(1),
                "inline_done": Out(1),
                "address": Out(word_address(blocks, BATCH)),
                "arriving": Out(WqeWord),
                "inline_last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        turn = Signal(WqeWord)  # to be asked for next; NONE: idle
        want, asking, asked = Signal(WqeWord), Signal(WqeWord), Signal(WqeWord)
        place = Signal(4)  # word of the WQE
        entry = Signal(3)
        remote_asked = Signal()
        count = Signal(4)  # of inline words asked for
        last, asking_last, asked_last = Signal(), Signal(), Signal()
        payload = SGE_OFFSET // 8
        place_of = {
            name: SEND_WQE.fields[name].offset // 64 for name in ("opcode", "rkey", "remote_address", "dest_mac")
        }
        m.d.comb += [last.eq(count + 1 == self.inline_words), want.eq(turn)]
        odd = Mux(self.large, self.index[1], self.index[2])
        with m.If(turn == WqeWord.NONE):
            m.d.sync += self.address.block.eq(Mux(odd, self.places[1], self.places[0]))
        m.d.sync += [
            self.address.word.eq(Mux(self.large, Cat(place, self.index), Cat(place[:3], self.index))),
            asking.eq(want),
            asked.eq(asking),
            self.arriving.eq(asked),
            Cat(asking_last, asked_last, self.inline_last).eq(Cat(last, asking_last, asked_last)),
        ]
        with m.Switch(turn):
            with m.Case(WqeWord.NONE):
                m.d.comb += place.eq(place_of["opcode"])
                m.d.sync += [entry.eq(0), remote_asked.eq(0), count.eq(0), self.inline_done.eq(0)]
                with m.If(self.start):
                    m.d.comb += want.eq(WqeWord.START)
                    m.d.sync += turn.eq(Mux(self.datagram, WqeWord.PEER, WqeWord.SIZE))
            with m.Case(WqeWord.PEER):
                m.d.comb += place.eq(place_of["dest_mac"])
                m.d.sync += turn.eq(WqeWord.ROUTE_LAST if self.gids else WqeWord.SIZE)
            if self.gids:
                with m.Case(WqeWord.ROUTE_LAST):
                    m.d.comb += place.eq(Cat(Const(0b111, 3), self.large))
                    m.d.sync += turn.eq(WqeWord.ROUTE_FIRST)
                with m.Case(WqeWord.ROUTE_FIRST):
                    m.d.comb += place.eq(Cat(Const(0b110, 3), self.large))
                    m.d.sync += turn.eq(WqeWord.SIZE)
            with m.Case(WqeWord.SIZE):
                m.d.comb += place.eq(place_of["rkey"])
                m.d.sync += turn.eq(WqeWord.ENTRY_SIZE)
            with m.Case(WqeWord.ENTRY_SIZE):
                m.d.comb += place.eq(Cat(1, entry)[:4] + payload)
                m.d.sync += turn.eq(WqeWord.ENTRY_ADDRESS)
                with m.If(remote_asked & self.is_inline):  # there is no entry
                    m.d.comb += want.eq(WqeWord.NONE)
                    m.d.sync += turn.eq(WqeWord.INLINE)
            with m.Case(WqeWord.ENTRY_ADDRESS):
                m.d.comb += place.eq(Cat(0, entry)[:4] + payload)
                m.d.sync += [entry.eq(entry + 1), turn.eq(Mux(remote_asked, WqeWord.ENTRY_SIZE, WqeWord.REMOTE))]
            with m.Case(WqeWord.REMOTE):
                m.d.comb += place.eq(place_of["remote_address"])
                m.d.sync += [remote_asked.eq(1), turn.eq(WqeWord.ENTRY_SIZE)]
            with m.Case(WqeWord.INLINE):
                # Swap is the last word of the first 64 bytes; compare and addend, the same field, stand before it.
                m.d.comb += place.eq(Mux(self.is_atomic, Cat(count[0] ^ self.is_swap, Const(3, 3)), count + payload))
                with m.If(self.inline_room & ~self.inline_done):
                    m.d.sync += [count.eq(count + 1), self.inline_done.eq(last)]
                with m.Else():
                    m.d.comb += want.eq(WqeWord.NONE)
        with m.If(self.stop):
            m.d.sync += turn.eq(WqeWord.NONE)
        return m
