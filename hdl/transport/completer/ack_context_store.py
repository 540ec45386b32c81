"""Memory of the acknowledge contexts: a row a QP, and a copy of it for the timers."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.ram import UNDEFINED_COLLISION, Ram
from ..common.layouts import Watch
from .ack_context import AckContext

__all__ = ["AckContextStore"]


class AckContextStore(wiring.Component):
    """The rows, and what the timers see of them: one cycle after the QP, and a write at once, so that they never see a
    part of it.

    Parameters
    ----------
    qps : int
        QPs, a power of two.

    Members
    -------
    r_addr, r_data
        Read 2 cycles later, as of :class:`verbena.hdl.stream.ram.Ram`: not a row that is being written.
    w_addr, w_data, w_en
        Write port; ``w_data`` stays for one cycle more.
    watch_qp, watch : 12, ``Watch``
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "r_addr": In(range(qps)),
                "r_data": Out(AckContext),
                "w_addr": In(range(qps)),
                "w_data": In(AckContext),
                "w_en": In(1),
                "watch_qp": In(12),
                "watch": Out(Watch),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(AckContext, self.qps)
        m.d.comb += [
            rows.r_addr.eq(self.r_addr),
            rows.w_addr.eq(self.w_addr),
            rows.w_data.eq(self.w_data),
            rows.w_en.eq(self.w_en),
            self.r_data.eq(rows.r_data),
        ]
        row, watch = self.w_data, Signal(Watch)
        m.d.comb += [
            watch.unacked.eq(row.progress.unacked),
            watch.waiting.eq(row.progress.waiting),
            watch.generation.eq(row.generation),
            watch.rnr_timer.eq(row.rnr_timer),
            watch.dead.eq(row.dead),
        ]
        self._copy(m, "watch", watch, self.watch_qp, self.watch)
        return m

    def _copy(self, m, name, row, qp, out):
        """A copy of ``row``, part of what is written, that is read at ``qp``. A row that is read while it is written
        comes from the writer, who still has it."""
        copy = memory.Memory(shape=out.shape(), depth=self.qps, init=[], attrs={"ram_style": "block"})
        m.submodules[f"{name}_{UNDEFINED_COLLISION}"] = copy
        write, read = copy.write_port(), copy.read_port()
        clash = Signal(name=f"{name}_clash")
        address = qp[: ceil_log2(self.qps)]
        m.d.comb += [
            write.addr.eq(self.w_addr),
            write.data.eq(row),
            write.en.eq(self.w_en),
            read.addr.eq(address),
            out.eq(Mux(clash, row.as_value(), read.data.as_value())),
        ]
        m.d.sync += clash.eq(self.w_en & (address == self.w_addr))
