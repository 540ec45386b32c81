"""How far rings are: rows of LUT RAM, a few for each QP."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .ring import RingStatus
from .ring_swap import RingState

__all__ = ["RingIndices"]


class RingIndices(wiring.Component):
    """Keeps how far each ring is posted, asked for, fetched and consumed, and whether it is in error. Indices are
    free-running.

    Each value has one writer: doorbells ``producer`` and ``misrung``, turns ``issued``, data ``fetched`` and
    ``failed``, the consumer ``consumed``. A ring that is set writes all of them, and a pushed WQE that lands moves
    ``issued`` and ``fetched``: in cycles in which none of their writers writes.

    *Latency*: what is written is read from the next cycle on. A reset does not reach the rows: each ring must be set.

    Parameters
    ----------
    qps : int
        Rings.
    lands : bool
        With ``land``.
    swaps : bool
        With ``then``.

    Members
    -------
    look_qp, producer, issued, consumed, misrung, failed : QP index, 16, 16, 16, 1, 1
        A ring, and how far it is, in the same cycle. ``misrung``: a doorbell was rejected. ``failed``: a read has ended
        in an error.
    status_qp, status
        ``RingStatus``, 1 cycle later.
    rings, rung_qp, rung_index : 1, QP index, 16
        A doorbell is inside. The first two stood in the cycle before any strobe of it.
    accept, reject : 1
        Strobes, while ``rings``: its index is the producer index; the ring is in error, unless a read ``ends`` in this
        cycle.
    land : 1
        Strobe, while ``rings``: the WQE before ``rung_index`` is on chip.
    start, start_qp, start_end : 1, QP index, 16
        Strobe: all before ``start_end`` is asked for.
    ends, end_qp, end : 1, QP index, 16
        A read ends, that of what stands before ``end``.
    good, bad : 1
        Strobes, with ``ends``: it was fetched; it has failed.
    end_failed : 1
        A read of ``end_qp`` has ended in an error before. In the same cycle.
    consumes, consumes_en, consumed_qp, consumed_index : 1, 1, QP index, 16
        Something is consumed; strobe, with ``consumes``: it counts, up to ``consumed_index``.
    set_qp, set_index : QP index, 16
        The ring to be set; it stood in the cycle before, without ``rings``.
    set, reset, arm : 1
        Strobes: ``issued`` and ``fetched`` become ``set_index``; producer index and errors become those of ``then``, 0
        without ``swaps``; ``consumed`` becomes ``set_index``, unless something ``consumes``. The first two not while
        ``rings``.
    then : ``RingState``
        What ``reset`` leaves. ``then.consumed`` is not used.
    """

    def __init__(self, qps, *, lands=False, swaps=False):
        self.qps = qps
        self.lands = lands
        self.swaps = swaps
        qp = range(qps)
        super().__init__(
            {
                "look_qp": In(qp),
                "producer": Out(16),
                "issued": Out(16),
                "consumed": Out(16),
                "misrung": Out(1),
                "failed": Out(1),
                "status_qp": In(12),
                "status": Out(RingStatus),
                "rings": In(1),
                "rung_qp": In(qp),
                "rung_index": In(16),
                "accept": In(1),
                "reject": In(1),
                "start": In(1),
                "start_qp": In(qp),
                "start_end": In(16),
                "ends": In(1),
                "end_qp": In(qp),
                "end": In(16),
                "good": In(1),
                "bad": In(1),
                "end_failed": Out(1),
                "consumes": In(1),
                "consumes_en": In(1),
                "consumed_qp": In(qp),
                "consumed_index": In(16),
                "set_qp": In(qp),
                "set_index": In(16),
                "set": In(1),
                "reset": In(1),
                "arm": In(1),
            }
            | ({"land": In(1)} if lands else {})
            | ({"then": In(RingState)} if swaps else {})
        )

    def _row(self, m, name, shape, reads):
        """A LUT RAM of one value a QP: its write port and its read ports."""
        m.submodules[f"{name}_rows"] = rows = memory.Memory(shape=shape, depth=self.qps, init=[])
        return rows.write_port(), [rows.read_port(domain="comb") for _ in range(reads)]

    def elaborate(self, platform):
        m = Module()
        producer, (producer_look, producer_status) = self._row(m, "producer", 16, 2)
        issued, (issued_look,) = self._row(m, "issued", 16, 1)
        fetched, (fetched_status,) = self._row(m, "fetched", 16, 1)
        # Both errors stand in one row, which is as wide as LUT RAM in any case: who writes one of them keeps the other.
        errors, (errors_look, errors_status, errors_rung, errors_end) = self._row(m, "errors", 2, 4)
        consumed, (consumed_look,) = self._row(m, "consumed", 16, 1)

        qp = Signal.like(self.rung_qp)  # the ring of the doorbell, or else that to be set
        m.d.sync += qp.eq(Mux(self.rings, self.rung_qp, self.set_qp))
        then_producer, then_errors, index, land = 0, 0, self.set_index, 0
        if self.lands:
            index, land = Mux(self.rings, self.rung_index, self.set_index), self.land
        if self.swaps:
            then_producer, then_errors = self.then.producer, Cat(self.then.misrung, self.then.failed)
        m.d.comb += [
            producer.addr.eq(qp),
            producer.data.eq(Mux(self.rings, self.rung_index, then_producer)),
            producer.en.eq(self.accept | self.reset),
            consumed.addr.eq(Mux(self.consumes, self.consumed_qp, self.set_qp)),
            consumed.data.eq(Mux(self.consumes, self.consumed_index, self.set_index)),
            consumed.en.eq(self.consumes_en | (self.arm & ~self.consumes)),
            issued.addr.eq(Mux(self.start, self.start_qp, qp)),
            issued.data.eq(Mux(self.start, self.start_end, index)),
            issued.en.eq(self.start | land | self.set),
            fetched.addr.eq(Mux(self.ends, self.end_qp, qp)),
            fetched.data.eq(Mux(self.ends, self.end, index)),
            fetched.en.eq(self.good | land | self.set),
            errors.addr.eq(Mux(self.ends, self.end_qp, qp)),
            errors_rung.addr.eq(qp),
            errors_end.addr.eq(self.end_qp),
            errors.data.eq(Mux(self.ends, errors_end.data | 2, Mux(self.rings, errors_rung.data | 1, then_errors))),
            errors.en.eq(self.bad | (self.reject & ~self.ends) | self.reset),
        ]

        looks = producer_look, issued_look, consumed_look, errors_look
        m.d.comb += [
            *(port.addr.eq(self.look_qp) for port in looks),
            self.producer.eq(producer_look.data),
            self.issued.eq(issued_look.data),
            self.consumed.eq(consumed_look.data),
            self.misrung.eq(errors_look.data[0]),
            self.failed.eq(errors_look.data[1]),
            self.end_failed.eq(errors_end.data[1]),
            *(port.addr.eq(self.status_qp) for port in (producer_status, fetched_status, errors_status)),
        ]
        m.d.sync += [
            self.status.producer.eq(producer_status.data),
            self.status.fetched.eq(fetched_status.data),
            self.status.error.eq(errors_status.data.any()),
        ]
        return m
