"""The messages of the send queues that are under way, looked at in their order."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.ram import Ram
from ..common.layouts import Outstanding
from ..common.psn import PSN_BITS, psn_before

__all__ = ["OldestMessage", "OutstandingMessages"]

Entry = data.StructLayout(
    {
        "last_psn": PSN_BITS,
        "opcode": 4,
        "signaled": 1,
        "lap": 1,  # how often the window has been passed through, its lowest bit: 1 the first time, and 0 if never
    }
)

OldestMessage = data.StructLayout(
    {
        "last_psn": PSN_BITS,
        "opcode": 4,  # SendOpcode
        "signaled": 1,
        "is_read": 1,  # READ or atomic
        "complete": 1,  # it is wholly sent, and all of it has arrived
        "stop": 1,  # it is a READ or atomic that is not answered, whatever else has arrived; nothing behind is complete
    }
)
"""A QP's oldest message; if it is not wholly sent, only `complete` and `stop` are defined, and 0."""


class OutstandingMessages(wiring.Component):
    """Keeps what the requester says of each message that is under way, and compares a QP's oldest with what has been
    acknowledged.

    A message's place follows from its WQE's index; that it is this message's entry, and not that of the one which stood
    there a window before, the entry tells (``lap``).

    A message is known from the 4th cycle after it was taken on. ``target`` and a message's last PSN are less than 2**23
    apart where it matters: nothing is begun 2**22 packets behind the first that is not acknowledged, and of READs,
    which may be longer, only the one with ``target`` can be the oldest.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.
    swaps : bool
        With ``known``.

    Members
    -------
    outstanding : stream of ``Outstanding``
        The messages of a QP, in the order of their WQEs, none left out.
    qp
        The QP looked at.
    seek : 16
        The message looked at from the 2nd cycle after that on; ``complete`` from the 3rd on, if it stays.
    oldest : 16
        That message, too, from the cycle before at the latest.
    target : 24
        All packets before this one have arrived.
    data : 1
        The response is data: READs and atomics before ``target`` are complete, too.
    message : ``OldestMessage``
    known : 1
        With ``swaps``: the message that ``seek`` named 2 cycles before has been told.
    clear, cleared : 1
        Forgets the messages of ``qp``, one a cycle; stays until ``cleared``, in the cycle of the last one. Nothing is
        taken from ``outstanding`` meanwhile.
    """

    def __init__(self, qps, window, *, swaps=False):
        self.qps = qps
        self.window = window
        self.swaps = swaps
        super().__init__(
            {
                "outstanding": In(stream.Signature(Outstanding)),
                "qp": In(range(qps)),
                "seek": In(16),
                "oldest": In(16),
                "target": In(PSN_BITS),
                "data": In(1),
                "message": Out(OldestMessage),
                "clear": In(1),
                "cleared": Out(1),
            }
            | ({"known": Out(1)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        place_bits = ceil_log2(self.window)
        qp_bits = ceil_log2(self.qps)
        m.submodules.entries = entries = Ram(Entry, self.qps * self.window)
        message = self.outstanding.payload
        place = Signal(place_bits)  # that is cleared
        with m.If(self.clear):
            m.d.sync += place.eq(place + 1)
        m.d.comb += [
            self.outstanding.ready.eq(~self.clear),
            self.cleared.eq(place.all()),
            entries.w_addr.eq(
                Mux(self.clear, Cat(place, self.qp), Cat(message.wqe_index[:place_bits], message.qp[:qp_bits]))
            ),
            entries.w_en.eq(self.clear | self.outstanding.valid),
            entries.r_addr.eq(Cat(self.seek[:place_bits], self.qp)),
        ]
        with m.If(~self.clear):
            m.d.comb += [
                entries.w_data.last_psn.eq(message.last_psn),
                entries.w_data.opcode.eq(message.opcode),
                entries.w_data.signaled.eq(message.signaled),
                entries.w_data.lap.eq(~message.wqe_index[place_bits]),
            ]

        entry, seen = entries.r_data, self.message
        clash = Signal(
            2
        )  # the entry was written when it was read: it has just been sent, and nothing of it has arrived
        whole = Signal()
        m.d.sync += [
            clash.eq(Cat(entries.w_en & (entries.w_addr == entries.r_addr), clash[0])),
            seen.complete.eq(psn_before(entry.last_psn, self.target) & ~seen.stop & whole),
        ]
        m.d.comb += [
            whole.eq((entry.lap != self.oldest[place_bits]) & ~clash[1]),
            seen.last_psn.eq(entry.last_psn),
            seen.opcode.eq(entry.opcode),
            seen.signaled.eq(entry.signaled),
            seen.is_read.eq(entry.opcode[2]),  # 4 to 6
            seen.stop.eq(seen.is_read & ~self.data & whole),
        ]
        if self.swaps:
            lap = Signal(2)  # of what was sought 1 and 2 cycles before
            m.d.sync += lap.eq(Cat(self.seek[place_bits], lap))
            m.d.comb += self.known.eq(entry.lap != lap[1])
        return m
