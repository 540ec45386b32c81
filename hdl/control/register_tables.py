"""Tables in the register space that stand elsewhere in the engine: what is written to them is passed on."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..abi import registers as abi
from ..abi.eqe import EVENT_QUEUE
from ..abi.gids import GID_COUNT, GID_ROW, GROUP_MEMBER
from ..stream.transfer import GID_INDEX_BITS, EventQueueWrite, GidWrite, RawFilter

__all__ = ["RegisterTables", "table_members"]


def table_members(identity):
    """Members of the tables that an engine of ``identity`` has, by name, as outputs."""
    members = {}
    if identity.gids:
        members |= {"gid": Out(GidWrite), "gid_en": Out(1)}
        members |= {"neighbour_gid": Out(128), "neighbour_row": Out(GID_INDEX_BITS)}
    if identity.multicast:
        members["member_en"] = Out(1)
    if identity.raw:
        members["raw_filter"] = Out(RawFilter)
    if identity.event_table:
        members |= {"event_queue": Out(EventQueueWrite), "event_queue_en": Out(1)}
    return members


class RegisterTables(wiring.Component):
    """Passes on the words that are written to tables of the register space, each a cycle after ``write``.

    Parameters
    ----------
    identity : .identity.Identity
        Which tables there are: of GIDs (``gids``), with the address that is sought, of group members (``multicast``),
        of event queues (``event_table``), and who gets raw frames (``raw``).

    Members
    -------
    address : as of AXI4-Lite
        It stands for a cycle before ``write``.
    value : 32
    write : 1
        Strobe.
    clear : 1
        Strobe: nobody gets raw frames.
    gid, gid_en : ``GidWrite``, 1
        With ``gids``: a word of the table of GIDs is written.
    neighbour_gid, neighbour_row, neighbour_ask : 128, 4, 1
        With ``gids``: whom to ask for, from which row's address; strobe: that was written.
    member_en : 1
        With ``multicast``: a word of the table of group members is written, which ``gid`` tells.
    event_queue, event_queue_en : ``EventQueueWrite``, 1
        With ``event_table``: a word of the table of event queues is written.
    raw_filter : ``RawFilter``
        With ``raw``: what was written.
    """

    def __init__(self, identity):
        self.identity = identity
        super().__init__(
            {
                "address": In(abi.ADDRESS_WIDTH),
                "value": In(32),
                "write": In(1),
                "clear": In(1),
            }
            | table_members(identity)
            | ({"neighbour_ask": Out(1)} if identity.gids else {})
        )

    def elaborate(self, platform):
        m = Module()
        if self.identity.gids:
            self._gids(m)
        if self.identity.event_table:
            in_queues = self._within(m, "event_queues", abi.EVENT_QUEUES, EVENT_QUEUE.size * self.identity.event_queues)
            m.d.sync += [
                self.event_queue.queue.eq(self.address[ceil_log2(EVENT_QUEUE.size) :]),
                self.event_queue.word.eq(self.address[2:]),
                self.event_queue.data.eq(self.value),
                self.event_queue_en.eq(in_queues & self.write),
            ]
        if self.identity.raw:
            with m.If(self._within(m, "raw", abi.RAW, 4) & self.write):
                m.d.sync += Value.cast(self.raw_filter).eq(self.value)
            with m.If(self.clear):
                m.d.sync += Value.cast(self.raw_filter).eq(0)
        return m

    def _within(self, m, name, first, size):
        """Whether the address is of the ``size`` bytes from ``first`` on: known a cycle later."""
        within = Signal(name=f"in_{name}")
        m.d.sync += within.eq(self.address[ceil_log2(size) :] == first // size)
        return within

    def _gids(self, m):
        word = self.address[2 : ceil_log2(GID_ROW.size)]
        in_gids = self._within(m, "gids", abi.GIDS, GID_COUNT * GID_ROW.size)
        in_neighbour = self._within(m, "neighbour", abi.NEIGHBOUR, GID_ROW.size)
        m.d.sync += [
            self.gid.index.eq(self.address[ceil_log2(GID_ROW.size) :][: ceil_log2(GID_COUNT)]),
            self.gid.word.eq(word),
            self.gid.data.eq(self.value),
            self.gid_en.eq(in_gids & self.write),
            self.neighbour_ask.eq(0),
        ]
        if self.identity.multicast:
            m.d.sync += self.member_en.eq(
                self._within(m, "groups", abi.GROUPS, GROUP_MEMBER.size) & self.write,
            )
        with m.If(in_neighbour & self.write), m.Switch(word):
            for number in range(4):
                with m.Case(number):
                    m.d.sync += self.neighbour_gid.word_select(number, 32).eq(self.value)
            with m.Case(4):
                m.d.sync += [self.neighbour_row.eq(self.value), self.neighbour_ask.eq(1)]
