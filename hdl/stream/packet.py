"""The one layout in which packets and payload move."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

__all__ = ["PacketBeat"]


class PacketBeat(data.StructLayout):
    """One beat of a packet.

    Byte 0 of the packet, the first on the wire or at the lowest address, is ``data[0:8]`` of the first beat. Every beat
    but the last is full.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.

    Members
    -------
    data : ``data_width``
        Bytes beyond ``count`` are undefined.
    count : 0 to ``data_width // 8``
        Valid bytes. 0 stands only in a beat that is ``last``.
    first, last : 1
        Edges of the packet.
    error : 1
        Looked at with ``last`` only: the packet is damaged and must have no effect.
    """

    def __init__(self, data_width):
        if data_width not in (64, 128, 256, 512):
            raise ValueError(f"data_width must be 64, 128, 256 or 512, not {data_width!r}")
        self.data_width = data_width
        super().__init__(
            {"data": data_width, "count": ceil_log2(data_width // 8) + 1, "first": 1, "last": 1, "error": 1}
        )
