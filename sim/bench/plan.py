"""Which rows there are, in groups, and how they are run: in which world, with which engine."""

from collections.abc import Callable
from dataclasses import dataclass

from verbena.sim.devices import configure, world
from verbena.sim.model import rnic
from verbena.sim.wire_limit import go_back_n, wire_cycles

from .batch import MTU, OPERATIONS, data_width
from .crowd import crowd
from .events import MODERATIONS, events
from .frames import SIZES as FRAMES
from .frames import frames
from .goals import judged
from .keys import KEYS, key_life
from .latency import BESIDE, RETURNING, latency, mixed
from .loss import LOSSES, LOSSY, goodput, one_loss, round_trip
from .misses import hits_beside, random_pages
from .rows import both_ways, scattered, shared_receives, throughput, wide_wqe, words_apart

__all__ = ["CURVES", "FAR", "GROUPS", "SIZES", "Item", "plan", "run"]

SIZES = (8, 64, 256, 1024, 4096, 16384, 65536)
CURVES = ("WRITE", "SEND", "READ")
SHARES = (32, 128, 512)
"""Sizes of READs between those of the curves."""

FAR = {256: (8, 16), 512: (1024, 1), 1024: (16384, 1)}
"""Latencies of host memory beyond the usual one, and size and queue pairs of the WRITEs that are measured there."""

WRITE_LATENCY = 32
"""Cycles from a write's last data to its answer, where nothing else is said: a bridge answers before the memory has
it."""

GROUPS = (
    "throughput",
    "UC and UD",
    "SRQ",
    "different words",
    "both ways",
    "memory latency",
    "WQEs",
    "misses",
    "latency",
    "keys",
    "raw packets",
    "events",
    "mixed sizes",
    "one loss",
    "lossy wire",
    "queue pairs",
)


ENGINE = {
    "physical": False,
    "ipv6": False,
    "key_operations": False,
    "raw_packets": False,
    "event_queues": 1,
    "cq_moderation": False,
    "interrupt_moderation": False,
}
"""Beside the latency: the standard configuration, but for its shared receive queues, which cost no cycles."""

MORE = {
    "keys": {"key_operations": True},
    "raw packets": {"raw_packets": True},
    "events": {"cq_moderation": True},
}
"""What the engine has besides for a group."""


@dataclass(frozen=True)
class Item:
    """A row to be measured, or some.

    Parameters
    ----------
    group : str
        One of :data:`GROUPS`.
    function : callable
        Measures it; returns the row, or a list of rows that are measured together.
    arguments : tuple
    memory_latency : int or None
        Of reads of the hosts' memory; None: the usual one.
    write_latency : int
        Of writes.
    engine_latency : int or None
        For which the engine is made; None: the usual one. Each other number is an engine to be compiled.
    """

    group: str
    function: Callable
    arguments: tuple
    memory_latency: int | None = None
    write_latency: int = WRITE_LATENCY
    engine_latency: int | None = None

    @property
    def text(self):
        where = f" at latency {self.memory_latency}/{self.write_latency}" if self.memory_latency else ""
        return " ".join(map(str, (self.group + ":", self.function.__name__, *self.arguments))) + where


def plan(everything=False):
    """All rows, as :class:`Item`; ``everything``: those, too, whose engines have to be compiled first."""
    items = []

    def add(group, function, *arguments, **where):
        items.append(Item(group, function, arguments, **where))

    for name in CURVES:
        for qps in (1, 16):
            more = SHARES if (name, qps) == ("READ", 16) else ()
            for size in sorted((*SIZES, *more)):
                add("throughput", throughput, name, size, qps)
        add("throughput", throughput, name, 65536, 1, 1024)
    for name in ("WRITE", "SEND"):
        for qps in (1, 16):
            for size in (8, 4096):
                add("UC and UD", throughput, name, size, qps, MTU, "UC")
    for qps in (1, 16):
        for size in (8, 4096):
            add("UC and UD", throughput, "SEND", size, qps, MTU, "UD")
    for qps in (1, 16):
        for size in (8, 4096):
            add("SRQ", shared_receives, size, qps)
    add("different words", words_apart, "READ", 16)
    for qps in (1, 16):
        add("different words", words_apart, "FETCH_ADD", qps)
    for qps, apart in ((1, False), (16, False), (16, True)):
        add("both ways", both_ways, "WRITE", 8, qps, apart)
    # Config's latency is that of writes, too.
    add("memory latency", throughput, "WRITE", 8, 16, write_latency=128)
    for far, (size, qps) in FAR.items():
        # Of the engine that is made for the usual latency, and of one that is made for this.
        for engine in (None, far) if everything else (None,):
            for write in (WRITE_LATENCY, far):
                where = {"memory_latency": far, "write_latency": write, "engine_latency": engine}
                add("memory latency", throughput, "WRITE", size, qps, **where)
    for size, qps in ((64, 1), (64, 16), (1024, 16)):
        add("WQEs", scattered, size, qps)
    add("WQEs", wide_wqe, 8, 1)
    for qps in (4, 16):
        add("misses", random_pages, qps)
    add("misses", hits_beside)
    for push in (True, False):
        for name in ("SEND", "WRITE_WITH_IMM"):
            for inline in (False, True):
                add("latency", latency, name, 8, inline, push)
        for name in RETURNING:
            add("latency", latency, name, 8, False, push)
    for what in KEYS:
        for qps in (1, 16):
            add("keys", key_life, what, qps)
    for size in FRAMES:
        add("raw packets", frames, size)
    for moderation in MODERATIONS:
        add("events", events, *moderation)
    for name, side in BESIDE:
        add("mixed sizes", mixed, name, side)
    add("mixed sizes", mixed, *BESIDE[0], 1024)
    add("one loss", one_loss)
    for name in LOSSY:
        for loss, count in LOSSES.items():
            add("lossy wire", goodput, name, loss, count)
    for qps in (1000, 10_000) if everything else ():
        add("queue pairs", crowd, qps, 1000)
    return items


def run(items, width, memory_latency, begin=lambda item: None):
    """Measures the items and yields their rows, judged; ``begin(item)`` is called before each. The items of one engine
    are measured together, those of the usual one first. No world may be open before.
    """
    made_for, trips = None, {}
    for item in sorted(items, key=lambda item: (item.engine_latency or 0, item.group in MORE)):
        engine = item.engine_latency or memory_latency
        sizes = ENGINE | MORE.get(item.group, {}) | {"memory_latency": engine}
        if sizes != made_for:
            if made_for is not None:
                world().close()
            configure(memory_latency=memory_latency, design=rnic(data_width=width, **sizes), seed=1)
            made_for = sizes
        begin(item)
        latency_here = item.memory_latency or memory_latency
        for adapter in world().adapters:
            adapter.set_memory(read_latency=latency_here, write_latency=item.write_latency)
        measured = item.function(*item.arguments)
        for figures in measured if isinstance(measured, list) else [measured]:
            row = {"group": item.group} | figures
            row |= {"data_width": data_width(), "memory_latency": latency_here}
            row |= {"write_latency": item.write_latency, "engine_latency": engine}
            if "loss" in row:
                name = row["op"]
                if name not in trips:
                    trips[name] = round_trip(name)
                packet = wire_cycles(OPERATIONS[name], MTU, MTU, data_width())
                ideal = go_back_n(row["loss"], packet, trips[name])
                row |= {"round_trip": trips[name], "ideal_fraction": round(ideal, 4)}
            yield judged(row)
