"""How a prefetcher of WQEs stands between the memory and who uses them."""

from ..stream.connections import connect_signals, connect_via, link
from ..stream.packet import PacketBeat
from ..stream.skid import Skid
from ..stream.slice import Slice
from .ring import RingIndex

__all__ = ["link_fetcher"]


def link_fetcher(m, name, fetcher, user, structure, data_width):
    """Connects a :class:`.wqe_fetcher.RingPrefetcher` with the structure reader that it uses, and with the block that
    uses its WQEs: that has ``status_qp``, ``status``, ``places``, ``word_addr``, ``word``, ``wanted``, ``consumed``
    and, if it reads them while it looks at the next QP, ``reading`` and ``reading_qp``.
    """
    link(m, fetcher.read, structure.request)  # from a register that nothing hurries
    # What comes is taken at once, but far from here.
    connect_via(m, f"{name}_skid", Skid(PacketBeat(data_width)), structure.data, fetcher.data)
    connect_signals(m, user, fetcher, "status_qp", "word_addr")
    connect_signals(m, fetcher, user, "status", "places", "word")
    if "reading" in user.signature.members:
        connect_signals(m, user, fetcher, "reading", "reading_qp")
    link(m, user.wanted, fetcher.wanted)
    connect_via(m, f"{name}_consumed", Slice(RingIndex), user.consumed, fetcher.consumed)
