"""The lookup: who is let in, what goes where."""

from itertools import pairwise

import pytest
from amaranth.back import rtlil
from receive_world import ACKNOWLEDGE, FIRST_QPN, attributes, write_attributes
from streams import make_rng, plain, send_all, simulate
from verbena.hdl.abi.commands import QpAction
from verbena.hdl.abi.contexts import QpState, QpType
from verbena.hdl.transport.receive.layouts import Work
from verbena.hdl.transport.receive.lookup import ReceiveLookup

QPS = 8
NUMBERS = [FIRST_QPN + qp for qp in range(QPS)]
FIELDS = {"address": 64, "rkey": 32, "dma_length": 32, "immediate": 32, "msn": 24, "syndrome": 8, "psn": 24}
RESPONSES = range(0x0D, 0x13)
QKEYS = [0x11111111, 0x80010000, 0x7FFFFFFF]


def run(packets, values, *, stall=0.0, rng=None, uc=True, ud=True, gids=False, raw=False):
    """Sends headers to a lookup with the attributes ``values`` of each QP; what came out on both outputs, in order
    (requests with 0, responses with 1), how many were dropped, and when the outputs were taken."""
    dut = ReceiveLookup(QPS, uc=uc, ud=ud, gids=gids, raw=raw)
    rng = rng or make_rng()
    out, taken, drops = [], [], []

    async def script(ctx):
        for qp, fields in enumerate(values):
            await write_attributes(ctx, dut, qp, **fields)
        await send_all(ctx, dut.header, packets, rng, stall)
        while len(out) < len(packets):
            await ctx.tick()

    async def watch(ctx):
        cycle, here = 0, False
        while True:
            # `accept` is there in the second cycle.
            ctx.set(dut.request.ready, here and rng.random() >= stall)
            ctx.set(dut.response.ready, here and rng.random() >= stall)
            ports = (dut.request, dut.response)
            sampled = [signal for port in ports for signal in (port.valid, port.ready, port.payload)]
            _, _, dropped, *values = await ctx.tick().sample(dut.count_drop_qp, *sampled)
            assert not (values[0] and values[3]), "a packet is for one of the two"
            for which in range(2):
                valid, ready, payload = values[3 * which : 3 * which + 3]
                if valid and ready:
                    out.append((which, plain(payload)))
                    taken.append(cycle)
            here = any(values[3 * which] and not values[3 * which + 1] for which in range(2))
            drops.append(dropped)
            cycle += 1

    simulate(dut, script, background=(watch,), seed=rng.seed_value)
    return out, sum(drops), taken


def header(qp=1, opcode=0x0A, **more):
    transport = {"opcode": opcode, "dest_qpn": NUMBERS[qp], "pkey": 0xFFFF, "length": 8, "psn": 5}
    transport.update({name: value for name, value in more.items() if name != "source_ip"})
    return {"transport": transport, "source_ip": more.get("source_ip", 0x0A000002)}


def accepted(packet, values):
    """The rules once more."""
    transport = packet["transport"]
    opcode = transport["opcode"]
    kinds = {0: QpType.RC, 1: QpType.UC, 3: QpType.UD}
    if opcode >> 5 not in kinds or transport["dest_qpn"] not in NUMBERS:
        return False
    if opcode == ACKNOWLEDGE and transport["length"]:
        return False
    mine = values[NUMBERS.index(transport["dest_qpn"])]
    states = [QpState.RTS, QpState.SQD] + ([] if opcode in RESPONSES else [QpState.RTR])
    return (
        mine["state"] in states
        and mine["type"] == kinds[opcode >> 5]
        and (transport["pkey"] ^ mine["pkey"]) & 0x7FFF == 0
        and (transport["pkey"] | mine["pkey"]) >> 15
        and (
            transport["address"] >> 32 == mine["qkey"]
            if mine["type"] == QpType.UD
            else packet["source_ip"] == mine["dest_ip"]
        )
    )


@pytest.mark.parametrize("count", [80, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_random_packets(stall, count):
    rng = make_rng()
    values = [
        attributes(
            state=rng.choice(list(QpState)),
            type=rng.choice([QpType.RC, QpType.UC, QpType.UD]),
            pkey=rng.choice([0xFFFF, 0x7FFF, 0x8001]),
            dest_ip=rng.choice([1, 2]),
            qkey=rng.choice(QKEYS),
        )
        for _ in range(QPS)
    ]
    values[0] = attributes(pkey=0x7FFF, dest_ip=1, qkey=QKEYS[0])
    values[1] = values[0] | {"type": QpType.UC}
    values[2] = values[0] | {"type": QpType.UD, "dest_ip": 2}
    packets = []
    for number in range(count):
        opcode = rng.choice(
            [
                0,
                4,
                10,
                12,
                19,
                22,
                ACKNOWLEDGE,
                ACKNOWLEDGE,
                13,
                14,
                16,
                18,
                0x20,
                0x24,
                0x2B,
                0x44,
                0x64,
                0x65,
                0x65,
                0x31,
            ]
        )
        transport = {name: rng.getrandbits(width) for name, width in FIELDS.items()}
        transport["address"] = rng.choice(QKEYS) << 32 | rng.getrandbits(32)
        operands = {name: rng.getrandbits(64) for name in ("swap", "compare")}
        operands |= {name: rng.getrandbits(8) for name in ("traffic_class", "hop_limit")}
        if number % 4 == 0:  # one that is accepted for sure, of either direction
            which = number // 4 % 5
            good = {
                "opcode": [10, 16, ACKNOWLEDGE, 0x2A, 0x64][which],
                "dest_qpn": NUMBERS[max(0, which - 2)],
                "pkey": 0xFFFF,
                "length": 0,
            }
            if which == 4:
                good["address"] = QKEYS[0] << 32 | rng.getrandbits(32)
            packets.append({"transport": transport | good, "source_ip": 1} | operands)
            continue
        transport |= {
            "opcode": opcode,
            "dest_qpn": rng.choice(NUMBERS) ^ rng.choice([0, 0, 0, QPS, 1 << rng.randrange(24)]),
            "pkey": rng.choice([0xFFFF, 0x7FFF, 0x8001, 0x0001]),
            "length": rng.choice([0, 0, 100]),
        }
        packets.append({"transport": transport, "source_ip": rng.choice([1, 2])} | operands)
    rng.shuffle(packets)
    out, dropped, _ = run(packets, values, stall=stall, rng=rng)
    assert len(out) == len(packets)
    for (which, got), packet in zip(out, packets):
        transport = packet["transport"]
        assert which == (transport["opcode"] in RESPONSES)
        assert (got.qp, got.accept) == (transport["dest_qpn"] % QPS, accepted(packet, values))
        assert {name: got.transport[name] for name in transport} == transport
        if not which:
            assert (got.swap, got.compare) == (packet["swap"], packet["compare"])
            assert not got.accept or got.unreliable == (transport["opcode"] >= 0x20)
            assert not got.accept or got.datagram == (transport["opcode"] >= 0x60)
            told = {"ip": packet["source_ip"]} | {name: packet[name] for name in ("traffic_class", "hop_limit")}
            assert got.source == told
        mine = values[got.qp] | {"qpn": NUMBERS[got.qp]}
        assert {name: got.attributes[name] for name in got.attributes} == {
            name: mine.get(name, 0) for name in got.attributes
        }
    assert dropped == sum(not got.accept for _, got in out)
    for which in range(2):
        assert {got.accept for port, got in out if port == which} == {0, 1}


@pytest.mark.parametrize(("uc", "ud"), [(True, True), (False, True), (True, False), (False, False)])
@pytest.mark.parametrize("kind", [QpType.RC, QpType.UC, QpType.UD])
def test_types(kind, uc, ud):
    """A QP takes what is of its own transport; RD, whose opcodes stand between UC's and UD's, and what is behind UD's
    are of none. What is of RC is never told as of UC or UD, nor what is of UC as of UD."""
    opcodes = (0x04, 0x0A, 0x24, 0x2A, 0x64, 0x65, 0x44, 0x84, 0xA4, 0xC4, 0xE4)
    packets = [header(opcode=opcode, address=QKEYS[0] << 32) for opcode in opcodes]
    out, dropped, _ = run(packets, [attributes(type=kind, qkey=QKEYS[0])] * QPS, uc=uc, ud=ud)
    served = [kind == QpType.RC, kind == QpType.UC and uc, kind == QpType.UD and ud]
    wanted = [one for one in served for _ in range(2)] + [0] * 5
    assert [(which, got.accept) for which, got in out] == [(0, accept) for accept in wanted]
    assert dropped == len(opcodes) - sum(wanted)
    assert [got.unreliable for _, got in out if got.accept] == [kind != QpType.RC] * sum(wanted)
    assert [got.datagram for _, got in out if got.accept] == [kind == QpType.UD] * sum(wanted)
    if not ud:
        assert not any(got.datagram for _, got in out)
    if not uc and not ud:
        assert not any(got.unreliable for _, got in out)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("kind", [QpType.RC, QpType.UC, QpType.UD, QpType.RAW_PACKET])
def test_raw_frames(kind, others):
    """They are for a QP of their type, from whoever it is, and told as of UC; no packet is for such a QP."""
    opcodes = (0xA4, 0xA5, 0x04, 0x24, 0x64)
    packets = [header(opcode=opcode, address=QKEYS[0] << 32, source_ip=number) for number, opcode in enumerate(opcodes)]
    values = [attributes(type=kind, qkey=QKEYS[0], dest_ip=99)] * QPS
    out, dropped, _ = run(packets, values, uc=others, ud=others, raw=True)
    frame, datagram = kind == QpType.RAW_PACKET, kind == QpType.UD and others
    assert [(which, got.accept) for which, got in out] == [(0, one) for one in (frame, frame, 0, 0, datagram)]
    assert dropped == len(opcodes) - 2 * frame - datagram
    assert all((got.unreliable, got.datagram) == (1, datagram) for _, got in out if got.accept)


def test_qkeys():
    """Of UD each bit of the Q_Key counts, and nothing else that DETH says; nor does it matter who sends. Of the others
    the same bits are not a Q_Key."""
    keys = [QKEYS[0]] + [QKEYS[0] ^ 1 << bit for bit in range(32)] + [0]
    deth = [key << 32 | rest for key in keys for rest in (0, 0xFFFFFFFF)]
    packets = [header(opcode=0x64, address=address, source_ip=7 + n) for n, address in enumerate(deth)]
    packets += [header(opcode=0x65, address=QKEYS[0] << 32, psn=psn) for psn in (0, 1 << 23)]
    packets += [header(opcode=0x65, address=QKEYS[0] << 32, pkey=0x7FFE)]
    packets += [header(qp=2, opcode=0x0A, address=0), header(qp=2, opcode=0x0A, address=QKEYS[0] << 32, source_ip=9)]
    values = [attributes(type=QpType.UD, qkey=QKEYS[0])] * QPS
    values[2] = attributes(qkey=QKEYS[0])
    out, _, _ = run(packets, values)
    wanted = [1, 1] + [0] * (len(deth) - 2) + [1, 1, 0, 1, 0]
    assert [got.accept for _, got in out] == wanted
    assert [got.source.ip for _, got in out[: len(deth)]] == [7 + n for n in range(len(deth))]
    assert [got.transport.address for _, got in out[: len(deth)]] == deth


@pytest.mark.parametrize("ud", [False, True])
def test_nobody_wants_to_know_who_sent_without_datagrams(ud):
    out, _, _ = run([header(source_ip=9)], [attributes(dest_ip=9)] * QPS, ud=ud)
    ((_, got),) = out
    assert got.accept
    assert got.source.ip == (9 if ud else 0)


GID = 0xFE80_0001_0002_0003_0004_0005_0A00_0002
"""Of the peer."""


def of_gid(source=GID, row=5, found=1, **fields):
    """A packet from the GID ``source`` to a row of the table."""
    gids = {"source_high": source >> 32, "gid_index": row, "gid_found": found}
    return header(source_ip=source & 0xFFFFFFFF, **fields) | gids


def test_gids_of_connections():
    """Each bit of the peer's GID and of the own row's number counts, of requests and of responses."""
    gids = {"dest_ip": GID & 0xFFFFFFFF, "dest_gid_middle": GID >> 32 & 0xFFFFFFFF, "dest_gid_high": GID >> 64}
    values = [attributes(**gids, sgid_index=5)] * QPS
    values[2] = attributes(**gids, sgid_index=5, type=QpType.UC)
    for fields in ({}, {"opcode": ACKNOWLEDGE, "length": 0}, {"qp": 2, "opcode": 0x2A}):
        good = [of_gid(**fields)]
        bad = [of_gid(GID ^ 1 << bit, **fields) for bit in range(128)]
        bad += [of_gid(row=5 ^ 1 << bit, **fields) for bit in range(4)] + [of_gid(found=0, **fields)]
        out, dropped, _ = run([*good, *bad, *good], values, gids=True)
        assert [got.accept for _, got in out] == [1] + [0] * len(bad) + [1]
        assert dropped == len(bad)


def test_gids_of_datagrams():
    """A datagram may come from anybody, to any row, but to one of the table; and its Q_Key counts."""
    values = [attributes(type=QpType.UD, qkey=QKEYS[0], dest_gid_high=7, dest_gid_middle=8, sgid_index=9)] * QPS
    key = {"opcode": 0x64, "address": QKEYS[0] << 32}
    good = [of_gid(GID ^ 1 << 30 * n, row, **key) for n, row in enumerate((0, 5, 9, 15))]
    bad = [of_gid(found=0, **key), of_gid(row=9, found=0, **key), of_gid(**key | {"address": QKEYS[1] << 32})]
    out, _, _ = run(good + bad + good, values, gids=True)
    assert [got.accept for _, got in out] == [1] * 4 + [0] * 3 + [1] * 4


@pytest.mark.parametrize("state", list(QpState))
def test_states_of_ud(state):
    out, dropped, _ = run(
        [header(opcode=0x64, address=5 << 32)], [attributes(state=state, type=QpType.UD, qkey=5)] * QPS
    )
    assert [got.accept for _, got in out] == [state in (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE)]
    assert dropped == 1 - out[0][1].accept


@pytest.mark.parametrize("mine", [0x8001, 0x0001])
def test_pkeys(mine):
    """Two limited members of a partition do not talk to each other."""
    packets = [header(pkey=pkey) for pkey in (0x8001, 0x0001, 0x8002, 0x0002)]
    out, _, _ = run(packets, [attributes(pkey=mine)] * QPS)
    assert [got.accept for _, got in out] == [1, mine >> 15, 0, 0]


@pytest.mark.parametrize("state", list(QpState))
def test_states(state):
    """RTR and SQE send nothing that could be answered."""
    packets = [header(), header(opcode=ACKNOWLEDGE, length=0), header(opcode=0x10), header(opcode=0x12)]
    out, dropped, _ = run(packets, [attributes(state=state)] * QPS)
    request = int(state in (QpState.RTR, QpState.RTS, QpState.SQD, QpState.SQE))
    response = int(state in (QpState.RTS, QpState.SQD))
    assert [(which, got.accept) for which, got in out] == [(0, request)] + [(1, response)] * 3
    assert dropped == 4 - request - 3 * response


def test_cycles():
    """A packet each 4 cycles, accepted or not, of the same QP or not."""
    packets = [header(), header(qp=2), header(opcode=ACKNOWLEDGE, length=0), header(source_ip=9), header(), header()]
    *_, taken = run(packets, [attributes()] * QPS)
    assert [b - a for a, b in pairwise(taken)] == [4] * 5


def test_latency():
    """4 cycles, one more for `accept`; and what changed before counts."""
    dut = ReceiveLookup(QPS)

    async def script(ctx):
        await write_attributes(ctx, dut, 3, **attributes(state=QpState.RESET))
        await write_attributes(ctx, dut, 3, **attributes())
        for _ in range(3):
            await ctx.tick()
        ctx.set(dut.header.payload, header(qp=3))
        ctx.set(dut.header.valid, 1)
        for cycle in range(1, 5):
            await ctx.tick()
            assert ctx.get(dut.request.valid) == (cycle == 4)
        await ctx.tick()
        assert ctx.get(dut.request.payload.accept)

    simulate(dut, script)


def test_tokens_go_first_and_flushes_in_turns():
    """All that concerns a context comes in one order; only what is a packet is of UD, whatever packet waits."""
    dut = ReceiveLookup(QPS)
    rng = make_rng()
    out = []

    async def script(ctx):
        for qp in range(QPS):
            await write_attributes(ctx, dut, qp, **attributes(rq_cqn=qp))
        ctx.set(dut.header.payload, header(qp=1, opcode=0x65))
        ctx.set(dut.flush.payload, 2)
        ctx.set(dut.request_control.payload, {"qp": 3, "action": QpAction.START_RECEIVE, "psn": 77})
        ctx.set(dut.response_control.payload, {"qp": 4, "action": QpAction.RESET})
        ports = (dut.header, dut.flush, dut.request_control, dut.response_control)
        for port in ports:
            ctx.set(port.valid, 1)
        ctx.set(dut.request.ready, 1)
        ctx.set(dut.response.ready, 1)
        while len(out) < 8:
            sampled = [port.ready for port in ports] + [dut.request.valid, dut.request.payload]
            _, _, *ready, valid, request, responds, response = await ctx.tick().sample(
                *sampled, dut.response.valid, dut.response.payload
            )
            for port, taken in zip(ports[2:], ready[2:]):
                if taken:
                    ctx.set(port.valid, 0)
            if valid:
                out.append((request.work, request.qp, request.attributes.rq_cqn))
                assert request.unreliable == request.datagram == (request.work == Work.PACKET)
                if request.work == Work.CONTROL:
                    assert (request.action, request.transport.psn) == (QpAction.START_RECEIVE, 77)
            if responds:
                out.append((response.work, response.qp, 4))

    simulate(dut, script, seed=rng.seed_value)
    packet, flush = (Work.PACKET, 1, 1), (Work.FLUSH, 2, 2)
    # The packet is taken in the cycle in which the others come.
    assert out == [packet, (Work.CONTROL, 3, 3), (Work.CONTROL, 4, 4), flush, packet, flush, packet, flush]


def test_what_is_written_back_comes_with_the_next_packet():
    """Three states, each with its own writer."""
    dut = ReceiveLookup(QPS)
    states = {"request_state": {"epsn": 5, "msn": 6}, "place": {"left": 7}, "read_progress": {"expected": 8}}

    async def take(ctx, port, opcode, **written):
        ctx.set(dut.header.payload, header(opcode=opcode, length=0))
        ctx.set(dut.header.valid, 1)
        await ctx.tick().until(dut.header.ready)
        ctx.set(dut.header.valid, 0)
        while not (ctx.get(port.valid) and ctx.get(dut.settled)):
            await ctx.tick()
        found = plain(ctx.get(port.payload))
        for name, value in written.items():
            ctx.set(getattr(dut, name), value)
            ctx.set(getattr(dut, f"{name}_en"), 1)
        ctx.set(port.ready, 1)
        await ctx.tick()
        ctx.set(port.ready, 0)
        for name in written:
            ctx.set(getattr(dut, f"{name}_en"), 0)
        return found

    async def script(ctx):
        await write_attributes(ctx, dut, 1, **attributes())
        await take(ctx, dut.request, 0x0A, request_state=states["request_state"])
        await take(ctx, dut.request, 0x0A, place=states["place"])
        await take(ctx, dut.response, ACKNOWLEDGE, read_progress=states["read_progress"])
        for _ in range(2):
            request = await take(ctx, dut.request, 0x0A)
            assert (request["state"]["epsn"], request["state"]["msn"], request["place"]["left"]) == (5, 6, 7)
            assert (await take(ctx, dut.response, ACKNOWLEDGE))["progress"]["expected"] == 8

    simulate(dut, script)


def test_arguments():
    with pytest.raises(ValueError, match="qps must be a power of two from 2 to 4096, not 12"):
        ReceiveLookup(12)


@pytest.mark.slow
def test_converts():
    rtlil.convert(ReceiveLookup(64))
    rtlil.convert(ReceiveLookup(64, requests=False))
    rtlil.convert(ReceiveLookup(64, uc=False))
    rtlil.convert(ReceiveLookup(64, ud=False))
    rtlil.convert(ReceiveLookup(64, uc=False, ud=False))


def test_of_a_qp_that_is_closed_only_tokens_come():
    """Its packets and flushes wait, and those behind them, until it is open again; none is lost."""
    dut = ReceiveLookup(QPS, swaps=True)
    rng = make_rng()
    packets = [header(qp=rng.choice([1, 1, 2, 3]), psn=number) for number in range(60)]
    flushes = [rng.choice([1, 2]) for _ in range(40)]
    out, closed = [], []

    async def script(ctx):
        for qp in range(QPS):
            await write_attributes(ctx, dut, qp, **attributes(rq_cqn=qp))
        ctx.set(dut.closed_qp, 1)
        ctx.set(dut.request_control.payload, {"qp": 1, "action": QpAction.SAVE, "psn": 0})
        for _ in range(12):
            ctx.set(dut.closed, 1)
            await ctx.tick().repeat(12)  # what was inside is out
            closed.append(1)
            ctx.set(dut.request_control.valid, 1)
            while not (await ctx.tick().sample(dut.request_control.ready))[2]:
                pass
            ctx.set(dut.request_control.valid, 0)
            await ctx.tick().repeat(rng.randrange(10, 60))
            closed.clear()
            ctx.set(dut.closed, 0)
            await ctx.tick().repeat(rng.randrange(60))
        while len(out) < len(packets) + len(flushes) + 12:
            await ctx.tick()

    async def send(ctx):
        for packet in packets:
            ctx.set(dut.slot, packet["transport"]["dest_qpn"] % QPS)
            await send_all(ctx, dut.header, [packet], rng)

    async def flush(ctx):
        await send_all(ctx, dut.flush, flushes, rng)

    async def watch(ctx):
        ctx.set(dut.request.ready, 1)
        async for _, _, valid, item in ctx.tick().sample(dut.request.valid, dut.request.payload):
            if valid:
                out.append((item.work, item.qp, item.transport.psn))
                assert item.work == Work.CONTROL or item.qp != 1 or not closed
                assert item.work != Work.CONTROL or item.action == QpAction.SAVE

    simulate(dut, script, send, flush, background=[watch], seed=rng.seed_value)
    assert [psn for work, _, psn in out if work == Work.PACKET] == list(range(60))
    assert [qp for work, qp, _ in out if work == Work.FLUSH] == flushes
    assert sum(work == Work.CONTROL for work, *_ in out) == 12
