"""How the top connects blocks."""

from amaranth.hdl import Value

from .queue.ring import RingIndex
from .stream.slice import Slice

__all__ = ["fetched", "link", "through", "told"]


def link(m, source, sink):
    """Connects two streams, of which one may count QPs or CQs with fewer bits than the other."""
    m.d.comb += [
        Value.cast(sink.payload).eq(Value.cast(source.payload)),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def through(m, name, block, source, sink):
    """Connects two streams through ``block``, whose ``i`` and ``o`` are streams."""
    m.submodules[name] = block
    link(m, source, block.i)
    link(m, block.o, sink)


def told(m, source, sink, *names):
    """Connects plain signals, or records, of the same name."""
    for name in names:
        m.d.comb += Value.cast(getattr(sink, name)).eq(Value.cast(getattr(source, name)))


def fetched(m, name, fetcher, user):
    """Connects a consumer of fetched WQEs with its :class:`.queue.wqe_fetcher.RingPrefetcher`."""
    told(m, user, fetcher, "status_qp", "word_addr")
    told(m, fetcher, user, "status", "word")
    through(m, f"{name}_consumed", Slice(RingIndex), user.consumed, fetcher.consumed)
