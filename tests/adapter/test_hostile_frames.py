"""Frames that no honest peer sends: nothing outside a registered region is written, nothing hangs, counters tell."""

import struct

import pytest
from ends import SEND, End, completion, connect, fill, recv, send, settle, sge, world
from rocegram import rc_frame, with_icrc
from streams import make_rng
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state
from verbena.sw.verbs.qp import QPAttr

FRAMES = 100_000
BATCH = 500
BTH_AT = 14 + 20 + 8


def reth(address, rkey, length):
    return struct.pack(">QII", address, rkey, length)


@pytest.fixture
def target():
    """An adapter whose QP believes that its peer is ``sim0``; guards stand around the region that may be written."""
    with (
        End("sim1", 8192, access=1) as guard,
        End("sim1", 65536, depth=64, cqe=4000) as b,
        End("sim1", 8192, access=1) as beyond,
        End("sim0", 64) as a,
    ):
        connect(a, b, psn=1000)
        yield b, (guard, beyond)


def templates(b, victim, psn):
    """Valid frames of every kind that the responder serves, and ACKs."""
    sims = world().adapters
    source, destination = (sims[0].mac, 0x0A000001), (sims[1].mac, 0x0A000002)
    key, at = b.mr.rkey, b.mr.buf
    bodies = {
        0x00: bytes(1024),
        0x01: bytes(1024),
        0x02: b"last",
        0x03: b"\x01\x02\x03\x04" + b"last",
        0x04: b"only" * 20,
        0x05: b"\x01\x02\x03\x04only",
        0x06: reth(at, key, 2048) + bytes(1024),
        0x07: bytes(1024),
        0x08: bytes(1024),
        0x0A: reth(at + 64, key, 100) + bytes(100),
        0x0B: reth(at + 64, key, 4) + b"\0\0\0\7" + b"data",
        0x0C: reth(at, key, 4096),
        0x11: struct.pack(">I", 0x1F000005),
        0x13: reth(at, key, 0)[:12] + bytes(16),
    }
    return [rc_frame(source, destination, victim, psn, opcode, body) for opcode, body in bodies.items()]


def mutate(frame, rng, victims):
    """A frame that is wrong in one of many ways; half of them with an ICRC that fits."""
    frame = bytearray(frame)
    kind = rng.randrange(8)
    if kind == 0:  # bits anywhere
        for _ in range(rng.randrange(1, 6)):
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    elif kind == 1:  # cut off
        del frame[rng.randrange(1, len(frame)) :]
    elif kind == 2:  # too long
        frame += rng.randbytes(rng.randrange(1, 200))
    elif kind == 3:  # a field of IP, UDP or BTH
        frame[rng.randrange(14, min(len(frame), BTH_AT + 12))] = rng.randrange(256)
    elif kind == 4:  # noise of any size
        frame = bytearray(rng.randbytes(rng.randrange(1, 300)))
        if rng.random() < 0.5:
            frame[:BTH_AT] = rc_head[: len(frame)] if len(frame) < BTH_AT else rc_head
    elif kind == 5:  # another QP, another PSN, another opcode
        frame[BTH_AT] = rng.randrange(256)
        frame[BTH_AT + 5 : BTH_AT + 8] = rng.choice(victims).to_bytes(3, "big")
        frame[BTH_AT + 9 : BTH_AT + 12] = rng.randrange(1 << 24).to_bytes(3, "big")
    elif kind == 6:  # address, key or length of the RETH
        for _ in range(4):
            frame[min(len(frame) - 1, BTH_AT + 12 + rng.randrange(16))] = rng.randrange(256)
    else:  # lengths of IP and UDP
        at = rng.choice([16, 14 + 20 + 4])
        struct.pack_into(">H", frame, at, rng.choice([0, 8, 27, 28, 60, 65535, rng.randrange(2000)]))
    if len(frame) > BTH_AT + 16 and rng.random() < 0.6:
        return with_icrc(bytes(frame))
    return bytes(frame)


rc_head = rc_frame((1, 0x0A000001), (2, 0x0A000002), 0, 0, 4)[:BTH_AT]


def test_a_hundred_thousand_mutated_frames_do_no_harm_and_a_connection_still_works(target):
    b, guards = target
    rng = make_rng()
    adapter = world().adapters[1]
    before = [fill(guard, 50 + i) for i, guard in enumerate(guards)]
    victim = b.qp.qp_num
    victims = [victim, victim + 1, 0, 1, 0xFFFFFF, 64, 127]
    for i in range(32):
        recv(b, [sge(b, 32768, 512)], wr_id=i)
    sent = 0
    start = b.context.query_counters()
    while sent < FRAMES:
        base = templates(b, victim, b.qp.query()[0].rq_psn)
        for _ in range(BATCH):
            adapter.inject(mutate(rng.choice(base), rng, victims))
        sent += BATCH
        settle(2000)
        while not world().idle:
            settle(2000)
        while b.cq.poll(64)[0]:
            pass
        if b.qp.qp_state == 6:  # ERR: an error is the right answer to much of this, so give it a new life
            b.qp.modify(*_reset())
            with End("sim0", 64) as a:
                connect(a, b, psn=rng.randrange(1 << 24))
            for i in range(32):
                recv(b, [sge(b, 32768, 512)], wr_id=i)
    settle(20_000)
    after = b.context.query_counters()
    for guard, content in zip(guards, before):
        assert guard.mr.read(len(content), 0) == content
    changes = {name: after[name] - start[name] for name in after}
    print({name: count for name, count in changes.items() if count})
    for cause in ("not_roce", "malformed", "icrc", "qp", "duplicate", "sequence", "error"):
        assert changes[f"drop_{cause}"] > 0, cause
    assert changes["bus_errors"] == 0
    with End("sim0", 4096) as c, End("sim1", 4096) as d:
        connect(c, d)
        content = fill(c, 3)
        recv(d, [sge(d, 0, 4096)])
        send(c, SEND, [sge(c, 0, 4096)])
        assert completion(c.cq).status == completion(d.cq).status == 0
        assert d.mr.read(4096, 0) == content


def _reset():
    return QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE
