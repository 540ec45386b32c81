"""The store: a write-back is never lost, whatever is given up and fetched again meanwhile."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In
from prover import assume, claim, cover, prove, reach
from verbena.hdl.abi.qpc import ContextRecord, Owned
from verbena.hdl.context.layout import SlotLayout
from verbena.hdl.context.store import ContextStore

QPN_BITS = 2
SLOTS = 4
BITS = 2
DEPTH = 13
"""4 cycles until the store is awake, a write-back and its answer, and jobs that come meanwhile."""

WHOLE = 18
"""Until the same context can be fetched again."""

RECORD = ContextRecord("tiny", 0, {"state": "a"}, {0: [[Owned("state_value", BITS, part="state")]]}, "")
LAYOUT = SlotLayout(RECORD, (), {"state": data.StructLayout({"value": BITS})}, 1)
WIDTH = 512


class Table(wiring.Component):
    """Jobs for a store, and one write-back that is followed, chosen freely: ``follow``.

    Assumed of the jobs, as the directory has it: what is written back of a slot is there, so no fetch into it is under
    way; and a QPN that is written back is not fetched at that time. The bank answers a read 3 cycles later, the bus
    answers in order, when it likes. Which jobs come, and what the slots hold, is free.
    """

    valid: In(1)
    slot: In(range(SLOTS))
    qpn: In(QPN_BITS)
    old: In(QPN_BITS)
    dirty: In(1)
    fetch: In(1)
    follow: In(1)
    back_ready: In(1)
    content: In(BITS)
    read_ready: In(1)
    data_valid: In(1)
    write_ready: In(1)
    beat_ready: In(1)
    answers: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = dut = ContextStore(LAYOUT, SLOTS, data_width=WIDTH, qpn_bits=QPN_BITS, jobs=2, fetches=2)
        job = dut.job.payload
        waits = Signal()
        given = Signal(job.shape())
        m.d.sync += [waits.eq(dut.job.valid & ~dut.job.ready), given.eq(job)]
        m.d.comb += [dut.job.valid.eq(self.valid | waits), dut.fill.ready.eq(1), dut.error.ready.eq(1)]
        with m.If(waits):
            m.d.comb += job.eq(given)
        with m.Else():
            m.d.comb += [
                job.slot.eq(self.slot),
                job.qpn.eq(self.qpn),
                job.old.eq(self.old),
                job.dirty.eq(self.dirty),
                job.fetch.eq(self.fetch),
            ]
        accepted = dut.job.valid & dut.job.ready

        # Of each slot the QPN fetched into it that has not come, and whether somebody has it.
        coming = [Signal(range(4), name=f"coming{slot}") for slot in range(SLOTS)]
        for slot in range(SLOTS):
            comes, fills = accepted & job.fetch & (job.slot == slot), dut.filled.valid & (dut.filled.slot == slot)
            m.d.sync += coming[slot].eq(coming[slot] + comes - fills)
            assume(m, ~(dut.job.valid & (job.slot == slot) & (coming[slot] != 0)))
        assume(m, ~(dut.job.valid & job.dirty.any() & job.fetch & (job.qpn == job.old)))
        assume(m, ~(dut.job.valid & job.dirty.any() & ~job.fetch & (job.qpn != job.old)))

        # -- The bank: what it reads 3 cycles after it was asked.
        going = Signal(3)
        held = Signal(BITS)
        begins = dut.back_en & dut.back_ready
        m.d.sync += going.eq(going << 1 | begins)
        m.d.comb += [
            dut.back_ready.eq(self.back_ready),
            dut.back_valid.eq(going[2]),
            dut.back_data.eq(self.content),
        ]

        # -- The bus.
        asked, sent, written = (Signal(range(8), name=name) for name in ("asked", "sent", "written"))
        reads, came = Signal(range(8)), Signal(range(8))
        read, write = dut.read.valid & dut.read.ready, dut.write.valid & dut.write.ready
        beat, answer = dut.write_data.valid & dut.write_data.ready, dut.done.valid & dut.done.ready
        m.d.sync += [
            asked.eq(asked + write),
            sent.eq(sent + beat),
            written.eq(written + answer),
            reads.eq(reads + read),
            came.eq(came + (dut.data.valid & dut.data.ready)),
        ]
        m.d.comb += [
            dut.read.ready.eq(self.read_ready),
            dut.data.valid.eq(self.data_valid & (reads != came)),
            dut.data.payload.last.eq(1),
            dut.data.payload.count.eq(WIDTH // 8),
            dut.write.ready.eq(self.write_ready),
            dut.write_data.ready.eq(self.beat_ready & (asked != sent)),
            dut.done.valid.eq(self.answers & (sent != written)),
        ]

        # -- The write-back that is followed, from its job to its answer.
        followed, number, over, earlier = Signal(), Signal(QPN_BITS), Signal(), Signal(range(4))
        marks = accepted & job.dirty.any() & self.follow & ~followed
        first_back, before_it = Signal(), Signal(range(8))  # its rows have been asked for; write-backs before it
        saves = Signal(range(8))  # accepted, and not asked for
        m.d.sync += saves.eq(saves + (accepted & job.dirty.any()) - begins)
        mine = followed & ~first_back & (before_it == 0) & begins
        reading, value, place = Signal(), Signal(BITS), Signal(range(8))
        with m.If(marks):
            m.d.sync += [followed.eq(1), number.eq(job.old), before_it.eq(saves - begins)]
        with m.Elif(followed & ~first_back & begins):
            m.d.sync += before_it.eq(before_it - 1)
        with m.If(mine):
            m.d.sync += [first_back.eq(1), reading.eq(1)]
        with m.If(reading & going[2]):
            m.d.sync += [reading.eq(0), value.eq(self.content), held.eq(1)]
        # Write-backs are asked for one at a time, so its request is the next one.
        requested = Signal()
        with m.If(held[0] & ~requested & write):
            m.d.sync += [requested.eq(1), place.eq(asked)]
        address = dut.write.payload.address
        claim(m, "address", ~(held[0] & ~requested & write) | (address[10 : 10 + QPN_BITS] == number))
        its_beat = requested & beat & (sent == place)
        claim(m, "content", ~its_beat | (dut.write_data.payload.data[:BITS] == value))
        with m.If(requested & answer & (written == place)):
            m.d.sync += over.eq(1)

        # -- Who sees memory of that QPN after it: fetches and saves whose jobs came behind.
        of_it = job.qpn == Mux(followed, number, job.old)
        passed = dut.read.payload.address[10 : 10 + QPN_BITS] == number
        old_fetches, counts = [], []
        for qpn in range(1 << QPN_BITS):
            count = Signal(range(8), name=f"fetches{qpn}")
            issues = read & (dut.read.payload.address[10 : 10 + QPN_BITS] == qpn)
            m.d.sync += count.eq(count + (accepted & job.fetch & (job.qpn == qpn)) - issues)
            counts.append(count)
            old_fetches.append(Mux(job.old == qpn, count - issues, 0))
        with m.If(marks):
            m.d.sync += earlier.eq(sum(old_fetches))
        with m.Elif(followed & read & passed & (earlier != 0)):
            m.d.sync += earlier.eq(earlier - 1)
        claim(m, "older", ~(followed & read & passed & (earlier == 0)) | over)
        # `saved` is of the oldest job without `fetch`.
        save_jobs, saves_before, follows = Signal(range(4)), Signal(range(4)), Signal()
        m.d.sync += save_jobs.eq(save_jobs + (accepted & ~job.fetch) - dut.saved)
        closes = accepted & ~job.fetch & followed & of_it & ~follows
        with m.If(closes | (marks & ~job.fetch)):
            m.d.sync += [follows.eq(1), saves_before.eq(save_jobs - dut.saved)]
        with m.Elif(follows & dut.saved & (saves_before != 0)):
            m.d.sync += saves_before.eq(saves_before - 1)
        claimed = Signal()
        with m.If(follows & dut.saved & (saves_before == 0)):
            m.d.sync += claimed.eq(1)
        claim(m, "saved", ~(follows & ~claimed & dut.saved & (saves_before == 0)) | over)
        reach(m, "answered", over & (counts[0] == Const(0)))
        reach(m, "fetched_again", followed & over & read & passed)
        reach(m, "saved", follows & dut.saved & over)
        return m


def test_it_holds(tmp_path):
    verdict = prove(Table(), tmp_path, DEPTH)
    assert verdict.holds, verdict.log


def test_it_is_reached(tmp_path):
    assert cover(Table(), tmp_path, WHOLE).holds


def test_a_fetch_that_does_not_wait_for_the_write_back_is_found(tmp_path, monkeypatch):
    assign = Signal.eq

    def hurry(self, value, *args, **kwargs):
        return assign(self, 0 if self.name == "unsaved" else value, *args, **kwargs)

    monkeypatch.setattr(Signal, "eq", hurry)
    assert {"older", "saved"} & set(prove(Table(), tmp_path, DEPTH).names)
