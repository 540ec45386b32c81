"""The keeper of slots: a slot is not given away while its QP may not leave it, and no state of a QP is lost."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.context.directory import Directory
from verbena.hdl.control.slot_keeper import SlotKeeper

QPS, SLOTS = 4, 2
DEPTH = 46
WAKE = 4
MOVES = 3
"""Cycles that a record is on its way, at least."""


class Lives(wiring.Component):
    """A keeper and its directory; commands, packets, those that are wanted and those that are to leave come at any
    time. Owners and memory answer after any time, memory also by an error. READs of a peer begin and end at any time,
    but none begins of a QP that is closed.

    For each QP stands what would be lost: it ``exists``; the state in memory is that with which it left (``safe``), or
    known to be none (``broken``).
    """

    def __init__(self):
        self.keeper = SlotKeeper(QPS, SLOTS, users=1, forced=True)
        index = range(QPS)
        super().__init__(
            {
                "commands": In(1),
                "command_index": In(index),
                "creates": In(1),
                "packet": In(1),
                "packet_index": In(index),
                "wanted": In(1),
                "wanted_index": In(index),
                "evicts": In(1),
                "evicted": In(range(SLOTS)),
                "grants": In(1),
                "answers": In(8),
                "pins": In(SLOTS),
                "fails": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.keeper = keeper = self.keeper
        m.submodules.directory = directory = Directory(QPS, SLOTS, 1)
        wiring.connect(m, keeper.ask, directory.ask[0])
        fills, ends_write, ends_read, taken, opens, reports, over, busy = self.answers
        m.d.comb += [
            keeper.answered.eq(directory.answered),
            keeper.row.eq(directory.row),
            keeper.changed.eq(directory.changed),
            directory.write.eq(keeper.place),
            directory.index.eq(keeper.place_index),
            directory.new.eq(keeper.new),
        ]
        awake = Signal(range(WAKE + 1))
        m.d.sync += awake.eq(awake + (awake != WAKE))

        # -- Who asks: a command until it is done, one that is to leave until it has left.
        asks, asked, create = Signal(), Signal(range(QPS)), Signal()
        leaving, slot = Signal(), Signal(range(SLOTS))
        m.d.comb += [
            keeper.bring.eq(asks),
            keeper.bring_index.eq(asked),
            keeper.bring_create.eq(create),
            keeper.packet.eq(self.packet & (awake == WAKE)),
            keeper.packet_index.eq(self.packet_index),
            keeper.wanted.valid.eq(self.wanted & (awake == WAKE)),
            keeper.wanted.payload.eq(self.wanted_index),
            keeper.evict.valid.eq(leaving),
            keeper.evict.payload.eq(slot),
            keeper.grant.eq(self.grants),
        ]
        with m.If(~asks):
            m.d.sync += [asks.eq(self.commands & (awake == WAKE)), asked.eq(self.command_index)]
            m.d.sync += create.eq(self.creates)
        with m.Elif(keeper.done & keeper.brought):
            m.d.sync += asks.eq(0)
        with m.If(~leaving):
            m.d.sync += [leaving.eq(self.evicts & (awake == WAKE)), slot.eq(self.evicted)]
        with m.Elif(keeper.evict.ready):
            m.d.sync += leaving.eq(0)

        # -- Owners: READs of the peer, and what they give away and get back.
        shut = Cat(keeper.closed & (keeper.closed_qp == number) for number in range(SLOTS))
        held, earlier, serving = Signal(SLOTS), Signal(SLOTS), Signal()  # pins a cycle ago, and two
        assume(m, (self.pins & ~held & shut) == 0)
        m.d.sync += [held.eq(self.pins), earlier.eq(held), serving.eq(held.bit_select(keeper.closed_qp, 1))]
        collecting, full = Signal(), Signal()
        m.d.sync += [
            collecting.eq((collecting | keeper.collect) & ~keeper.write),
            full.eq((full | (collecting & fills)) & ~keeper.write & ~keeper.collect),
        ]
        m.d.comb += [
            keeper.serving.eq(serving),
            keeper.full.eq(full),
            keeper.opens.eq(opens),
            keeper.reports.eq(reports),
            keeper.moves.eq(1),
            keeper.completed.eq(over),
            keeper.attributes_busy.eq(busy),
            keeper.room.eq(1),
            keeper.token.ready.eq(taken),
            *(port.ready.eq(1) for port in (keeper.want, keeper.timers, keeper.sq_ring, keeper.rq_ring)),
            keeper.event.ready.eq(taken),
        ]

        # -- Memory: one record goes there, and one comes from there.
        writing, written, write_age, failed = Signal(), Signal(range(QPS)), Signal(range(MOVES + 1)), Signal()
        reading, came, read_age, bad, whole = Signal(), Signal(range(QPS)), Signal(range(MOVES + 1)), Signal(), Signal()
        write_ends, read_ends = (
            moving & ends & (age == MOVES)
            for moving, age, ends in ((writing, write_age, ends_write), (reading, read_age, ends_read))
        )
        m.d.sync += [
            writing.eq(keeper.write | (writing & ~write_ends)),
            write_age.eq(Mux(keeper.write, 0, write_age + (write_age != MOVES))),
            reading.eq(keeper.read | (reading & ~read_ends)),
            read_age.eq(Mux(keeper.read, 0, read_age + (read_age != MOVES))),
        ]
        with m.If(keeper.write):
            m.d.sync += written.eq(keeper.write_index)
        with m.If(writing & (write_age == 1)):
            m.d.sync += failed.eq(0)
        with m.If(write_ends):
            m.d.sync += failed.eq(self.fails)
        with m.If(keeper.read):
            m.d.sync += [came.eq(keeper.read_index), whole.eq(keeper.whole)]
        with m.If(read_ends):
            m.d.sync += bad.eq(self.fails)
        m.d.comb += [
            keeper.writing.eq(writing),
            keeper.write_failed.eq(failed),
            keeper.written_index.eq(written),
            keeper.reading.eq(reading),
            keeper.bad.eq(bad),
        ]

        # -- What would be lost.
        exists, safe, broken = (
            Array(Signal(name=f"{name}_{qp}") for qp in range(QPS)) for name in ("exists", "safe", "broken")
        )
        here = Array(Signal(name=f"here_{slot}") for slot in range(SLOTS))
        who = Array(Signal(range(QPS), name=f"who_{slot}") for slot in range(SLOTS))
        at = keeper.closed_qp[: len(slot)]
        placed, row, place = keeper.place_index, keeper.new, keeper.place
        comes = place & row.here
        creates = comes & ~here[row.slot]
        with m.If(write_ends):
            with m.If(self.fails):
                m.d.sync += broken[written].eq(1)
            with m.Else():
                m.d.sync += safe[written].eq(1)
        with m.If(read_ends & whole & self.fails):
            m.d.sync += broken[came].eq(1)
        with m.If(keeper.back):
            m.d.sync += [here[at].eq(1), who[at].eq(came), safe[came].eq(0)]
        with m.If(creates):
            m.d.sync += [here[row.slot].eq(1), who[row.slot].eq(placed), exists[placed].eq(1)]
            m.d.sync += [safe[placed].eq(0), broken[placed].eq(0)]
        with m.If(place & ~row.here):
            for number in range(SLOTS):
                with m.If(who[number] == placed):
                    m.d.sync += here[number].eq(0)
            with m.If(~row.known):
                m.d.sync += exists[placed].eq(0)

        # -- A slot.
        claim(m, "pinned", ~keeper.collect | ~earlier.bit_select(keeper.closed_qp, 1))
        claim(m, "given", ~keeper.back | ~here[at] | (who[at] == came))
        claim(m, "placed", ~comes | creates | (who[row.slot] == placed))
        claim(m, "created", ~creates | ~exists[placed])
        claim(m, "once", ~(here[0] & here[1] & (who[0] == who[1])))
        # -- A record.
        claim(m, "collected", ~keeper.collect | (here[at] & ~writing))
        claim(m, "complete", ~keeper.write | (full & ~writing & here[at] & (who[at] == keeper.write_index)))
        claim(
            m,
            "read",
            ~keeper.read | ~(reading | (writing & (written == keeper.read_index) & keeper.whole) | keeper.write),
        )
        claim(m, "loaded", ~keeper.back | (safe[came] & whole & ~reading & ~bad))
        claim(m, "reported", ~keeper.event.valid | broken[keeper.event.payload.number[:2]])
        claim(m, "forgotten", ~(place & ~row.here & ~row.known & exists[placed]) | broken[placed])
        for qp in range(QPS):
            slots = Cat(here[number] & (who[number] == qp) for number in range(SLOTS)).any()
            claim(m, f"kept_{qp}", ~exists[qp] | slots | safe[qp] | broken[qp] | (writing & (written == qp)))
        away = place & ~row.here & row.known
        left = Signal()
        with m.If(away):
            m.d.sync += left.eq(1)
        reach(m, "left", left)
        reach(m, "returned", keeper.back & here[at])
        reach(m, "came_back", keeper.back & ~here[at])
        reach(m, "lost", keeper.event.valid)
        reach(m, "spared", keeper.evict_skip & earlier.any())
        return m


def test_it_holds(tmp_path):
    verdict = prove(Lives(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Lives(), tmp_path, DEPTH).holds


def test_a_record_that_is_read_while_it_is_written_is_found(tmp_path, monkeypatch):
    """Nobody looks whether it is on its way to memory."""
    assign = Signal.eq

    def forget(self, value, *args, **kwargs):
        return assign(self, 0 if self.name == "coming" else value, *args, **kwargs)

    monkeypatch.setattr(Signal, "eq", forget)
    assert "read" in prove(Lives(), tmp_path, DEPTH).names
