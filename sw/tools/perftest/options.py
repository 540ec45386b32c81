"""What a test can be told, with perftest's defaults."""

from dataclasses import dataclass, replace

from ...verbs.limits import MAX_INLINE, MAX_QP_WR, MAX_RD_ATOMIC
from ..endpoint import mtu_of
from ..session import ToolError
from .kinds import Verb

__all__ = ["MIN_ITERATIONS", "Options"]

MIN_ITERATIONS = 5
LARGE = 8192
"""Bytes from which on every message has its completion."""

_WRITES = 5000
"""Iterations of write_bw; all others make 1000."""


@dataclass(frozen=True)
class Options:
    """Both sides must be told the same ``size``, ``iterations``, ``qps`` and ``bidirectional``. Where None stands, the
    kind of test decides (:meth:`resolved`).

    ``mtu`` is in bytes, None for the port's; ``outstanding`` are the READs and atomics under way; with
    ``compare_and_swap`` atomics are that and not fetch-and-add; ``patience`` are seconds in which the peer may be
    silent, None for ever.
    """

    size: int | None = None
    iterations: int | None = None
    qps: int = 1
    mtu: int | None = None
    bidirectional: bool = False
    tx_depth: int | None = None
    rx_depth: int = 512
    cq_mod: int | None = None
    inline: int | None = None
    timeout: int = 14
    outstanding: int = MAX_RD_ATOMIC
    compare_and_swap: bool = False
    gid_index: int = 0
    service_level: int = 0
    traffic_class: int = 0
    gbits: bool = False
    patience: float | None = None

    def resolved(self, kind):
        """These options for a test, complete. :class:`.ToolError` if they do not fit it."""

        def default(value, other):
            return other if value is None else value

        if kind.verb is Verb.ATOMIC and self.size not in (None, 8):
            raise ToolError("atomics have 8 bytes")
        size = default(self.size, 8 if kind.verb is Verb.ATOMIC else 2 if kind.latency else 65536)
        iterations = default(self.iterations, _WRITES if kind.name == "write_bw" else 1000)
        tx_depth = 1 if kind.latency else min(default(self.tx_depth, 128), iterations)
        carries = kind.verb in (Verb.SEND, Verb.WRITE)
        result = replace(
            self,
            size=size,
            iterations=iterations,
            tx_depth=tx_depth,
            rx_depth=min(self.rx_depth, iterations),
            cq_mod=1 if kind.latency else min(default(self.cq_mod, 1 if size > LARGE else 100), tx_depth),
            inline=default(self.inline, MAX_INLINE if kind.latency and carries else 0),
        )
        result._check(kind)
        return result

    def _check(self, kind):
        if self.mtu is not None:
            mtu_of(self.mtu)
        if kind.latency and self.qps != 1:
            raise ToolError("only bandwidth tests use several queue pairs")
        if kind.latency and self.bidirectional:
            raise ToolError("only bandwidth tests run in both directions")
        for name, least, most in (
            ("size", 1, 1 << 31),
            ("iterations", MIN_ITERATIONS, 100_000_000),
            ("qps", 1, 16384),
            ("tx_depth", 1, MAX_QP_WR),
            ("rx_depth", 1, MAX_QP_WR),
            ("cq_mod", 1, 1024),
            ("inline", 0, MAX_INLINE),
            ("timeout", 0, 31),
            ("outstanding", 1, MAX_RD_ATOMIC),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ToolError(f"{name} must be between {least} and {most}, not {value}")
