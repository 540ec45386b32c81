"""What a test can be told, with perftest's defaults."""

import math
from dataclasses import dataclass, replace

from verbena.hdl.abi.wqe import SGE_OFFSET, UD_ROUTE, WQE_DEFAULT, WQE_SIZES

from ...verbs.libibverbs_enums import ibv_qp_type
from ...verbs.limits import MAX_QP_WR, MAX_RD_ATOMIC
from ..endpoint import mtu_of
from ..session import ToolError
from .kinds import Verb

__all__ = ["CONNECTIONS", "MIN_ITERATIONS", "Options"]

CONNECTIONS = {"RC": ibv_qp_type.IBV_QPT_RC, "UC": ibv_qp_type.IBV_QPT_UC, "UD": ibv_qp_type.IBV_QPT_UD}
"""Types of queue pairs by perftest's names."""

MIN_ITERATIONS = 5
LARGE = 8192
"""Bytes from which on every message has its completion."""

LARGEST = 1 << 23
"""The last of all sizes; of UD it is the MTU."""

LARGEST_MTU = 4096

_MANY = 100_000_000
_LONGEST = 86400
_WRITES = 5000
"""Iterations of write_bw; all others make 1000."""


@dataclass(frozen=True)
class Options:
    """Both sides must be told the same ``size``, ``iterations``, ``qps`` and ``bidirectional``. Where None stands, the
    kind of test decides (:meth:`resolved`).

    ``connection`` is one of :data:`CONNECTIONS`; ``mtu`` is in bytes, None for the port's; ``outstanding`` are the
    READs and atomics under way; with ``compare_and_swap`` atomics are that and not fetch-and-add; ``patience`` are
    seconds in which the peer may be silent, None for ever. ``post_list`` messages are posted at a time. With
    ``duration`` messages go for so many seconds of the device's time, instead of ``iterations``. ``all_sizes`` repeats
    the test with 2, 4, … 2^23 bytes. With ``events`` an event tells of completions. ``peak`` says whether the peak is
    looked for. Of a latency test, ``histogram`` tells each time, sorted, ``unsorted`` as they came, ``cycles``
    everything in the device's cycles. With ``use_srq`` who receives has one shared receive queue of ``rx_depth``
    requests. With ``rdma_cm`` the connection manager connects the queue pairs, with times and MTU of its own and the
    client's ``traffic_class``, and the sides talk over a connection of its.
    """

    size: int | None = None
    iterations: int | None = None
    qps: int = 1
    connection: str = "RC"
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
    post_list: int = 1
    duration: float | None = None
    all_sizes: bool = False
    events: bool = False
    peak: bool = True
    histogram: bool = False
    unsorted: bool = False
    cycles: bool = False
    use_srq: bool = False
    rdma_cm: bool = False
    patience: float | None = None

    def resolved(self, kind, mtu=LARGEST_MTU):
        """These options for a test, complete; ``mtu`` is the path's, in bytes, which is the most that a datagram holds.
        :class:`.ToolError` if they do not fit it.
        """

        def default(value, other):
            return other if value is None else value

        if kind.verb is Verb.ATOMIC and self.size not in (None, 8):
            raise ToolError("atomics have 8 bytes")
        if self.all_sizes and (kind.verb is Verb.ATOMIC or self.size is not None):
            raise ToolError("all sizes: " + ("atomics have 8 bytes" if kind.verb is Verb.ATOMIC else "no size beside"))
        if self.duration is not None:
            self._check_duration()
        largest = mtu if self.connection == "UD" else LARGEST
        usual_size = 8 if kind.verb is Verb.ATOMIC else 2 if kind.latency else min(65536, largest)
        size = largest if self.all_sizes else default(self.size, usual_size)
        if self.connection == "UD" and size > mtu:
            raise ToolError(f"a datagram has up to {mtu} bytes, the MTU, not {size}")
        usual = _WRITES if kind.name == "write_bw" else 1000
        iterations = default(self.iterations, usual if self.duration is None else _MANY)
        tx_depth = 1 if kind.latency else min(default(self.tx_depth, 128), iterations)
        carries = kind.verb in (Verb.SEND, Verb.WRITE)
        result = replace(
            self,
            size=size,
            iterations=iterations,
            tx_depth=tx_depth,
            rx_depth=min(self.rx_depth, iterations * (self.qps if self.use_srq else 1)),
            cq_mod=1 if kind.latency else min(default(self.cq_mod, self._cq_mod(size)), tx_depth),
            inline=default(self.inline, self._most_inline if kind.latency and carries else 0),
        )
        result._check(kind)
        return result

    @property
    def batch(self):
        """Messages that a bandwidth test posts at once, or none; without a number of iterations, always to one that has
        its completion.
        """
        return self.post_list if self.duration is None else math.lcm(self.post_list, self.cq_mod)

    def rounds(self):
        """These options, resolved, for each size that is tested."""
        if not self.all_sizes:
            return [self]
        return [replace(self, size=1 << log) for log in range(1, self.size.bit_length())]

    @property
    def _most_inline(self):
        """Bytes of inline data that a WQE holds, of any device."""
        return WQE_DEFAULT - SGE_OFFSET - (UD_ROUTE.size if self.connection == "UD" else 0)

    def _cq_mod(self, size):
        if self.post_list > 1:
            return self.post_list
        return 1 if size > LARGE and not self.all_sizes else 100

    def _check_duration(self):
        if self.iterations is not None:
            raise ToolError("a test runs for a duration or for a number of iterations")
        if self.all_sizes:
            raise ToolError("all sizes are tested for a number of iterations, not for a duration")
        if not 0 < self.duration <= _LONGEST:
            raise ToolError(f"duration must be more than 0 and at most {_LONGEST}, not {self.duration:g}")

    def _check(self, kind):
        if self.mtu is not None:
            mtu_of(self.mtu)
        if self.connection not in CONNECTIONS:
            raise ToolError(f"connection must be {' or '.join(CONNECTIONS)}, not {self.connection!r}")
        if self.connection != "RC" and kind.verb not in (Verb.SEND, Verb.WRITE):
            raise ToolError(f"{self.connection} has neither READ nor atomics")
        if self.connection == "UD" and kind.verb is not Verb.SEND:
            raise ToolError("UD has no WRITE")
        if self.rdma_cm and self.connection == "UC":
            raise ToolError("the connection manager connects RC and UD")
        if self.use_srq and kind.verb is not Verb.SEND:
            raise ToolError("only SEND has receives, which could be shared")
        if self.use_srq and self.rx_depth < self.qps:
            raise ToolError(f"rx_depth {self.rx_depth} is too small for {self.qps} queue pairs that share receives")
        if kind.latency and self.qps != 1:
            raise ToolError("only bandwidth tests use several queue pairs")
        if kind.latency and self.bidirectional:
            raise ToolError("only bandwidth tests run in both directions")
        if not kind.latency and (self.histogram or self.unsorted or self.cycles):
            raise ToolError("only latency tests tell each time, or cycles")
        if kind.latency and self.post_list != 1:
            raise ToolError("only bandwidth tests post lists")
        for name, least, most in (
            ("size", 1, 1 << 31),
            ("iterations", MIN_ITERATIONS, _MANY),
            ("qps", 1, 16384),
            ("tx_depth", 1, MAX_QP_WR),
            ("rx_depth", 1, MAX_QP_WR),
            ("cq_mod", 1, 1024),
            ("inline", 0, WQE_SIZES[-1] - SGE_OFFSET),
            ("timeout", 0, 31),
            ("outstanding", 1, MAX_RD_ATOMIC),
            ("service_level", 0, 7),
            ("traffic_class", 0, 255),
            ("post_list", 1, self.tx_depth),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ToolError(f"{name} must be between {least} and {most}, not {value}")
        # Who waits for room must have a message under way that has its completion.
        if self.batch > self.tx_depth or (self.batch % self.cq_mod and self.batch + self.cq_mod - 1 > self.tx_depth):
            raise ToolError(
                f"tx_depth {self.tx_depth} is too little for post_list {self.post_list} and cq_mod {self.cq_mod}"
            )
