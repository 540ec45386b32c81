"""A block that asks the directory of QPs, with a real one."""

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from verbena.hdl.context.directory import Directory, Row
from verbena.hdl.stream.connections import connect_signals, link

__all__ = ["DirectoryBench"]

ASKS = ("ask", "answered", "row", "changed", "next_ask", "next_answered")


class DirectoryBench(wiring.Component):
    """``make(*arguments, qps, slots, **options)`` and its directory, whose rows are written at ``place``,
    ``place_index`` and ``place_row``. Somebody else asks, too, when ``probe`` is set."""

    def __init__(self, make, *arguments, qps, slots, **options):
        self.block = make(*arguments, qps, slots, **options)
        self.qps, self.slots = qps, slots
        self.names = [name for name in self.block.signature.members if name not in ASKS]
        members = self.block.signature.members
        super().__init__(
            {name: members[name] for name in self.names}
            | {
                "directory_ready": Out(1),
                "place": In(1),
                "place_index": In(range(qps)),
                "place_row": In(Row(slots)),
                "probe": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.block = block = self.block
        asks = [name for name in ("", "next_") if f"{name}ask" in block.signature.members]
        m.submodules.directory = directory = Directory(self.qps, self.slots, 1 + len(asks))
        for number, name in enumerate(asks, 1):
            link(m, getattr(block, f"{name}ask"), directory.ask[number])
            m.d.comb += getattr(block, f"{name}answered").eq(directory.answered[number])
        connect_signals(m, directory, block, "row", "changed")
        m.d.comb += [
            directory.ask[0].valid.eq(self.probe),
            self.directory_ready.eq(directory.ready),
            directory.write.eq(self.place),
            directory.index.eq(self.place_index),
            directory.new.eq(self.place_row),
        ]
        for name in self.names:
            member = self.signature.members[name]
            mine, part = getattr(self, name), getattr(block, name)
            source, sink = (mine, part) if member.flow == In else (part, mine)
            if member.is_port:
                m.d.comb += Value.cast(sink).eq(Value.cast(source))
            else:
                link(m, source, sink)
        return m
