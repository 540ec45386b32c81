"""WqeArea against a dictionary of words."""

import pytest
from streams import make_rng, simulate
from verbena.hdl.queue.wqe_area import WqeArea


@pytest.mark.parametrize("puts", [False, True])
@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_packets(data_width, puts):
    """Packets that begin at any word and wrap around the end, and words between their beats; all is read back."""
    rng = make_rng()
    dut = WqeArea(data_width, 2, 256, puts=puts)
    words = 2 * 256 // 8
    lanes = data_width // 64
    model = [0] * words

    async def testbench(ctx):
        for _ in range(25):
            start = rng.randrange(words)
            count = rng.randint(1, 32)
            packet = [rng.getrandbits(64) for _ in range(count)]
            places = [(start + n) % words for n in range(count)]
            for place, word in zip(places, packet):
                model[place] = word
            ctx.set(dut.start, start)
            for n in range(0, count, lanes):
                part = packet[n : n + lanes]
                noise = rng.getrandbits(data_width) >> 64 * len(part) << 64 * len(part)
                value = sum(word << 64 * lane for lane, word in enumerate(part)) | noise
                beat = {"data": value, "count": 8 * len(part), "first": n == 0, "last": n + lanes >= count}
                ctx.set(dut.beat, beat)
                while rng.random() < 0.3:
                    at, word = rng.randrange(words), rng.getrandbits(64)
                    if puts and at not in places:
                        model[at] = word
                        ctx.set(dut.put_addr, at)
                        ctx.set(dut.put_word, word)
                        ctx.set(dut.put_en, 1)
                    await ctx.tick()
                    if puts:
                        ctx.set(dut.put_en, 0)
                ctx.set(dut.beat_en, 1)
                if puts:
                    ctx.set(dut.put_en, rng.randrange(2))  # in vain
                await ctx.tick()
                if puts:
                    ctx.set(dut.put_en, 0)
                ctx.set(dut.beat_en, 0)
            await ctx.tick()
            got = []
            for n in range(words + 2):
                if n >= 2:
                    got.append(ctx.get(dut.word))
                ctx.set(dut.word_addr, n % words)
                await ctx.tick()
            assert got == model

    simulate(dut, testbench, seed=rng.seed_value)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"blocks \* size must be a power of two of at least two beats, not 3 \* 256"):
        WqeArea(64, 3, 256)
    with pytest.raises(ValueError, match="data_width must be 64, 128, 256 or 512, not 96"):
        WqeArea(96, 2, 256)
