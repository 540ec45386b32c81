"""The management interface against a PHY that is written after the standard, bit by bit."""

import pytest
from streams import make_rng, receive_all, send_all, simulate
from verbena.hdl.ethernet.mdio import Mdio

PHY = 5


class Phy:
    """Looks at the line where the clock rises, and drives it from then until the next rise."""

    def __init__(self, dut):
        self.dut = dut
        self.registers = dict.fromkeys(range(32), 0xFFFF)
        self.writes = []
        self.lengths = set()

    async def run(self, ctx):
        dut = self.dut
        ones, bits, drive, before, age = 0, None, [], 0, 0
        edges = aiter(ctx.tick().sample(dut.clock, dut.o, dut.oe))
        while True:
            *_, clock, o, oe = await anext(edges)
            age += 1
            if clock == before:
                continue
            self.lengths.add(age)
            age, before = 0, clock
            if not clock:
                continue
            assert not (oe and drive), "both sides drive the line"
            line = o if oe else (drive[0] if drive else 1)
            if drive:
                drive.pop(0)
            if bits is None:
                if line:
                    ones += 1
                else:
                    assert ones >= 32, "the preamble is too short"
                    bits = [0]
            else:
                bits.append(line)
                text = "".join(map(str, bits))
                if len(bits) == 14 and text[2:4] == "10" and int(text[4:9], 2) == PHY:
                    drive = [1, 0, *map(int, f"{self.registers[int(text[9:14], 2)]:016b}")]
                if len(bits) == 32:
                    assert text[:2] == "01"
                    assert text[2:4] in ("01", "10")
                    if text[2:4] == "01":
                        assert text[14:16] == "10"
                        if int(text[4:9], 2) == PHY:
                            self.registers[int(text[9:14], 2)] = int(text[16:], 2)
                            self.writes.append((int(text[9:14], 2), int(text[16:], 2)))
                    bits, ones = None, 0
            ctx.set(dut.i, drive[0] if drive else 1)


@pytest.mark.parametrize(("divider", "count"), [(4, 12), (25, 4), pytest.param(25, 12, marks=pytest.mark.slow)])
def test_reads_and_writes(divider, count):
    rng = make_rng()
    dut = Mdio(divider)
    phy = Phy(dut)
    requests, wanted, model, written = [], [], dict(phy.registers), []
    for _ in range(count):
        where, register, value = rng.choice([PHY, PHY, PHY, 4]), rng.randrange(4), rng.getrandbits(16)
        write = rng.randrange(2)
        requests.append({"write": write, "phy": where, "register": register, "data": value})
        if write and where == PHY:
            model[register] = value
            written.append((register, value))
        wanted.append(None if write else (model[register], 0) if where == PHY else (0xFFFF, 1))

    async def sender(ctx):
        ctx.set(dut.i, 1)
        await send_all(ctx, dut.request, requests, rng, 0.9)

    async def receiver(ctx):
        answers = await receive_all(ctx, dut.answer, len(requests), rng, 0.9)
        for answer, what in zip(answers, wanted):
            assert what is None or (answer.data, answer.missing) == what

    simulate(dut, sender, receiver, background=[phy.run], seed=rng.seed_value, deadline=70 * 2 * divider * count)
    assert phy.writes == written
    assert min(phy.lengths) >= divider


@pytest.mark.parametrize("divider", [1, 2.5])
def test_arguments(divider):
    with pytest.raises(ValueError, match="divider must be"):
        Mdio(divider)
