"""In which order the words of a send WQE are read."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.wqe import SEND_WQE, SGE_MAX, SGE_OFFSET, WQE_DEFAULT
from ...queue.ring import send_batch, word_address
from ..common.layouts import STRIDE_BITS
from .requester_context import BLOCK

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
    wqe_bytes : int
        Bytes of the largest WQE.

    Members
    -------
    start, stop : 1
        Begin, and go idle.
    index, stride
        The WQE, and log2 of how many times it has 64 bytes; they stay until ``stop``.
    places
        With ``start``: its QP's blocks, of pieces of its ring with an even and with an odd number.
    datagram : 1
        With ``start``: the QP is UD.
    is_inline, is_atomic, is_swap : 1
        Looked at from the cycle after REMOTE's, 5 cycles after ``start``, 6 of a ``datagram``, 8 with a route.
        ``is_atomic`` and ``is_swap`` only with ``is_inline``.
    second : 1
        With ``is_inline``: the packet's data begins 256 bytes behind the message's.
    inline_words : 6
        Looked at from the next cycle on: words of the packet's inline data.
    inline_room : 1
        One more may be asked for.
    inline_done : 1
        All inline data is asked for.
    address
        To the memory of WQEs.
    arriving, inline_last
        What the memory's word is in this cycle; it is the last of the inline data.
    """

    def __init__(self, blocks, gids=False, wqe_bytes=WQE_DEFAULT):
        self.blocks = blocks
        self.gids = gids
        self.wqe_bytes = wqe_bytes
        self.words = range(wqe_bytes // 8)
        super().__init__(
            {
                "start": In(1),
                "stop": In(1),
                "places": In(data.ArrayLayout(ceil_log2(blocks), 2)),
                "index": In(16),
                "stride": In(STRIDE_BITS),
                "datagram": In(1),
                "is_inline": In(1),
                "is_atomic": In(1),
                "is_swap": In(1),
                "second": In(1),
                "inline_words": In(self.words),
                "inline_room": In(1),
                "inline_done": Out(1),
                "address": Out(word_address(blocks, send_batch(wqe_bytes))),
                "arriving": Out(WqeWord),
                "inline_last": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        turn = Signal(WqeWord)  # to be asked for next; NONE: idle
        want, asking, asked = Signal(WqeWord), Signal(WqeWord), Signal(WqeWord)
        place = Signal(self.words)  # word of the WQE
        entry = Signal(range(SGE_MAX + 1))
        remote_asked = Signal()
        count = Signal(self.words)  # of inline words asked for
        last, asking_last, asked_last = Signal(), Signal(), Signal()
        payload = SGE_OFFSET // 8
        longest = self.wqe_bytes - SGE_OFFSET
        inline = payload + Mux(self.second, BLOCK // 8, 0) if longest > BLOCK else payload
        place_of = {
            name: SEND_WQE.fields[name].offset // 64 for name in ("opcode", "rkey", "remote_address", "dest_mac")
        }
        m.d.comb += [last.eq(count + 1 == self.inline_words), want.eq(turn)]
        batch = ceil_log2(send_batch(self.wqe_bytes))
        odd, tail = Signal(), Signal(self.words)  # the WQE's piece has an odd number; its last word
        with m.Switch(self.stride):
            for number, stride in enumerate(range(6, ceil_log2(self.wqe_bytes) + 1)):
                with m.Case(number):
                    m.d.comb += [odd.eq(self.index[batch - stride]), tail.eq((1 << stride - 3) - 1)]
                    m.d.sync += self.address.word.eq(Cat(place[: stride - 3], self.index))
        with m.If(turn == WqeWord.NONE):
            m.d.sync += self.address.block.eq(Mux(odd, self.places[1], self.places[0]))
        m.d.sync += [
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
                    m.d.comb += place.eq(tail)
                    m.d.sync += turn.eq(WqeWord.ROUTE_FIRST)
                with m.Case(WqeWord.ROUTE_FIRST):
                    m.d.comb += place.eq(Cat(0, tail[1:]))
                    m.d.sync += turn.eq(WqeWord.SIZE)
            with m.Case(WqeWord.SIZE):
                m.d.comb += place.eq(place_of["rkey"])
                m.d.sync += turn.eq(WqeWord.ENTRY_SIZE)
            with m.Case(WqeWord.ENTRY_SIZE):
                m.d.comb += place.eq(Cat(Const(1, 1), entry) + payload)
                m.d.sync += turn.eq(WqeWord.ENTRY_ADDRESS)
                with m.If(remote_asked & self.is_inline):  # there is no entry
                    m.d.comb += want.eq(WqeWord.NONE)
                    m.d.sync += turn.eq(WqeWord.INLINE)
            with m.Case(WqeWord.ENTRY_ADDRESS):
                m.d.comb += place.eq(Cat(Const(0, 1), entry) + payload)
                m.d.sync += [entry.eq(entry + 1), turn.eq(Mux(remote_asked, WqeWord.ENTRY_SIZE, WqeWord.REMOTE))]
            with m.Case(WqeWord.REMOTE):
                m.d.comb += place.eq(place_of["remote_address"])
                m.d.sync += [remote_asked.eq(1), turn.eq(WqeWord.ENTRY_SIZE)]
            with m.Case(WqeWord.INLINE):
                # Swap is the last word of the first 64 bytes; compare and addend, the same field, stand before it.
                m.d.comb += place.eq(Mux(self.is_atomic, Cat(count[0] ^ self.is_swap, Const(3, 3)), count + inline))
                with m.If(self.inline_room & ~self.inline_done):
                    m.d.sync += [count.eq(count + 1), self.inline_done.eq(last)]
                with m.Else():
                    m.d.comb += want.eq(WqeWord.NONE)
        with m.If(self.stop):
            m.d.sync += turn.eq(WqeWord.NONE)
        return m
