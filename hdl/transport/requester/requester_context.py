"""Where each send queue stands, and what happens to that besides the cutting of packets."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, memory, wiring
from amaranth.lib.wiring import In, Out

from ...stream.ram import Ram
from ..common.psn import PSN_BITS

__all__ = ["BLOCKS_BITS", "Phase", "RequesterContext", "RequesterContextStore", "StateChange"]


class Phase(enum.Enum, shape=3):
    """What the next turn finds."""

    BETWEEN = 0  # the message at `index` is to be sent from its beginning
    MIDDLE = 1  # it has begun
    RESUME = 2  # `index` and `psn` do not fit together: go on at the first packet that is not acknowledged
    REWINDING = 3  # the ring is being rewound: wait
    HALTED = 4  # a WQE was malformed: nothing more until RESET or a retry


BLOCKS_BITS = 31 - 8
"""All packets of a message but its last have a multiple of 256 bytes; a message has 2**31 at most."""

RequesterContext = data.StructLayout(
    {
        "phase": Phase,
        "index": 16,  # WQE being sent, or next
        "psn": PSN_BITS,  # next packet; undefined in RESUME, REWINDING and HALTED
        "blocks": BLOCKS_BITS,  # MIDDLE: of 256 bytes, in the packets before
        "top": 16,  # first WQE that was never begun, that is for which nothing went to `outstanding`
        "reads": 8,  # READs and atomics begun, free-running
        "top_psn": PSN_BITS,  # first PSN never sent
    }
)
"""The requester's state of a QP: the WQE and the PSN of the next packet."""

MAIN = ("phase", "index", "psn", "blocks")
"""Fields that every packet and every change writes: 66 bits, two block RAMs. The others stand in two more."""


class StateChange(enum.Enum):
    """What changes a state, besides a packet."""

    RESET = 0  # all is zero; `operand` must be, too
    START = 1  # PSN `operand` is the first
    HALT = 2
    GIVE_UP = 3  # all before `target`
    REWIND = 4
    REWOUND = 5  # to index `operand`
    PASS = 6  # over a WQE that is complete
    RESUME = 7  # at PSN `unacked`, behind `skipped` blocks


class RequesterContextStore(wiring.Component):
    """Memory of ``qps`` states, written by packets and by changes, not both in one cycle.

    Reading takes 2 cycles, as of :class:`verbena.hdl.stream.ram.Ram`. A write reaches the memory a cycle late, out of
    registers, because what is written depends on what was read: a state may be read again in the second cycle after it,
    at the earliest.

    Parameters
    ----------
    qps : int

    Members
    -------
    at, row : QP index, ``RequesterContext``
        Read port.
    packet_en, packet_qp, packet : 1, 12, ``RequesterContext``
        A packet has been cut; the state behind it.
    of_packet : 1
        With ``packet_en``; not with ``change_en``.
    newest, fresh : 1
        With ``packet_en``: ``top`` and ``reads`` have changed; ``top_psn`` has.
    change_en, change, qp : 1, ``StateChange``, QP index
        ``qp`` has stood at ``at`` for 2 cycles.
    operand, target, unacked, skipped : 24, 16, 24, 23
        As the change says.
    drain_en, drain : 1
        Whether the queue with index ``qp`` drains: it is to begin no message. At any time.
    draining : 1
        It does; one cycle after ``qp``.
    """

    def __init__(self, qps):
        self.qps = qps
        super().__init__(
            {
                "at": In(range(qps)),
                "row": Out(RequesterContext),
                "packet_en": In(1),
                "of_packet": In(1),
                "packet_qp": In(12),
                "packet": In(RequesterContext),
                "newest": In(1),
                "fresh": In(1),
                "change_en": In(1),
                "change": In(StateChange),
                "qp": In(range(qps)),
                "operand": In(PSN_BITS),
                "target": In(16),
                "unacked": In(PSN_BITS),
                "skipped": In(BLOCKS_BITS),
                "drain_en": In(1),
                "drain": In(1),
                "draining": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        members = RequesterContext.members
        parts = {"main": MAIN, "top": ("top", "reads"), "top_psn": ("top_psn",)}
        after = Signal(RequesterContext)
        enables = {name: Signal(name=f"{name}_en") for name in parts}
        w_addr = Signal(range(self.qps))
        m.d.sync += w_addr.eq(Mux(self.of_packet, self.packet_qp, self.qp))
        for name, fields in parts.items():
            m.submodules[name] = ram = Ram(data.StructLayout({field: members[field] for field in fields}), self.qps)
            w_en = Signal(name=f"{name}_w_en")
            w_data = Signal.like(ram.w_data, name=f"{name}_w_data", reset_less=True)
            m.d.sync += [w_en.eq(enables[name]), *(w_data[field].eq(after[field]) for field in fields)]
            m.d.comb += [
                ram.r_addr.eq(self.at),
                ram.w_addr.eq(w_addr),
                ram.w_en.eq(w_en),
                ram.w_data.eq(w_data),
                *(self.row[field].eq(ram.r_data[field]) for field in fields),
            ]

        m.submodules.drains = drains = memory.Memory(shape=1, depth=self.qps, init=[])
        drains_write, drains_read = drains.write_port(), drains.read_port(domain="comb")
        m.d.comb += [
            drains_write.addr.eq(self.qp),
            drains_write.data.eq(self.drain),
            drains_write.en.eq(self.drain_en),
            drains_read.addr.eq(self.qp),
        ]
        m.d.sync += self.draining.eq(drains_read.data)

        # Fields that are undefined after a change get the value that needs the least logic.
        changing = self.change_en
        reset, start = self.change == StateChange.RESET, self.change == StateChange.START
        m.d.comb += [
            enables["main"].eq(self.packet_en | changing),
            enables["top"].eq((self.packet_en & self.newest) | (changing & reset)),
            enables["top_psn"].eq((self.packet_en & self.fresh) | (changing & (reset | start))),
            after.eq(self.packet),
        ]
        with m.If(~self.of_packet):
            m.d.comb += [
                after.psn.eq(Mux(self.change == StateChange.RESUME, self.unacked, self.operand)),
                after.top_psn.eq(self.operand),
                after.blocks.eq(self.skipped),
                after.top.eq(0),
                after.reads.eq(0),
                after.index.eq(self.row.index + (self.change == StateChange.PASS)),
                after.phase.eq(Phase.BETWEEN),
            ]
            with m.Switch(self.change):
                with m.Case(StateChange.RESET):
                    m.d.comb += after.index.eq(self.operand)
                with m.Case(StateChange.HALT):
                    m.d.comb += after.phase.eq(Phase.HALTED)
                with m.Case(StateChange.GIVE_UP):
                    m.d.comb += after.index.eq(self.target)
                with m.Case(StateChange.REWIND):
                    m.d.comb += after.phase.eq(Phase.REWINDING)
                with m.Case(StateChange.REWOUND):
                    m.d.comb += [after.phase.eq(Phase.RESUME), after.index.eq(self.operand)]
                with m.Case(StateChange.PASS):
                    m.d.comb += after.phase.eq(Phase.RESUME)
                with m.Case(StateChange.RESUME):
                    m.d.comb += after.phase.eq(Mux(self.skipped != 0, Phase.MIDDLE, Phase.BETWEEN))
        return m
