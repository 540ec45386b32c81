"""The parameters of an engine."""

from dataclasses import dataclass

__all__ = ["Config"]


def _power_of_two(name, value, low, high):
    if not (isinstance(value, int) and low <= value <= high and value & value - 1 == 0):
        raise ValueError(f"{name} must be a power of two from {low} to {high}, not {value!r}")


@dataclass(frozen=True)
class Config:
    """Sizes of one engine; the defaults are the standard configuration.

    Parameters
    ----------
    data_width : int
        Bits of the datapath, of AXI and of the packet streams: 64, 128, 256 or 512.
    qps, cqs : int
        Queue pairs and completion queues on chip, powers of two, 2 to 512.
    window : int
        Most messages a QP may have unacknowledged, a power of two.
    sq_area, rq_area : int
        Bytes a QP of fetched send and receive WQEs on chip.
    mpt_sets, mtt_sets : int
        Sets of the key and the translation cache, of 2 ways each.
    transmit_buffer, receive_buffer : int
        Bytes of payload that are read ahead, and that are received and not yet written.
    headers : int
        Packets between their turn and their payload's arrival, 4 to 64: 11 cycles each, 32 cover a memory latency of
        350 cycles.
    address_width : int
        Bits of bus addresses that are kept, 32 to 64: those above are 0 on the bus, whatever the driver says. It learns
        from ``capabilities`` how many these are.
    requests : bool
        There are send queues. Without them the engine only responds: peers SEND, WRITE, READ and do atomics here, and
        what is posted to a send queue is never looked at.
    udp_port : int or None
        UDP packets to this port are answered by whoever is at the engine's ``service``.

    Raises
    ------
    ValueError
        A parameter is not a power of two or out of range.
    """

    data_width: int = 64
    qps: int = 64
    cqs: int = 64
    window: int = 32
    sq_area: int = 512
    rq_area: int = 256
    mpt_sets: int = 256
    mtt_sets: int = 256
    transmit_buffer: int = 8192
    receive_buffer: int = 16384
    headers: int = 32
    address_width: int = 64
    requests: bool = True
    udp_port: int | None = None

    def __post_init__(self):
        if self.udp_port is not None and not (isinstance(self.udp_port, int) and 0 < self.udp_port < 1 << 16):
            raise ValueError(f"udp_port must be None or 1 to 65535, not {self.udp_port!r}")
        if not (isinstance(self.headers, int) and 4 <= self.headers <= 64):
            raise ValueError(f"headers must be 4 to 64, not {self.headers!r}")
        if not (isinstance(self.address_width, int) and 32 <= self.address_width <= 64):
            raise ValueError(f"address_width must be 32 to 64, not {self.address_width!r}")
        if not isinstance(self.requests, bool):
            raise ValueError(f"requests must be a bool, not {self.requests!r}")
        _power_of_two("data_width", self.data_width, 64, 512)
        _power_of_two("qps", self.qps, 2, 512)
        _power_of_two("cqs", self.cqs, 2, 512)
        _power_of_two("window", self.window, 2, 1024)
        _power_of_two("sq_area", self.sq_area, 256, 4096)
        _power_of_two("rq_area", self.rq_area, 256, 4096)
        _power_of_two("mpt_sets", self.mpt_sets, 4, 512)
        _power_of_two("mtt_sets", self.mtt_sets, 4, 512)
        _power_of_two("transmit_buffer", self.transmit_buffer, 4096, 1 << 16)
        _power_of_two("receive_buffer", self.receive_buffer, 8192, 1 << 18)
