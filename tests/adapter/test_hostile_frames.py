"""Frames that no honest peer sends: nothing outside a registered region is written or told, nothing hangs, and counters
tell.
"""

import os
import random
from collections import Counter

import pytest
from ends import FETCH_ADD, READ, SEND, WRITE, End, completion, connect, fill, recv, send, settle, sge, world
from hostile import BTH, MTU, QKEY, RC, UC, UD, Attacker, mutate
from rocegram import with_icrc
from streams import make_rng
from verbena.sim.pair import path_mtu
from verbena.sw import host_memory
from verbena.sw.verbs.addr import AHAttr, GlobalRoute
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.mr import MR
from verbena.sw.verbs.qp import QPAttr
from verbena.sw.verbs.wr import SGE, SendWR

FRAMES = [1_500, pytest.param(4_000, marks=pytest.mark.slow)]
if GIVEN := os.environ.get("VERBENA_FRAMES"):
    FRAMES = [int(GIVEN)]
"""One in ten is left as it is."""
TRANSPORTS = {"RC": RC, "UC": UC, "UD": UD}
BATCH = 500
QPS = 16
RECEIVES = 32
REQUESTS = [(WRITE, 64), (READ, 64), (WRITE, 64), (FETCH_ADD, 8), (READ, 3 * MTU)]
BLOCK, FIRST, LENGTH = 65536, 8192 + 100, 40_001
NOBODY = 77
PEER = 0x02_00_00_00_00_99, 0x0A000063
GID = "::ffff:10.0.0.99"
READ_RESPONSES = {0x0D: 4, 0x0E: 0, 0x0F: 4, 0x10: 4}
"""Bytes of AETH in front of the payload."""
WINDOW = 8


class Target:
    """QPs on ``sim1`` that believe in a peer, a tap that only listens, and memory that must stay as it is and untold.

    The region that the peer may reach lies inside of a block, and begins and ends amid a page.
    """

    def __init__(self, end, other, rng):
        self.end, self.rng = end, rng
        self.tap = world().tap(PEER[0])
        end.context._adapter.port.add_neighbour(PEER[1], PEER[0])
        self.heard = Counter()
        self.block = host_memory.alloc(BLOCK, 4096)
        host_memory.write(self.block, random.Random(rng.random()).randbytes(BLOCK))
        self.region = MR(end.pd, LENGTH, 15, address=self.block + FIRST)
        # A region that nobody holds closes itself, and its key would test nothing.
        self.locked = locked = MR(end.pd, 8192, 1)
        freed = host_memory.alloc(8192, 4096)
        with MR(end.pd, 8192, 15, address=freed) as stale:
            self.stale = freed, stale.rkey
        self.guards = [
            (self.block, FIRST),
            (self.block + FIRST + LENGTH, BLOCK - FIRST - LENGTH),
            (locked.buf, 8192),
            (other.mr.buf, other.mr.length),
            (freed, 8192),
        ]
        for address, length in self.guards[2:]:
            host_memory.write(address, random.Random(rng.random()).randbytes(length))
        first, after, key = self.region.buf, self.region.buf + LENGTH, self.region.rkey
        self.targets = [
            *[(first - 1, key), (first - 4096, key), (after - 1, key), (after - 99, key), (after, key), (0, key)],
            *[((1 << 64) - 1, key), ((1 << 64) - 50, key), (first + (1 << 32), key), (first, key ^ 1)],
            # Keys that are not for this: no remote rights, a region of another PD, a region that is no more.
            *[(locked.buf, locked.rkey), (locked.buf, key), (other.mr.buf, other.mr.rkey), (other.mr.buf, key)],
            *[self.stale, (freed, key), (locked.buf, 0), (after - 99, key), (after - 100, key), (first, key)],
        ]
        own = world().adapters[1].mac, 0x0A000002
        self.transport = TRANSPORTS[end.qp.qp_type.name[-2:]]
        self.attackers = [Attacker(rng, PEER, own, first, key, self.transport) for _ in end.qps]
        self.victims = [*(qp.qp_num for qp in end.qps), 0, 1, 0xFFFFFF, 64, 127]

        self.secrets = {content[i : i + WINDOW] for content in self.guarded() for i in range(len(content) - WINDOW + 1)}

    def guarded(self):
        return [host_memory.read(*guard) for guard in self.guards]

    def revive(self, qp, attacker):
        """A new life for a QP, with receives posted and some requests waiting for their acknowledgement."""
        if qp.qp_state != ibv_qp_state.IBV_QPS_RESET:
            qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        attr = QPAttr()
        attr.path_mtu, attr.qp_access_flags, attr.dest_qp_num = path_mtu(MTU), 14, NOBODY
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 16
        attr.sq_psn, attr.rq_psn = self.rng.getrandbits(24), self.rng.getrandbits(24)
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        attr.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID, hop_limit=64))
        attr.qkey = QKEY
        qp.to_rts(attr)
        for _ in range(RECEIVES):
            recv(self.end, [sge(self.end, 0, 1024)], qp=qp)
        for opcode, length in REQUESTS:
            if self.transport == UD or (self.transport == UC and opcode != WRITE):
                continue
            wr = SendWR(1, opcode, num_sge=1, sg=[SGE(self.end.mr.buf, length, self.end.mr.lkey)])
            if opcode == FETCH_ADD:
                wr.set_wr_atomic(1, 0, 1)
            else:
                wr.set_wr_rdma(1, 0)
            qp.post_send(wr)
        attacker.restart(qp.qp_num, attr.rq_psn, attr.sq_psn)

    def attack(self, frames):
        adapter, rng = world().adapters[1], self.rng
        for _ in range(frames):
            attacker = rng.choice(self.attackers)
            if rng.random() < 0.1:
                adapter.inject(with_icrc(bytes(attacker.next(advance=True))))
            else:
                adapter.inject(mutate(attacker.next(advance=rng.random() < 0.1), rng, self.victims, self.targets))

    def listen(self):
        """Takes the frames that the adapter sent; an ``AssertionError`` if one tells what no READ may reach."""
        while frame := self.tap.receive():
            opcode = frame[BTH]
            self.heard[opcode] += 1
            if opcode in READ_RESPONSES:
                payload = frame[BTH + 12 + READ_RESPONSES[opcode] : -4]
                told = {payload[i : i + WINDOW] for i in range(len(payload) - WINDOW + 1)}
                assert told.isdisjoint(self.secrets), "a READ was answered from memory that it must not reach"

    def calm(self):
        """Waits for the end of what was injected; an ``AssertionError`` if there is none."""
        limit = world().cycles + 1_000_000
        while not world().idle:
            settle(2000)
            self.listen()
            assert world().cycles < limit, "the adapter does not come to rest"
        settle(2000)
        self.listen()
        by_number = {qp.qp_num: qp for qp in self.end.qps}
        while found := self.end.cq.poll(64)[1]:
            for wc in found:
                if wc.status == 0 and wc.opcode & 128:
                    recv(self.end, [sge(self.end, 0, 1024)], qp=by_number[wc.qp_num])


@pytest.fixture(params=["RC", "UC", "UD"])
def target(request):
    rng = make_rng()
    qp_type = ibv_qp_type[f"IBV_QPT_{request.param}"]
    with End("sim1", 8192) as other, End("sim1", 4096, qps=QPS, depth=64, cqe=4000, access=1, qp_type=qp_type) as end:
        yield Target(end, other, rng)


@pytest.mark.parametrize("frames", FRAMES)
def test_mutated_frames_do_no_harm_and_a_connection_still_works(target, frames):
    adapter = world().adapters[1]
    before, inside = target.guarded(), target.region.read(LENGTH, 0)
    start, decoded = target.end.context.query_counters(), adapter.bus_counters["decode_errors"]
    lives = 0
    for begun in range(0, frames, BATCH):
        for qp, attacker in zip(target.end.qps, target.attackers):
            now = qp.query()[0]
            if now.qp_state == ibv_qp_state.IBV_QPS_RTS:
                attacker.psn = now.rq_psn
            else:  # an error is the right answer to much of this
                target.revive(qp, attacker)
                lives += 1
        target.attack(min(BATCH, frames - begun))
        target.calm()
        assert target.guarded() == before, "memory was written that is in no region for this"
    after = target.end.context.query_counters()
    changes = {name: after[name] - start[name] for name in after}
    print(f"{lives} lives", {name: count for name, count in changes.items() if count})
    if target.transport == UD:
        assert changes["cqes"] > frames // 40, "no datagram came through: this test tests nothing"
    else:
        assert target.region.read(LENGTH, 0) != inside, "no WRITE came through: this test tests nothing"
    for cause in ("not_roce", "malformed", "icrc", "qp"):
        assert changes[f"drop_{cause}"] > 0, cause
    if target.transport != UD:
        for name in ("drop_sequence", "drop_error", "access_errors"):
            assert changes[name] > 0, name
    if target.transport != RC:
        assert lives == QPS, "a queue pair ended by what its peer did"
        assert all(UC <= opcode < UC + 0x0C for opcode in target.heard), "something was answered"
    else:
        assert changes["drop_duplicate"] > 0
        for opcode in (0x0D, 0x0E, 0x0F, 0x11, 0x12):
            assert target.heard[opcode] > 0, f"nothing with opcode {opcode:#x} was answered"
    kept_out = sum(changes[f"drop_{cause}"] for cause in ("not_roce", "malformed", "icrc", "overflow"))
    assert changes["rx_packets"] + kept_out == frames, "a frame is not accounted for"
    assert changes["bus_errors"] == 0
    assert adapter.bus_counters["decode_errors"] == decoded
    with End("sim0", 4096) as c, End("sim1", 4096) as d:
        connect(c, d)
        content = fill(c, 3)
        recv(d, [sge(d, 0, 4096)])
        send(c, SEND, [sge(c, 0, 4096)])
        assert completion(c.cq).status == completion(d.cq).status == 0
        assert d.mr.read(4096, 0) == content
