"""Where a send queue stands, and what happens to that besides the cutting of packets."""

from amaranth.hdl import Module
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .psn import PSN_BITS

__all__ = ["SendState", "StateChange", "StateChanger"]

SendState = data.StructLayout(
    {
        "index": 16,  # WQE being sent, or next
        "psn": PSN_BITS,  # next packet
        "middle": 1,  # the message has begun; if not, the four fields below are undefined
        "seek": 1,  # going on inside of a message that was begun before: `offset` counts from the message's first byte
        "remaining": 31,  # without `seek`: bytes of the message still to be cut, not more than 2**31 - 256
        "sge": 3,  # entry that holds the next byte; with `seek` 0
        "offset": 32,  # of that byte in the entry
        "halted": 1,  # a WQE was malformed: nothing more until RESET or a retry
        "top": 16,  # first WQE that was never begun, that is of which `outstanding` was not told
        "top_psn": PSN_BITS,  # first PSN never sent
        "resume": 1,  # `index` and `psn` do not fit together: go on at the first packet that is not acknowledged
        "rewinding": 1,  # the ring is being rewound: wait
        "reads": 8,  # READs and atomics begun, free-running
    }
)
"""Where a QP's send queue stands: 159 bits, five block RAMs."""


class StateChange(enum.Enum):
    """What changes a state, besides a packet. After any of them but ``RESUME`` no message is in its middle."""

    RESET = 0  # all is zero
    START = 1  # PSN `operand` is the first
    HALT = 2
    GIVE_UP = 3  # all before `target`
    REWIND = 4
    REWOUND = 5  # to index `operand`
    PASS = 6  # over a WQE that is complete
    RESUME = 7  # at PSN `unacked`, behind `skipped` bytes


class StateChanger(wiring.Component):
    """The state after a change; combinational.

    Members
    -------
    state, change : ``SendState``, ``StateChange``
    operand, target, unacked, skipped : 24, 16, 24, 32
        As the change says.
    following : 16
        The index after the state's.
    next : ``SendState``
        Without ``remaining``.
    """

    def __init__(self):
        super().__init__(
            {
                "state": In(SendState),
                "change": In(StateChange),
                "operand": In(PSN_BITS),
                "target": In(16),
                "unacked": In(PSN_BITS),
                "skipped": In(32),
                "following": Out(16),
                "next": Out(SendState),
            }
        )

    def elaborate(self, platform):
        m = Module()
        state, after = self.state, self.next
        m.d.comb += [
            self.following.eq(state.index + 1),
            after.eq(state),
            after.middle.eq(0),
            after.seek.eq(1),
            after.sge.eq(0),
            after.offset.eq(self.skipped),
        ]
        with m.Switch(self.change):
            with m.Case(StateChange.RESET):
                m.d.comb += after.eq(0)
            with m.Case(StateChange.START):
                m.d.comb += [after.psn.eq(self.operand), after.top_psn.eq(self.operand), after.resume.eq(0)]
            with m.Case(StateChange.HALT):
                m.d.comb += after.halted.eq(1)
            with m.Case(StateChange.GIVE_UP):
                m.d.comb += [after.index.eq(self.target), after.resume.eq(0)]
            with m.Case(StateChange.REWIND):
                m.d.comb += [after.rewinding.eq(1), after.halted.eq(0)]
            with m.Case(StateChange.REWOUND):
                m.d.comb += [after.index.eq(self.operand), after.rewinding.eq(0), after.resume.eq(1)]
            with m.Case(StateChange.PASS):
                m.d.comb += after.index.eq(self.following)
            with m.Case(StateChange.RESUME):
                m.d.comb += [after.psn.eq(self.unacked), after.middle.eq(self.skipped != 0), after.resume.eq(0)]
        return m
