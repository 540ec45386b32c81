"""What the first two words of a send WQE say about the packet that is cut from it."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...abi.cqe import Syndrome
from ...abi.wqe import SEND_WQE, SGE_OFFSET, WQE_DEFAULT, SendFlag, SendOpcode, send_sges
from ...memory.key_operations import KeyOperation
from ...stream.transfer import LENGTH_BITS
from ..common.layouts import SGE_COUNT_BITS, STRIDE_BITS
from ..common.psn import PSN_BITS
from .admission import Admission
from .wqe_words import WqeWord

__all__ = ["WqeHead"]

OPERATIONS = {
    SendOpcode.LOCAL_INV: KeyOperation.INVALIDATE,
    SendOpcode.BIND_MW: KeyOperation.BIND,
    SendOpcode.REG_MR: KeyOperation.REGISTER,
}

ATOMIC_LENGTH = 8
"""Bytes that an atomic changes and returns."""

OPERANDS_LENGTH = 16
"""Bytes of an atomic's two operands."""


class WqeHead(wiring.Component):
    """Takes START and SIZE as they arrive, and derives from them in a few cycles all that does not need the entries.

    Parameters
    ----------
    keys : bool
        There are operations on MPT entries, and SEND with invalidate.
    wqe_bytes : int
        Bytes of the largest WQE.

    Members
    -------
    arriving, word : ``WqeWord``, 64
    active : 1
        Words are for this packet.
    middle, psn : 1, 24
        The message has begun; the packet's PSN.
    taken : 31
        Bytes of the message that belong to earlier packets.
    path_mtu, stride, connected, unreliable, datagram, admission : 4, 2, 1, 1, 1, ``Admission``
        ``connected``: the QP is RC, UC, UD or RAW_PACKET; ``unreliable``: it is not RC; ``datagram``: it is one of the
        last two.
    occupied : 1
        With ``keys``: an operation on an MPT entry is under way, and no other one may begin.
    opcode, flags, count : 3, 4, 5
        From START; valid in the cycle after it.
    operates, operation : 1, ``KeyOperation``
        With ``keys``: the WQE changes an MPT entry, once, when it is the oldest one and no other one does so. In the
        cycle after START.
    invalidates : 1
        With ``keys``: it is a SEND with invalidate. In the cycle after START.
    postponed : 1
        With ``blocked``: perhaps only because of ``occupied``.
    one_sided, atomic, blocked : 1
        READ or atomic; atomic; the message must wait. In the cycle after START.
    remaining : 32
        Bytes of the message from the packet's first on; in the cycle after SIZE.
    sized : 1
        The cycle after SIZE: ``size`` and ``inline`` hold.
    size : 13
        Bytes that the packet takes from the entries.
    inline : 1
        Its payload comes from the WQE: inline data that fits, or an atomic's operands.
    length, last : 13, 1
        The packet's payload, and whether the message ends with it; in the second cycle after SIZE.
    inline_words : 6
        Words of 8 bytes in which that stands, if it is inline; at the same time.
    wrong, syndrome, too_long : 1, 8, 1
        The WQE is malformed; and since a message of UD is longer than a packet; in the third cycle after SIZE.
    next_psn : 24
        The PSN after those that the packet stands for; in the third cycle after SIZE.
    """

    def __init__(self, *, keys=False, wqe_bytes=WQE_DEFAULT):
        self.keys = keys
        self.wqe_bytes = wqe_bytes
        super().__init__(
            {
                "arriving": In(WqeWord),
                "word": In(64),
                "active": In(1),
                "middle": In(1),
                "psn": In(PSN_BITS),
                "taken": In(31),
                "path_mtu": In(4),
                "stride": In(STRIDE_BITS),
                "connected": In(1),
                "datagram": In(1),
                "unreliable": In(1),
                "admission": In(Admission),
                "occupied": In(1),
                "opcode": Out(3),
                "flags": Out(4),
                "count": Out(SGE_COUNT_BITS),
                "operation": Out(KeyOperation),
                "operates": Out(1),
                "invalidates": Out(1),
                "postponed": Out(1),
                "one_sided": Out(1),
                "atomic": Out(1),
                "blocked": Out(1),
                "remaining": Out(32),
                "sized": Out(1),
                "size": Out(LENGTH_BITS),
                "inline": Out(1),
                "inline_words": Out(range(wqe_bytes // 8)),
                "length": Out(LENGTH_BITS),
                "last": Out(1),
                "wrong": Out(1),
                "syndrome": Out(8),
                "too_long": Out(1),
                "next_psn": Out(PSN_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        field = {name: self.word[f.offset % 64 : f.offset % 64 + f.width] for name, f in SEND_WQE.fields.items()}
        admission = self.admission
        unknown, crowded, faulty, is_read = Signal(), Signal(), Signal(), Signal()
        code, flags = field["opcode"], field["flags"]
        # A SEND with invalidate is one with immediate, whose data is the key. What changes a key has no packet.
        mapped, operates, invalidates, waits = Signal(3), Signal(), Signal(), Signal()
        operation = Signal(KeyOperation)
        m.d.comb += mapped.eq(code)
        if self.keys:
            with m.Switch(code):
                for opcode, changes in OPERATIONS.items():
                    with m.Case(opcode):
                        m.d.comb += [mapped.eq(SendOpcode.RDMA_WRITE), operates.eq(1), operation.eq(changes)]
                with m.Case(SendOpcode.SEND_WITH_INV):
                    m.d.comb += [mapped.eq(SendOpcode.SEND_WITH_IMM), invalidates.eq(1)]
            m.d.comb += waits.eq(operates & (~(admission.oldest & admission.newest) | self.occupied))
        m.d.comb += self.one_sided.eq(self.opcode[2])
        most, room = Signal(SGE_COUNT_BITS), Signal(range(self.wqe_bytes))  # entries; bytes of inline data
        with m.Switch(self.stride):
            for number, log in enumerate(range(6, ceil_log2(self.wqe_bytes) + 1)):
                with m.Case(number):
                    m.d.comb += [most.eq(send_sges(1 << log)), room.eq((1 << log) - SGE_OFFSET)]
        with m.If(self.arriving == WqeWord.START):
            # The three that need a receive WQE are 1 to 3, READ and atomics 4 to 6.
            begins = Mux(
                mapped[2], admission.full & ~admission.rd_atomic_disabled, mapped[:2].any() & admission.no_credit
            ) | (flags[SendFlag.FENCE.bit_length() - 1] & admission.fenced)
            m.d.sync += [
                self.opcode.eq(mapped),
                self.invalidates.eq(invalidates),
                self.operates.eq(operates),
                self.operation.eq(operation),
                self.postponed.eq(operates & self.occupied),
                self.atomic.eq(mapped[2] & mapped[:2].any()),
                is_read.eq(mapped[2] & ~mapped[:2].any()),
                self.flags.eq(flags),
                self.count.eq(field["sge_count"]),
                unknown.eq(
                    ((code > SendOpcode.ATOMIC_FETCH_AND_ADD) & ~operates & ~invalidates)
                    | ~self.connected
                    | (mapped[2] & admission.rd_atomic_disabled)
                    | (self.datagram & ~mapped[1])
                    | (self.unreliable & invalidates)
                ),
                crowded.eq(field["sge_count"] > most),
                self.blocked.eq(admission.behind | admission.far | (admission.newest & ~self.middle & begins) | waits),
            ]

        # `rest` of the message: it is less than nothing only if the host has changed the WQE meanwhile.
        rest = self.remaining
        negative = Signal()
        with m.If(self.arriving == WqeWord.SIZE):
            m.d.sync += Cat(rest, negative).eq(field["length"] - self.taken)
        m.d.sync += self.sized.eq(self.active & (self.arriving == WqeWord.SIZE))

        mtu, is_last = Signal(LENGTH_BITS), Signal()
        packets, partial = Signal(PSN_BITS), Signal()  # whole ones in the rest, and something behind them

        def sizes(log):
            some = rest[:log].any()
            last = ~rest[log + 1 :].any() & ~(rest[log] & some)  # no more than a packet
            return [mtu.eq(1 << log), packets.eq(rest[log:]), partial.eq(some), is_last.eq(last)]

        with m.Switch(self.path_mtu):
            for step in range(2, 6):
                with m.Case(step):
                    m.d.comb += sizes(7 + step)
            with m.Default():
                m.d.comb += sizes(8)
        empty, fits = Signal(), Signal()
        inlined = self.flags[SendFlag.INLINE.bit_length() - 1]
        m.d.comb += [
            empty.eq(rest == 0),
            fits.eq((rest[len(room) :] == 0) & (rest[: len(room)] <= room)),
            self.size.eq(Mux(is_last, rest, mtu)),
            self.inline.eq(self.atomic | (inlined & fits & ~empty & ~self.one_sided)),
            self.inline_words.eq((self.length + 7)[3:]),
        ]
        with m.If(self.sized):
            m.d.sync += [
                self.last.eq(is_last | self.one_sided | self.datagram),
                self.length.eq(Mux(self.one_sided, Mux(self.atomic, OPERANDS_LENGTH, 0), self.size)),
                faulty.eq(
                    negative
                    | (rest[31] & (rest[:31] != 0))
                    | (inlined & (~fits | self.one_sided))
                    | (self.operates & ~empty)
                    | (self.atomic & (~fits | (rest[:7] != ATOMIC_LENGTH) | (self.count != 1)))
                ),
            ]

        # A READ has the PSNs of its responses, at least one; all others have one.
        whole, more = Signal(PSN_BITS), Signal()
        m.d.sync += [
            whole.eq(Mux(is_read, packets, 0)),
            more.eq(partial | empty | ~is_read),
            self.next_psn.eq((Cat(Const(1, 1), self.psn) + Cat(more, whole))[1:]),
        ]
        long = Signal()
        with m.If(self.sized):
            m.d.sync += long.eq(self.datagram & ~is_last)
        m.d.sync += [
            self.wrong.eq(unknown | crowded | faulty | long),
            self.too_long.eq(long & ~(unknown | crowded | faulty)),
        ]
        with m.If(unknown):
            m.d.comb += self.syndrome.eq(Syndrome.OPCODE)
        with m.Elif(crowded):
            m.d.comb += self.syndrome.eq(Syndrome.SGE_COUNT)
        with m.Else():
            m.d.comb += self.syndrome.eq(Syndrome.LENGTH)
        return m
