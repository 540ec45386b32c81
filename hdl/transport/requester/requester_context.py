"""Where each send queue stands, and what happens to that besides the cutting of packets."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..common.psn import PSN_BITS

__all__ = ["BLOCK", "BLOCKS_BITS", "Phase", "RequesterContext", "RequesterContextUpdate", "StateChange"]


class Phase(enum.Enum, shape=3):
    """What the next turn finds."""

    BETWEEN = 0  # the message at `index` is to be sent from its beginning
    MIDDLE = 1  # it has begun
    RESUME = 2  # `index` and `psn` do not fit together: go on at the first packet that is not acknowledged
    REWINDING = 3  # the ring is being rewound: wait
    HALTED = 4  # a WQE was malformed: nothing more until RESET or a retry
    OPERATING = 5  # as BETWEEN, once the operation on a key is complete that the WQE before `index` asked for


BLOCK = 256
"""Bytes. A packet that does not end its message has as many, or several times as many."""

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
        "draining": 1,  # no message is to be begun
        "stopped": 1,  # no turn has any effect: the QP is on its way out, or none is here
    }
)
"""The requester's state of a QP: the WQE and the PSN of the next packet."""


class StateChange(enum.Enum):
    """What changes a state, besides a packet."""

    RESET = 0  # all is zero; `operand` must be, too
    START = 1  # PSN `operand` is the first, and the WQE at `index` was never begun
    HALT = 2
    GIVE_UP = 3  # all before `target`
    REWIND = 4
    REWOUND = 5  # to index `operand`
    PASS = 6  # over a WQE that is complete, to index `target`
    RESUME = 7  # at PSN `unacked`, behind `skipped` blocks
    DRAIN = 8
    DRAIN_ENDS = 9
    STOP = 10
    STOP_ENDS = 11
    LOAD = 12  # all is as in `loaded`


class RequesterContextUpdate(wiring.Component):
    """Combinational: a state after a change.

    With ``swaps`` a QP is stopped after RESET, too, until START or STOP_ENDS: so its place is ready for another one.

    Parameters
    ----------
    swaps : bool
        There are STOP, STOP_ENDS and LOAD.

    Members
    -------
    state, o : ``RequesterContext``
        Before and after it.
    change : ``StateChange``
    operand, target, unacked, skipped : 24, 16, 24, 23
        As the change says.
    loaded : ``RequesterContext``
        With ``swaps``.
    """

    def __init__(self, *, swaps=False):
        self.swaps = swaps
        super().__init__(
            {
                "state": In(RequesterContext),
                "o": Out(RequesterContext),
                "change": In(StateChange),
                "operand": In(PSN_BITS),
                "target": In(16),
                "unacked": In(PSN_BITS),
                "skipped": In(BLOCKS_BITS),
            }
            | ({"loaded": In(RequesterContext)} if swaps else {})
        )

    def elaborate(self, platform):
        m = Module()
        state, after, change = self.state, self.o, self.change
        m.d.comb += [after.eq(state), after.phase.eq(Phase.BETWEEN), after.blocks.eq(self.skipped)]
        with m.Switch(change):
            with m.Case(StateChange.RESET, StateChange.START):
                m.d.comb += [after.psn.eq(self.operand), after.top_psn.eq(self.operand), after.draining.eq(0)]
                with m.If(change == StateChange.RESET):
                    m.d.comb += [after.index.eq(self.operand), after.top.eq(0), after.reads.eq(0)]
                with m.Else():
                    m.d.comb += after.top.eq(state.index)
            with m.Case(StateChange.HALT):
                m.d.comb += after.phase.eq(Phase.HALTED)
            with m.Case(StateChange.GIVE_UP):
                m.d.comb += [after.index.eq(self.target), after.draining.eq(0)]
            with m.Case(StateChange.REWIND):
                m.d.comb += after.phase.eq(Phase.REWINDING)
            with m.Case(StateChange.REWOUND):
                m.d.comb += [after.phase.eq(Phase.RESUME), after.index.eq(self.operand)]
            with m.Case(StateChange.PASS):
                m.d.comb += [after.phase.eq(Phase.RESUME), after.index.eq(self.target)]
            with m.Case(StateChange.RESUME):
                m.d.comb += [
                    after.phase.eq(Mux(self.skipped != 0, Phase.MIDDLE, Phase.BETWEEN)),
                    after.psn.eq(self.unacked),
                ]
            with m.Case(StateChange.DRAIN, StateChange.DRAIN_ENDS):
                m.d.comb += [
                    after.phase.eq(state.phase),
                    after.blocks.eq(state.blocks),
                    after.draining.eq(change == StateChange.DRAIN),
                ]
            if self.swaps:
                with m.Case(StateChange.STOP, StateChange.STOP_ENDS):
                    m.d.comb += [after.eq(state), after.stopped.eq(change == StateChange.STOP)]
                with m.Case(StateChange.LOAD):
                    m.d.comb += after.eq(self.loaded)
        if self.swaps:
            with m.If((change == StateChange.RESET) | (change == StateChange.START)):
                m.d.comb += after.stopped.eq(change == StateChange.RESET)
        return m
