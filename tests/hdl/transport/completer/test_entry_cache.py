"""The cache of entries: what it reads, when it reads again, and what it hands out."""

import pytest
from amaranth.back import rtlil
from streams import make_rng, send_all, simulate
from verbena.hdl.abi.wqe import SEND_WQE, SGE, send_sges
from verbena.hdl.transport.completer.entry_cache import EntryCache


def wqe(rng, stride, count):
    entries = [(rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(32)) for _ in range(count)]
    head = SEND_WQE.pack(opcode=4, sge_count=count, flags=rng.randrange(16))[:32]
    body = b"".join(SGE.pack(address=a, length=n, lkey=k) for a, n, k in entries)
    return entries, (head + body + rng.randbytes(480))[: 64 << stride]


def run(asks, *, data_width=64, wqe_bytes=128, stall=0.0, rng=None):
    """Asks (qp, index, stride, entry, base, log_size; then what the memory holds now: address, bytes, unreadable) one
    after the other: (entry or None, failed, cycles) of each, and the reads."""
    dut = EntryCache(data_width, wqe_bytes=wqe_bytes)
    rng = rng or make_rng(1)
    answers, reads = [], []
    memory = {}

    async def script(ctx):
        for ask in asks:
            *question, where, content, unreadable = ask
            memory[where] = (content, unreadable)
            for name, value in zip(("qp", "index", "stride", "entry", "base", "log_size"), question):
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.want, 1)
            address, size, cycles, done = None, None, 0, False
            edges = aiter(ctx.tick().sample(dut.take_address, dut.take_size, dut.exhausted, dut.word, dut.failed))
            while not done:
                _, _, a, s, exhausted, word, failed = await anext(edges)
                cycles += 1
                address = word if a else address
                size = word if s else size
                done = s or exhausted
            assert not exhausted or address is None
            entry = None if exhausted else (address, size & 0xFFFFFFFF, size >> 32)
            ctx.set(dut.want, 0)
            answers.append((entry, bool(exhausted and failed), cycles))
            await ctx.tick()
            assert not exhausted or ctx.get(dut.failed) == failed

    async def reader(ctx):
        lanes = data_width // 8
        while True:
            _, _, valid, request = await ctx.tick().sample(dut.read.valid, dut.read.payload)
            if not valid or rng.random() < stall:
                continue
            ctx.set(dut.read.ready, 1)
            await ctx.tick()
            ctx.set(dut.read.ready, 0)
            reads.append((request.address, request.length))
            data, unreadable = memory[request.address]
            assert len(data) == request.length
            await send_all(
                ctx,
                dut.data,
                [
                    {
                        "data": int.from_bytes(data[at : at + lanes], "little"),
                        "count": lanes,
                        "first": at == 0,
                        "last": at + lanes == len(data),
                        "error": at + lanes == len(data) and unreadable,
                    }
                    for at in range(0, len(data), lanes)
                ],
                rng,
                stall,
            )

    simulate(dut, script, background=(reader,), seed=rng.seed_value)
    return answers, reads


@pytest.mark.parametrize("wqe_bytes", [128, 256, 512])
@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_random(data_width, wqe_bytes):
    rng = make_rng()
    asks, expected, reads = [], [], []
    owner = None
    rings = [
        (number << 40 | rng.getrandbits(27) << 12, rng.randrange(16), wqe_bytes.bit_length() - 7 - number % 2)
        for number in range(4)
    ]
    messages = {}  # of each QP: entries, bytes, index, unreadable, next entry
    while len(asks) < 120:
        qp = rng.randrange(4)
        base, log_size, stride = rings[qp]
        if qp not in messages or rng.random() < 0.2:
            entries, content = wqe(rng, stride, rng.randint(1, send_sges(64 << stride)))
            messages[qp] = [entries, content, rng.getrandbits(16), rng.random() < 0.1, 2]
        entries, content, index, unreadable, number = messages[qp]
        address = base + (index % (1 << log_size) << (6 + stride))
        asks.append((qp, index, stride, number, base, log_size, address, content, unreadable))
        if number == 2 or owner != qp:
            reads.append((address, 64 << stride))
            owner = None if unreadable else qp
        expected.append((entries[number] if number < len(entries) and not unreadable else None, unreadable))
        messages[qp][-1] += 1
        if expected[-1][0] is None:
            del messages[qp]
    got, got_reads = run(asks, data_width=data_width, wqe_bytes=wqe_bytes, stall=0.3, rng=rng)
    assert [(entry, failed) for entry, failed, _ in got] == expected
    assert got_reads == reads


def test_cycles():
    """Entry 2 is always read; then 4 cycles an entry."""
    rng = make_rng(1)
    entries, data = wqe(rng, 1, 5)
    asks = [(2, 5, 1, number, 0x1000, 3, 0x1000 + 5 * 128, data, False) for number in (2, 3, 4, 5, 2)]
    answers, reads = run(asks)
    assert [entry for entry, *_ in answers] == [entries[2], entries[3], entries[4], None, entries[2]]
    assert [cycles for *_, cycles in answers[1:4]] == [4, 4, 3]
    assert reads == [(0x1000 + 5 * 128, 128)] * 2


def test_converts():
    for width in (64, 512):
        rtlil.convert(EntryCache(width))
