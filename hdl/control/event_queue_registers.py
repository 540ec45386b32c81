"""What the driver has written about one event queue."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..abi.eqe import EVENT_QUEUE
from ..stream.transfer import EventQueueWrite

__all__ = ["EventQueueRegisters"]

WORDS = {name: field.word for name, field in EVENT_QUEUE.fields.items()}


class EventQueueRegisters(wiring.Component):
    """Keeps the words of one row of the table of event queues.

    Parameters
    ----------
    number : int
        Which row.

    Members
    -------
    event_queue, event_queue_en : ``EventQueueWrite``, 1
        A word of some row is written.
    eq_base, eq_log_size, eq_reset, eq_consumer, interval : 64, 4, 1, 16, 16
        What it holds, from the cycle after the write on. ``eq_reset`` strobes when ``eq_log_size`` was written; then
        ``eq_consumer`` is 0.
    """

    def __init__(self, number):
        self.number = number
        super().__init__(
            {
                "event_queue": In(EventQueueWrite),
                "event_queue_en": In(1),
                "eq_base": Out(64),
                "eq_log_size": Out(4),
                "eq_reset": Out(1),
                "eq_consumer": Out(16),
                "interval": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        written = Signal()
        value = self.event_queue.data
        m.d.comb += written.eq(self.event_queue_en & (self.event_queue.queue == self.number))
        m.d.sync += self.eq_reset.eq(0)
        with m.If(written), m.Switch(self.event_queue.word):
            for half in range(2):
                with m.Case(WORDS["base"] + half):
                    m.d.sync += self.eq_base.word_select(half, 32).eq(value)
            with m.Case(WORDS["log_size"]):
                m.d.sync += Cat(self.eq_log_size, self.eq_reset, self.eq_consumer).eq(Cat(value[:4], 1))
            with m.Case(WORDS["consumer"]):
                m.d.sync += self.eq_consumer.eq(value)
            with m.Case(WORDS["interval"]):
                m.d.sync += self.interval.eq(value)
        return m
