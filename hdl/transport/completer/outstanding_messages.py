"""The messages of the send queues that are under way, looked at in their order."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.ram import Ram
from ..common.layouts import Outstanding
from ..common.live_row import LiveRow
from ..common.psn import PSN_BITS, Sent, psn_before, psn_next

__all__ = ["OldestMessage", "OutstandingMessages"]

LAST_OF_ALL = (1 << PSN_BITS) - 1

Entry = data.StructLayout({"last_psn": PSN_BITS, "opcode": 4, "signaled": 1})

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

    A message is known from the 4th cycle after it was taken on. Messages are taken one every 2 cycles. ``target`` and a
    message's last PSN are less than 2**23 apart where it matters: nothing is begun 2**22 packets behind the first that
    is not acknowledged, and of READs, which may be longer, only the one with ``target`` can be the oldest.

    Parameters
    ----------
    qps : int
        QPs, a power of two.
    window : int
        Most messages of a QP that are begun and not complete, a power of two.

    Members
    -------
    outstanding : stream of ``Outstanding``
    sent, sent_en : ``Sent``
        Every packet, before it can be acknowledged; not in two cycles in succession.
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
    latest : 24
        The last PSN sent, 3 cycles after ``qp``.
    clear : 1
        Forgets the messages of ``qp``. Nothing is taken from ``outstanding`` in that cycle.
    restart, first_psn, restarted : 1, 24, 1
        The last PSN sent becomes that before ``first_psn``; ``restart`` stays until ``restarted``.
    """

    def __init__(self, qps, window):
        self.qps = qps
        self.window = window
        super().__init__(
            {
                "outstanding": In(stream.Signature(Outstanding)),
                "sent": In(Sent),
                "sent_en": In(1),
                "qp": In(range(qps)),
                "seek": In(16),
                "oldest": In(16),
                "target": In(PSN_BITS),
                "data": In(1),
                "message": Out(OldestMessage),
                "latest": Out(PSN_BITS),
                "clear": In(1),
                "restart": In(1),
                "first_psn": In(PSN_BITS),
                "restarted": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slot_bits = ceil_log2(self.window)
        qp_bits = ceil_log2(self.qps)
        m.submodules.entries = entries = Ram(Entry, self.qps * self.window)
        m.submodules.begun = begun = LiveRow(16, self.qps)  # WQEs before this one have an entry
        m.submodules.latest = latest = LiveRow(PSN_BITS, self.qps)
        message = self.outstanding.payload
        begun_written = Signal()  # in the cycle before: not twice in succession
        m.d.sync += begun_written.eq(begun.w_en)
        m.d.comb += [
            self.outstanding.ready.eq(~self.clear & ~begun_written),
            entries.w_addr.eq(Cat(message.wqe_index[:slot_bits], message.qp[:qp_bits])),
            entries.w_data.last_psn.eq(message.last_psn),
            entries.w_data.opcode.eq(message.opcode),
            entries.w_data.signaled.eq(message.signaled),
            entries.w_en.eq(self.outstanding.valid & self.outstanding.ready),
            begun.w_addr.eq(Mux(self.clear, self.qp, message.qp)),
            begun.w_data.eq(Mux(self.clear, 0, message.wqe_index + 1)),
            begun.w_en.eq(self.clear | entries.w_en),
            latest.w_addr.eq(Mux(self.sent_en, self.sent.qp, self.qp)),
            latest.w_data.eq(Mux(self.sent_en, self.sent.psn, psn_next(self.first_psn, LAST_OF_ALL))),
            latest.w_en.eq(self.sent_en | self.restart),
            self.restarted.eq(~self.sent_en),
            begun.r_addr.eq(self.qp),
            latest.r_addr.eq(self.qp),
            entries.r_addr.eq(Cat(self.seek[:slot_bits], self.qp)),
        ]

        entry, seen = entries.r_data, self.message
        whole = Signal()
        m.d.sync += [
            whole.eq(self.oldest != begun.row),
            seen.complete.eq(psn_before(entry.last_psn, self.target) & ~seen.stop & whole),
        ]
        m.d.comb += [
            self.latest.eq(latest.row),
            seen.last_psn.eq(entry.last_psn),
            seen.opcode.eq(entry.opcode),
            seen.signaled.eq(entry.signaled),
            seen.is_read.eq(entry.opcode[2]),  # 4 to 6
            seen.stop.eq(seen.is_read & ~self.data & whole),
        ]
        return m
