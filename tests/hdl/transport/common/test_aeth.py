"""The credit codes, against the table as the specification prints it."""

import pytest
from amaranth.hdl import Module, Signal
from receive_world import CREDITS as PRINTED
from streams import simulate
from verbena.hdl.transport.common.aeth import (
    CREDITS,
    NO_CREDITS,
    AethSyndrome,
    credit_code,
    credit_count,
    decode_credits,
    encode_credits,
)


def test_table():
    assert list(CREDITS) == PRINTED
    assert [credit_count(code) for code in range(32)] == [*PRINTED, None]
    assert [credit_code(count) for count in (0, 1, 5, 6, 7, 8, 32767, 32768, 40000)] == [0, 1, 4, 5, 5, 6, 29, 30, 30]
    assert NO_CREDITS == 31
    assert AethSyndrome.NAK_REMOTE_OPERATION == 0x63


def test_hardware():
    """Every code, and every count up to 1100, and around each higher one of the table."""
    m = Module()
    count, code = Signal(16), Signal(5)
    encoded, decoded = Signal(5), Signal(16)
    m.d.comb += [encoded.eq(encode_credits(count)), decoded.eq(decode_credits(code))]

    async def script(ctx):
        around = {printed + step for printed in PRINTED for step in (-1, 0, 1)} & set(range(32769))
        for value in sorted(around | set(range(1100))):
            ctx.set(count, value)
            await ctx.delay(1e-9)
            assert ctx.get(encoded) == max(code for code, printed in enumerate(PRINTED) if printed <= value), value
        for number, printed in enumerate(PRINTED):
            ctx.set(code, number)
            await ctx.delay(1e-9)
            assert ctx.get(decoded) == printed

    m.d.sync += Signal().eq(0)
    simulate(m, script)


def test_arguments():
    with pytest.raises(ValueError, match="count must be an int of at least 0, not -1"):
        credit_code(-1)
    with pytest.raises(ValueError, match="code must be 0 to 31, not 32"):
        credit_count(32)
    with pytest.raises(ValueError, match="count must have 16 bits, not 15"):
        encode_credits(Signal(15))
    with pytest.raises(ValueError, match="code must have 5 bits, not 8"):
        decode_credits(Signal(8))
