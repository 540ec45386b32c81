"""The serial bridge, with characters written bit by bit."""

import pytest
from bus_answers import serve
from streams import make_rng, simulate
from verbena.boards import uart
from verbena.boards.uart import UartBridge


def run(divider, text, answers, *, later=b"", silence=1, rest=50):
    """(characters that come back, the bus's writes) for the characters ``text`` and, ``silence`` cycles behind them,
    those of ``later``.
    """
    rng = make_rng()
    dut = UartBridge(divider)
    got, writes = [], []

    async def sender(ctx):
        ctx.set(dut.rx, 1)
        await ctx.tick().repeat(5)
        for characters, wait in ((text, silence), (later, rest * divider)):
            for byte in characters:
                for bit in (0, *(byte >> n & 1 for n in range(8)), 1):
                    ctx.set(dut.rx, bit)
                    await ctx.tick().repeat(divider)
            await ctx.tick().repeat(wait)

    async def listener(ctx):
        while True:
            *_, level = await ctx.tick().sample(dut.tx)
            if level:
                continue
            await ctx.tick().repeat(divider // 2)
            byte = 0
            for n in range(8):
                await ctx.tick().repeat(divider)
                byte |= ctx.get(dut.tx) << n
            await ctx.tick().repeat(divider)
            assert ctx.get(dut.tx), "no stop bit"
            got.append(byte)

    def respond(request):
        if request.write:
            writes.append((request.address, request.data))
        return answers.get(request.address)

    async def bus(ctx):
        await serve(ctx, dut.bus, rng, respond)

    simulate(dut, sender, background=[listener, bus], seed=rng.seed_value, deadline=200_000)
    return bytes(got), writes


def words(*values):
    return b"".join(value.to_bytes(4, "big") for value in values)


@pytest.mark.parametrize("divider", [5, 16])
def test_writes_and_reads(divider):
    answers = {0x40000000 + 4 * n: 0x01020304 * (n + 1) for n in range(8)}
    text = b"\x01\x03" + words(0x40000000 // 4, 0xCAFEF00D, 1, 0x80000000)
    text += b"\x01\x01" + words(2, 5) + b"\x02\x03" + words(0x40000008 // 4)
    got, writes = run(divider, text, answers, rest=140)
    assert writes == [(0x40000000, 0xCAFEF00D), (0x40000004, 1), (0x40000008, 0x80000000), (8, 5)]
    assert got == words(answers[0x40000008], answers[0x4000000C], answers[0x40000010])


def test_noise_begins_nothing():
    text = b"\x00\x7f\xff\x03" + b"\x02\x00" + words(4) + b"\x02\x01" + words(4)
    assert run(6, text, {16: 0x55AA55AA}) == (words(0x55AA55AA), [])


def test_an_unknown_address_reads_as_zero():
    assert run(6, b"\x02\x02" + words(4), {20: 7}, rest=100) == (words(0, 7), [])


def test_a_command_that_stops_is_forgotten(monkeypatch):
    monkeypatch.setattr(uart, "PATIENCE", 512)
    text, whole = b"\x01\x01\x00\x00", b"\x01\x01" + words(3, 9)
    assert run(5, text, {12: 0}, later=whole, silence=600) == (b"", [(12, 9)])
    assert run(5, text, {12: 0}, later=whole, silence=400)[1] != [(12, 9)]


@pytest.mark.parametrize("divider", [3, 10.0])
def test_arguments(divider):
    with pytest.raises(ValueError, match="divider must be"):
        UartBridge(divider)
