"""How a bridge reaches registers and memory: one word of 32 bits at a time."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BridgeAnswer", "BridgeBus", "BridgeRequest"]

BridgeRequest = data.StructLayout({"address": 32, "data": 32, "write": 1})
BridgeAnswer = data.StructLayout({"data": 32, "error": 1})


class BridgeBus(wiring.Signature):
    """The view of who asks. The next request comes after the answer to the one before.

    Members
    -------
    request : stream of ``BridgeRequest``
        ``address`` is in bytes, a multiple of 4.
    answer : stream of ``BridgeAnswer``
        One for each request, writes too. ``error``: nothing is at this address.
    """

    def __init__(self):
        super().__init__(
            {"request": Out(stream.Signature(BridgeRequest)), "answer": In(stream.Signature(BridgeAnswer))}
        )
