"""How blocks are connected that make up a larger one."""

from amaranth.hdl import Value

__all__ = ["connect_signals", "connect_via", "link"]


def link(m, source, sink):
    """Connects two streams, of which one may count QPs or CQs with fewer bits than the other."""
    m.d.comb += [
        Value.cast(sink.payload).eq(Value.cast(source.payload)),
        sink.valid.eq(source.valid),
        source.ready.eq(sink.ready),
    ]


def connect_via(m, name, block, source, sink):
    """Connects two streams through ``block``, whose ``i`` and ``o`` are streams."""
    m.submodules[name] = block
    link(m, source, block.i)
    link(m, block.o, sink)


def connect_signals(m, source, sink, *names):
    """Connects plain signals, or records, of the same name."""
    for name in names:
        m.d.comb += Value.cast(getattr(sink, name)).eq(Value.cast(getattr(source, name)))
