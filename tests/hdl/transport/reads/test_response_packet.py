"""Entries cut into packets, one after the other, and what is remembered between them."""

import pytest
from streams import make_rng, plain, simulate
from verbena.hdl.transport.common.layouts import PayloadSource, ResponseKind, TxDescriptorKind
from verbena.hdl.transport.reads.response_packet import ResponsePacket

QPS = 4
NOTHING = {"atomic": 0, "middle": 0, "packets": 0, "quiet": 0, "place": {"slot": 0, "wrapped": 0}}


async def strobe(ctx, dut, *names):
    for name in names:
        ctx.set(getattr(dut, name), 1)
    await ctx.tick()
    for name in names:
        ctx.set(getattr(dut, name), 0)


async def cut(ctx, dut, rng, entry, state, again=None):
    """The next packet of an entry: (address behind the range, access, TX descriptor, state behind it)."""
    kind = entry["kind"]
    read = kind in (ResponseKind.READ, ResponseKind.REPEAT)
    ctx.set(dut.entry, entry)
    ctx.set(dut.state, state)
    ctx.set(dut.kind, {"read": read, "repeat": kind == ResponseKind.REPEAT, "replay": kind == ResponseKind.REPLAY})
    await ctx.tick()
    await strobe(ctx, dut, "ends")
    end = ctx.get(dut.end)
    await strobe(ctx, dut, "load", *([] if read else ["say"]))
    if again is not None:
        ctx.set(dut.was_cut, again)
        await strobe(ctx, dut, "again")
    if read:
        await strobe(ctx, dut, "measure", "say")
    found = {}
    while len(found) < 2:
        for name in ("access", "packet"):
            ctx.set(getattr(dut, name).ready, name not in found and rng.random() < 0.3)
        following = plain(ctx.get(dut.following))
        sampled = [s for p in (dut.access, dut.packet) for s in (p.valid, p.ready, p.payload)]
        _, _, gone, large, *values = await ctx.tick().sample(dut.gone, dut.large, *sampled)
        assert large == (values[3] and values[5].transport.length >= 1024)
        for place, name in enumerate(("access", "packet")):
            valid, ready, payload = values[3 * place : 3 * place + 3]
            assert valid == (name not in found)
            if valid and ready:
                found[name] = plain(payload)
        assert gone == (len(found) == 2)
    for name in ("access", "packet"):
        ctx.set(getattr(dut, name).ready, 0)
    return end, found["access"], found["packet"], following


def entry_of(rng, kind, length=0):
    return {
        "kind": kind,
        "path_mtu": rng.randrange(8),
        "pd": rng.getrandbits(24),
        "psn": rng.choice([0xFFFFFE, rng.getrandbits(24)]),
        "msn": rng.getrandbits(24),
        "credits": rng.getrandbits(5),
        "address": rng.choice([(1 << 64) - 5, rng.getrandbits(64)]),
        "rkey": rng.getrandbits(32),
        "swap": length | rng.getrandbits(32) << 32,
        "compare": rng.getrandbits(64),
    }


def test_reads():
    """All of the range, a packet of the MTU after the other, of 256 bytes where there is none such; the place moves
    once, and a READ that is asked for again stays quiet to its end if some of it was cut before."""
    rng = make_rng()
    dut = ResponsePacket(QPS)

    async def testbench(ctx):
        for number in range(40):
            length = rng.choice([0, 1, 8, 4096, 4097, rng.randrange(20_000)])
            kind = rng.choice([ResponseKind.READ, ResponseKind.REPEAT])
            entry = entry_of(rng, kind, length)
            mtu = 128 << entry["path_mtu"] if 1 <= entry["path_mtu"] <= 5 else 256
            was_cut = rng.randrange(2) if kind == ResponseKind.REPEAT else None
            place = {"slot": rng.randrange(16), "wrapped": number % 2}
            ctx.set(dut.qp, number % QPS)
            state, offset, packets = NOTHING | {"place": place, "atomic": rng.randrange(2)}, 0, 0
            while True:
                size = min(mtu, length - offset)
                last = offset + size == length
                end, access, packet, state = await cut(ctx, dut, rng, entry, state, None if packets else was_cut)
                header = packet["transport"]
                assert end == (entry["address"] + length) % (1 << 64)
                assert access["address"] == (entry["address"] + offset) % (1 << 64)
                assert (access["length"], access["span"], header["length"]) == (size, length - offset, size)
                assert (access["key"], access["pd"], access["qp"]) == (entry["rkey"], entry["pd"], number % QPS)
                assert (access["tag"], access["clear"], access["access"], access["quiet"]) == (0, 0, 4, was_cut or 0)
                assert header["opcode"] == {(0, 0): 0x0D, (0, 1): 0x10, (1, 0): 0x0E, (1, 1): 0x0F}[packets > 0, last]
                assert header["psn"] == (entry["psn"] + packets) % (1 << 24)
                assert (header["msn"], header["syndrome"]) == (entry["msn"], entry["credits"])
                assert (packet["message_last"], packet["source"]) == (last, PayloadSource.MEMORY)
                if kind == ResponseKind.READ and not packets:
                    place = {"slot": (place["slot"] + 1) % 16, "wrapped": place["wrapped"] | (place["slot"] == 15)}
                offset, packets = offset + size, packets + 1
                more = {"middle": 1, "packets": packets, "quiet": was_cut or 0}
                assert state == NOTHING | {"place": place} | ({} if last else more)
                if last:
                    break

    simulate(dut, testbench, seed=rng.seed_value)


@pytest.mark.parametrize("kind", [ResponseKind.FETCH_ADD, ResponseKind.COMPARE_SWAP, ResponseKind.REPLAY])
def test_atomics(kind):
    """One packet of 8 bytes. Only what is executed has an access, and a place of its own."""
    rng = make_rng()
    dut = ResponsePacket(QPS)
    replay = kind == ResponseKind.REPLAY

    async def testbench(ctx):
        entry = entry_of(rng, kind)
        state = NOTHING | {"place": {"slot": 15, "wrapped": 0}}
        _, access, packet, state = await cut(ctx, dut, rng, entry, state)
        assert (access["length"], access["tag"]) == ((0, 0) if replay else (8, 1))
        assert replay or (access["span"], access["access"], access["address"]) == (8, 8, entry["address"])
        assert (packet["transport"]["opcode"], packet["transport"]["length"], packet["message_last"]) == (0x12, 8, 1)
        assert packet["source"] == (PayloadSource.INLINE if replay else PayloadSource.ATOMIC)
        assert state["place"] == ({"slot": 15, "wrapped": 0} if replay else {"slot": 0, "wrapped": 1})
        assert state["atomic"]

    simulate(dut, testbench, seed=rng.seed_value)


def test_token():
    """A run that clears, a row that is no packet, and nothing is remembered; nor of the kind of an entry given up."""
    rng = make_rng()
    dut = ResponsePacket(QPS)

    async def testbench(ctx):
        ctx.set(dut.token, 1)
        before = NOTHING | {"middle": 1, "packets": 5, "place": {"slot": 3, "wrapped": 1}}
        _, access, packet, state = await cut(ctx, dut, rng, entry_of(rng, ResponseKind.FETCH_ADD), before)
        assert (access["clear"], access["length"], access["tag"]) == (1, 0, 0)
        assert (packet["kind"], packet["transport"]["length"]) == (TxDescriptorKind.RESPONSE_TOKEN, 0)
        assert state == NOTHING
        ctx.set(dut.token, 0)
        for atomic in (0, 1):
            ctx.set(dut.state, NOTHING | {"atomic": atomic})
            ctx.set(dut.lost, 1)
            await ctx.tick()
            assert ctx.get(dut.following).atomic == atomic

    simulate(dut, testbench, seed=rng.seed_value)
