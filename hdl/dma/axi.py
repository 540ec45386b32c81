"""The two AXI ports of the engine, as flat signatures."""

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["Axi4", "AxiLite", "Burst", "Response"]


class Burst(IntEnum):
    """AxBURST."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """RRESP and BRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Axi4(wiring.Signature):
    """AXI4, the manager's view, with 64-bit addresses. Names are those of the standard in lower case, without prefix.

    Parameters
    ----------
    data_width : int
        64, 128, 256 or 512 bits.
    id_width : int
        Bits of AWID, BID, ARID and RID.
    """

    def __init__(self, data_width, id_width=5):
        if data_width not in (64, 128, 256, 512):
            raise ValueError(f"data_width must be 64, 128, 256 or 512, not {data_width!r}")
        if not isinstance(id_width, int) or id_width < 1:
            raise ValueError(f"id_width must be a positive int, not {id_width!r}")
        self.data_width = data_width
        self.id_width = id_width
        members = {}
        for channel in ("aw", "ar"):
            widths = {"id": id_width, "addr": 64, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3}
            members |= {channel + name: Out(width) for name, width in (widths | {"qos": 4, "valid": 1}).items()}
            members[channel + "ready"] = In(1)
        members |= {"wdata": Out(data_width), "wstrb": Out(data_width // 8), "wlast": Out(1)}
        members |= {"wvalid": Out(1), "wready": In(1)}
        members |= {"bid": In(id_width), "bresp": In(2), "bvalid": In(1), "bready": Out(1)}
        members |= {"rid": In(id_width), "rdata": In(data_width), "rresp": In(2), "rlast": In(1), "rvalid": In(1)}
        members["rready"] = Out(1)
        super().__init__(members)

    @property
    def size(self):
        """AxSIZE of a full beat."""
        return ceil_log2(self.data_width // 8)


class AxiLite(wiring.Signature):
    """AXI4-Lite, the manager's view, with 32-bit data.

    Parameters
    ----------
    address_width : int
        Bits of a byte address.
    """

    def __init__(self, address_width):
        if not isinstance(address_width, int) or not 2 <= address_width <= 64:
            raise ValueError(f"address_width must be 2 to 64, not {address_width!r}")
        self.address_width = address_width
        members = {}
        for channel in ("aw", "ar"):
            members |= {channel + "addr": Out(address_width), channel + "prot": Out(3)}
            members |= {channel + "valid": Out(1), channel + "ready": In(1)}
        members |= {"wdata": Out(32), "wstrb": Out(4), "wvalid": Out(1), "wready": In(1)}
        members |= {"bresp": In(2), "bvalid": In(1), "bready": Out(1)}
        members |= {"rdata": In(32), "rresp": In(2), "rvalid": In(1), "rready": Out(1)}
        super().__init__(members)
