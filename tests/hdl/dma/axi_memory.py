"""Memory behind AXI4 for Amaranth's simulator: latency, stalls, IDs in random order, errors; it checks the rules."""

from collections import deque

from streams import changes

__all__ = ["AxiMemory", "SparseMemory"]

PAGE = 4096


class SparseMemory:
    """Bytes at 64-bit addresses; a byte never written has a value that depends on its address."""

    def __init__(self):
        self.bytes = {}

    @staticmethod
    def untouched(address):
        return (address * 167 + (address >> 8) * 59 + (address >> 24) * 7) & 0xFF

    def read(self, address, length):
        return bytes(self.bytes.get(a, self.untouched(a)) for a in range(address, address + length))

    def write(self, address, data):
        self.bytes.update(zip(range(address, address + len(data)), data))


class AxiMemory:
    """Background testbench ``run`` for the port ``axi``.

    Parameters
    ----------
    axi : interface of ``Axi4``
    rng : random.Random
    latency, answer : int
        Cycles from AR to the first R, and from the last W to B.
    stall : float
        Probability that a channel rests in a cycle.
    shuffle : bool
        IDs overtake one another, R beats of several IDs are interleaved.
    broken : range of addresses, or empty
        Bursts that touch them are answered with SLVERR.
    broken_writes : the same, for writes only
    """

    def __init__(self, axi, rng, *, latency=128, answer=32, stall=0.0, shuffle=True, broken=(), broken_writes=()):
        self.axi = axi
        self.rng = rng
        self.latency = latency
        self.answer = answer
        self.stall = stall
        self.shuffle = shuffle
        self.broken = broken
        self.broken_writes = broken_writes
        self.memory = SparseMemory()
        self.written = {}  # address -> times written
        self.reads = []  # (cycle of ARVALID, id, address, beats)
        self.writes = []  # (cycle, id, address, beats)
        self.beats = []  # cycle of each R beat
        self.w_beats = []  # cycle of each W beat
        self.now = 0
        self.unanswered = 0
        self.most_unanswered = 0
        self.most_reads = 0

    def fails(self, address, size, writing=False):
        ranges = (self.broken, self.broken_writes) if writing else (self.broken,)
        return any(len(r) and address < r[-1] + 1 and address + size > r[0] for r in ranges)

    def check(self, address, beats, size, kind):
        assert kind == 1, "INCR only"
        assert size == self.bytes_per_beat.bit_length() - 1
        assert address % self.bytes_per_beat == 0
        last = address + beats * self.bytes_per_beat - 1
        assert address // PAGE == last // PAGE, f"burst at {address:#x} of {beats} beats crosses 4 KiB"

    async def run(self, ctx):
        axi, rng = self.axi, self.rng
        self.bytes_per_beat = size = axi.signature.data_width // 8
        reads, answers = {}, {}  # id -> deque of [due, ...]
        to_write, beats_in = deque(), []
        r_held = b_held = False
        stable, put = {}, changes(ctx)

        def rests():
            return self.stall and rng.random() < self.stall

        edges = aiter(ctx.tick().sample(
            axi.arvalid, axi.arready, axi.arid, axi.araddr, axi.arlen, axi.arsize, axi.arburst,
            axi.awvalid, axi.awready, axi.awid, axi.awaddr, axi.awlen, axi.awsize, axi.awburst,
            axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast,
            axi.rready, axi.bready, axi.rvalid, axi.bvalid,
        ))  # fmt: skip
        while True:
            put(axi.arready, not rests())
            put(axi.awready, not rests())
            put(axi.wready, not rests())
            if not r_held:
                due = [i for i, q in reads.items() if q and q[0][0] <= self.now]
                if due and not rests():
                    i = rng.choice(due) if self.shuffle else min(due, key=lambda i: reads[i][0][3])
                    entry = reads[i][0]
                    address, left = entry[1], entry[2]
                    bad = self.fails(address, size)
                    put(axi.rvalid, 1)
                    put(axi.rid, i)
                    put(axi.rdata, int.from_bytes(self.memory.read(address, size), "little"))
                    put(axi.rresp, 2 if bad else 0)
                    put(axi.rlast, left == 1)
                    entry[1], entry[2] = address + size, left - 1
                    if left == 1:
                        reads[i].popleft()
                    r_held = True
                else:
                    put(axi.rvalid, 0)
            if not b_held:
                due = [i for i, q in answers.items() if q and q[0][0] <= self.now]
                if due and not rests():
                    i = rng.choice(due) if self.shuffle else due[0]
                    _, bad = answers[i].popleft()
                    put(axi.bvalid, 1)
                    put(axi.bid, i)
                    put(axi.bresp, 3 if bad else 0)
                    b_held = True
                else:
                    put(axi.bvalid, 0)
            (
                _, _, arvalid, arready, arid, araddr, arlen, arsize, arburst,
                awvalid, awready, awid, awaddr, awlen, awsize, awburst,
                wvalid, wready, wdata, wstrb, wlast, rready, bready, rvalid, bvalid,
            ) = await anext(edges)  # fmt: skip
            for name, valid, ready, value in (
                ("AR", arvalid, arready, (arid, araddr, arlen)),
                ("AW", awvalid, awready, (awid, awaddr, awlen)),
                ("W", wvalid, wready, (wdata, wstrb, wlast)),
            ):
                if name in stable:
                    assert valid, f"{name}VALID fell before it was taken"
                    assert stable[name] == value, f"{name} changed before it was taken"
                stable.pop(name, None)
                if valid and not ready:
                    stable[name] = value
            if arvalid and arready:
                self.check(araddr, arlen + 1, arsize, arburst)
                self.reads.append((self.now, arid, araddr, arlen + 1))
                late = rng.randrange(self.latency // 4 + 1) if self.shuffle else 0
                reads.setdefault(arid, deque()).append([self.now + self.latency + late, araddr, arlen + 1, self.now])
                self.most_reads = max(self.most_reads, sum(map(len, reads.values())))
            if awvalid and awready:
                self.check(awaddr, awlen + 1, awsize, awburst)
                self.writes.append((self.now, awid, awaddr, awlen + 1))
                to_write.append((awid, awaddr, awlen + 1, False))
                self.unanswered += 1
                self.most_unanswered = max(self.most_unanswered, self.unanswered)
            if wvalid and wready:
                beats_in.append((wdata, wstrb, wlast))
                self.w_beats.append(self.now)
            while to_write and beats_in:
                i, address, left, bad = to_write[0]
                bad = bad or self.fails(address, size, writing=True)
                wdata, wstrb, wlast = beats_in.pop(0)
                assert wlast == (left == 1), "WLAST"
                for lane in range(size):
                    if wstrb >> lane & 1:
                        self.memory.write(address + lane, bytes([wdata >> 8 * lane & 0xFF]))
                        self.written[address + lane] = self.written.get(address + lane, 0) + 1
                to_write[0] = (i, address + size, left - 1, bad)
                if left == 1:
                    to_write.popleft()
                    late = rng.randrange(self.answer // 2 + 1) if self.shuffle else 0
                    answers.setdefault(i, deque()).append((self.now + self.answer + late, bad))
            if rvalid:
                assert rready, "RREADY must always be 1"
                r_held = False
                self.beats.append(self.now)
            if bvalid:
                assert bready, "BREADY must always be 1"
                b_held = False
                self.unanswered -= 1
            self.now += 1
