"""The checksum of the IPv4 header (RFC 791, RFC 1071)."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .headers import HEADERS
from .packet_header import Path

__all__ = ["IpChecksum"]


class IpChecksum(wiring.Component):
    """Adds up the header in stages.

    Parameters
    ----------
    constant : dict
        Fields of the IPv4 header that are the same in all packets.
    varying : bool
        The own address comes with the path.

    Attributes
    ----------
    latency : int
        Cycles from ``words`` to ``o``.

    Members
    -------
    ip : 32
        Own address; 2 cycles before all else, or, if it is ``varying``, 1 cycle before ``words``.
    path : ``Path``
        The peer; its address 1 cycle before ``words``.
    words : 11
        Length of the packet in 32-bit words, the IP header included.
    o : 16
    """

    latency = 3

    def __init__(self, constant, *, varying=False):
        self.varying = varying
        constant = HEADERS["ipv4"].pack(**constant)
        self._constant = sum(int.from_bytes(constant[i : i + 2], "big") for i in range(0, len(constant), 2))
        super().__init__({"ip": In(32), "path": In(Path), "words": In(11), "o": Out(16)})

    def elaborate(self, platform):
        m = Module()
        own, static, peer = Signal(17), Signal(19), Signal(17, reset_less=True)
        known, varying, whole = (Signal(n, reset_less=True) for n in (19, 17, 19))
        low, high = whole[:16], whole[16:]
        m.d.sync += [
            own.eq(self.ip[:16] + self.ip[16:]),
            static.eq(own + self._constant),
            peer.eq(self.path.ip[:16] + self.path.ip[16:]),
            known.eq(own + peer + self._constant if self.varying else static + peer),
            varying.eq(Cat(self.path.traffic_class, self.path.hop_limit) + (self.words << 2)),
            whole.eq(known + varying),
            # The carries come around once, and so does the carry of adding them, which needs `low` nearly full.
            self.o.eq(~(low + high + (low[3:].all() & (low[:3] + high)[3]))),
        ]
        return m
