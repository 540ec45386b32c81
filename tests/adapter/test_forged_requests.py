"""Requests of a peer that is not there, honest and forged, and an exact model of what the responder makes of them."""

import os
import struct

import pytest
from ends import End, settle, world
from forger import Forger
from key_ends import bind_2
from raw_peer import IP, MAC, MTU, atomiceth, believe, heard, reth
from responder_model import PSNS, Grant, Memory, Op, Receive, Responder
from rocegram import rc_frame
from streams import make_rng
from verbena.hdl.transport.common.aeth import NO_CREDITS, credit_code
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_wc_status
from verbena.sw.verbs.mr import MR, MW
from verbena.sw.verbs.pd import PD
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.srq import SrqAttr
from verbena.sw.verbs.wr import SGE, RecvWR

FRAMES = [300, pytest.param(2_000, marks=pytest.mark.slow)]
if GIVEN := os.environ.get("VERBENA_FRAMES"):
    FRAMES = [int(GIVEN) // 4]
QPS = 6
BATCH = 25
"""Frames to each queue pair between two looks at what became of them."""
FIRST_QPN = 100
BINDING = 0
"""``wr_id`` of all bindings, which are no receives."""
PLACES, PLACE_BYTES = 60, 2_176
"""Receives that are posted lie apart."""
WRITE_ONLY = 0x0A
READ_ANSWERS, ACKNOWLEDGE, ATOMIC_ANSWER = (0x0D, 0x0E, 0x0F, 0x10), 0x11, 0x12
RNR, GAP = 0x20 | 12, 0x60
"""Syndromes."""
CALM = 30_000 if os.environ.get("VERBENA_SLOTS") or os.environ.get("VERBENA_SWAP_EVERY") else 1_000
"""Cycles after which nothing has happened if nothing will, also where queue pairs wait for a slot."""
S, W = ibv_qp_state, ibv_wc_status


class Region:
    """A region with random content, the memory and the key of the model."""

    def __init__(self, rng, pd, length, access, *, fixed=False):
        self.mr = MR(pd, length, access)
        content = rng.randbytes(length)
        self.mr.write(content, length)
        self.memory = Memory(self.mr.buf, bytearray(content), fixed)
        self.grant = Grant(self.mr.rkey, self.memory, self.mr.buf, length, access)

    def check(self, name):
        difference = self.memory.difference(self.mr.read(self.mr.length, 0))
        assert difference is None, f"{name}: {difference}"


class Ring:
    """Receives of one queue pair, or of all of them."""

    def __init__(self, rng, end, queue):
        self.rng, self.queue = rng, queue
        self.region = Region(rng, end.pd, PLACES * PLACE_BYTES, 1)
        self.receives, self.posted = [], 0

    def refill(self, most):
        rng = self.rng
        for _ in range(len(self.receives), rng.randrange(most)):
            self.posted += 1
            offset, pieces = self.posted % PLACES * PLACE_BYTES, []
            for _ in range(rng.randrange(1, 4)):
                offset += rng.randrange(3)
                pieces.append((offset, rng.choice([0, 1, 3, 8, 100, MTU - 1, MTU, MTU + 1, 2 * MTU, 700])))
                offset += pieces[-1][1]
            mr = self.region.mr
            sges = [SGE(mr.buf + offset, length, mr.lkey) for offset, length in pieces]
            self.queue.post_recv(RecvWR(self.posted, len(sges), sges))
            self.receives.append(Receive(self.posted, self.region.memory, pieces))


class Pair:
    """A queue pair, its peer, and the model of its responder."""

    def __init__(self, rng, end, foreign, number, ring, others):
        self.rng, self.end, self.number = rng, end, number
        self.qp, self.ring, self.others = end.qps[number], ring, others
        self.all_rights = Region(rng, end.pd, 8192, 31)
        read_only = Region(rng, end.pd, 8192, 4, fixed=True)
        write_only, closed = Region(rng, end.pd, 4096, 3), Region(rng, foreign, 4096, 15)
        self.regions = {"all": self.all_rights, "read": read_only, "write": write_only, "foreign": closed}
        if ring.queue is self.qp:
            self.regions["receives"] = ring.region
        self.window = MW(end.pd, 2)
        usable = [region.grant for region in (self.all_rights, read_only, write_only)]
        self.grants = {grant.key: grant for grant in usable}
        self.forger = Forger(rng, *usable, [closed.grant, ring.region.grant], self.windows_of_others)
        self.model, self.found = None, []
        self.revive()

    def windows_of_others(self):
        return [window for pair in self.others if pair is not self for window in pair.model.windows]

    def revive(self):
        """A new life, in which nothing is posted."""
        if self.qp.qp_state != S.IBV_QPS_RESET:
            self.qp.modify(QPAttr(qp_state=S.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        if self.ring.queue is self.qp:
            self.ring.receives.clear()
        psn = self.rng.choice([0, PSNS - 1, PSNS - 4, PSNS // 2 - 1, self.rng.getrandbits(24)])
        believe(self.qp, FIRST_QPN + self.number, psn)
        self.model = Responder(psn, self.ring.receives, self.grants)
        self.told = [f"expects PSN {psn}"]

    def prepare(self):
        """What the next batch needs."""
        if self.model.refusal:
            self.revive()
        self.ring.refill(6 if self.ring.queue is self.qp else 14)
        if not self.model.windows and self.rng.random() < 0.7:
            start, length = self.rng.randrange(3_000), self.rng.randrange(1, 2_000)
            region = self.all_rights
            key = bind_2(self.end, self.window, start, length, mr=region.mr, qp=self.qp, wr_id=BINDING)
            self.grants[key] = Grant(key, region.memory, region.mr.buf + start, length, 6, window=True)
        self.model.due.clear()
        self.model.repeated = False
        self.forger.reads = 0

    def request(self):
        """The next request; what must come of it is known then."""
        request = self.forger.next(self.model)
        self.told.append(f"PSN {request.psn}: {request}: {self.model.take(request)}")
        return request

    # -- What is found when all is quiet.

    def check(self, answers):
        model = self.model
        for answer in answers:
            self.check_answer(answer)
        if not model.repeated:
            answered = {answer.psn for answer in answers if answer.opcode != ACKNOWLEDGE}
            assert model.due <= answered, f"READs and atomics not answered: PSNs {model.due - answered}"
        naks = [(a.syndrome, a.psn) for a in answers if a.opcode == ACKNOWLEDGE and a.syndrome > GAP]
        state = self.qp.query()[0].qp_state
        good, model.completions = model.completions, []
        rest = self.found[len(good) :]
        if model.refusal:
            assert naks == [model.refusal], f"NAKs {naks}, expected {model.refusal}"
            assert state == S.IBV_QPS_ERR
            self.check_flushed(rest)
        else:
            assert naks == [], f"NAKs {naks}, none expected"
            assert state == S.IBV_QPS_RTS
            assert rest == [], f"completions too many: {rest}"
            self.check_place(answers[-1] if answers else None)
        for wc, wanted in zip(self.found, good, strict=False):
            got = wc.wr_id, int(wc.opcode), wc.byte_len, wc.imm_data if wanted[3] is not None else None
            assert (wc.status, got) == (W.IBV_WC_SUCCESS, wanted), f"completion {wc}, expected {wanted}"
        assert len(self.found) >= len(good), f"no completion {good[len(self.found)]}"
        self.found.clear()
        for name, region in self.regions.items():
            region.check(name)

    def check_answer(self, answer):
        model, length = self.model, len(answer.payload)
        if answer.opcode in READ_ANSWERS:
            data, wanted = model.reads.get(answer.psn, (None, None))
            if length != wanted and (answer.psn, length) in model.repeats:
                return
            assert length == wanted, f"{length} bytes of READ at PSN {answer.psn}, expected {wanted}"
            assert data in (None, answer.payload), f"{answer.payload.hex()} at PSN {answer.psn}, expected {data.hex()}"
        elif answer.opcode == ATOMIC_ANSWER:
            found, wanted = int.from_bytes(answer.payload, "big"), model.atomics.get(answer.psn)
            assert found == wanted, f"{found} of an atomic at PSN {answer.psn}, expected {wanted}"
        else:
            assert answer.opcode == ACKNOWLEDGE, f"answered by opcode {answer.opcode:#x}"
            assert answer.syndrome >> 5 in (0, 3) or answer.syndrome == RNR, f"syndrome {answer.syndrome:#x}"
        if answer.aeth and (answer.syndrome, answer.psn) == model.refusal:
            self.check_msn(answer)

    def check_msn(self, answer):
        msn = int.from_bytes(answer.aeth[1:], "big")
        assert msn == self.model.msn, f"MSN {msn} at PSN {answer.psn}, expected {self.model.msn}"

    def check_place(self, last):
        """The last answer is to a packet that asked where the responder stands."""
        model = self.model
        assert last is not None, "nothing is answered"
        assert (last.opcode, last.psn) == (ACKNOWLEDGE, (model.psn - 1) % PSNS), f"{last}, expected PSN {model.psn} - 1"
        self.check_msn(last)
        credits = NO_CREDITS
        if self.ring.queue is self.qp:
            credits = credit_code(len(model.receives) + bool(model.held))
        assert last.aeth[0] == credits, f"credits {last.aeth[0]}, expected {credits}"

    def check_flushed(self, rest):
        left = [self.model.held] if self.model.held else []
        if self.ring.queue is self.qp:
            left += self.model.receives
        found, wanted = [wc.wr_id for wc in rest], [receive.wr_id for receive in left]
        assert found == wanted, f"ended with receives {found}, expected {wanted}"
        for place, wc in enumerate(rest):
            blamed = self.model.blamed and place == 0
            assert wc.status != W.IBV_WC_SUCCESS, wc
            assert (wc.status != W.IBV_WC_WR_FLUSH_ERR) == blamed, f"{wc}, {'not ' * blamed}to be flushed"


class Peers:
    """The peers of all queue pairs of ``end``."""

    def __init__(self, rng, end):
        self.rng, self.end = rng, end
        port = end.context._adapter.port
        port.add_neighbour(IP, MAC)
        self.tap, self.adapter = world().tap(MAC), world().adapters[1]
        self.own = self.adapter.mac, port.ip
        foreign, self.pairs = PD(end.context), []
        self.shared = Ring(rng, end, end.srq) if end.srq else None
        for number, qp in enumerate(end.qps):
            ring = self.shared or Ring(rng, end, qp)
            self.pairs.append(Pair(rng, end, foreign, number, ring, self.pairs))

    def send(self, pair, opcode, psn, body, ack=1):
        self.adapter.inject(rc_frame((MAC, IP), self.own, pair.qp.qp_num, psn, opcode, body, ack=ack))

    def calm(self):
        """Waits for the end of all that is going on."""
        before, now = None, {}
        while before != now:
            settle(CALM)
            while not world().idle:
                settle(1_000)
            before, now = now, self.end.context.query_counters()

    def poll(self):
        by_number = {pair.qp.qp_num: pair for pair in self.pairs}
        while found := self.end.cq.poll(64)[1]:
            for wc in found:
                if wc.wr_id == BINDING:
                    assert wc.status == W.IBV_WC_SUCCESS, wc
                else:
                    by_number[wc.qp_num].found.append(wc)

    def batch(self):
        rng = self.rng
        for pair in self.pairs:
            pair.prepare()
        self.calm()
        heard(self.tap)
        before = self.end.context.query_counters()
        order = self.pairs * BATCH
        rng.shuffle(order)
        pace = rng.choice([60, 120, 400])
        for pair in order:
            if not pair.model.silent:
                request = pair.request()
                self.send(pair, request.opcode, request.psn, body(request), ack=rng.random() < 0.7)
                if rng.random() < 0.5:
                    settle(rng.randrange(1, pace))
        self.calm()
        for pair in self.pairs:
            if not pair.model.refusal:
                self.send(pair, WRITE_ONLY, pair.model.psn - 1, reth(0, 0, 0))
        self.calm()
        after = self.end.context.query_counters()
        for cause in ("overflow", "icrc", "malformed"):
            assert after[f"drop_{cause}"] == before[f"drop_{cause}"], f"this test sends what is dropped: {cause}"
        self.poll()
        answers = heard(self.tap)
        for pair in self.pairs:
            mine = [answer for answer in answers if answer.qpn == FIRST_QPN + pair.number]
            try:
                pair.check(mine)
            except AssertionError:
                print(f"-- Queue pair {pair.number}:", *pair.told[-3 * BATCH :], "-- Heard:", *mine, sep="\n")
                raise
        if self.shared:
            self.shared.region.check("receives")


def body(request):
    """What follows the BTH."""
    header = b""
    if request.opcode in Op.RETH:
        header = reth(request.address, request.key, request.length)
    elif request.opcode in Op.ATOMIC:
        header = atomiceth(request.address, request.key, *request.operands)
    if request.opcode in (*Op.IMM, *Op.INVALIDATE):
        header += struct.pack(">I", request.imm)
    return header + request.payload


@pytest.mark.parametrize("frames", FRAMES)
@pytest.mark.parametrize("shared", [False, True], ids=["own rings", "SRQ"])
def test_the_responder_does_what_its_model_does(shared, frames):
    rng = make_rng()
    srq = SrqAttr(64, 4) if shared else None
    with End("sim1", 4096, qps=QPS, depth=64, cqe=4000, sge=4, access=31, srq=srq) as end:
        peers, ended = Peers(rng, end), 0
        start = end.context.query_counters()
        for _ in range(-(-frames // (QPS * BATCH))):
            peers.batch()
            ended += sum(bool(pair.model.refusal) for pair in peers.pairs)
        after = end.context.query_counters()
        changes = {name: after[name] - start[name] for name in after if after[name] != start[name]}
        print(f"{ended} queue pairs ended", changes)
        for name in ("cqes", "read_responses", "atomics", "drop_duplicate", "drop_sequence", "replays"):
            assert name in changes, f"no {name}: this test tests nothing"
        assert "bus_errors" not in changes
