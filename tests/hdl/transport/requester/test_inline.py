"""Words in, beats out, at any width."""

import pytest
from streams import make_rng, receive_all, simulate
from verbena.hdl.transport.requester.inline import InlineQueue


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_packets(width):
    rng = make_rng()
    dut = InlineQueue(width)
    packets = [rng.randbytes(rng.choice([1, 7, 8, 9, 64, 96, rng.randrange(1, 97)])) for _ in range(60)]
    beats = sum(-(-len(packet) * 8 // width) for packet in packets)

    async def reader(ctx):
        """A word comes two cycles after it was asked for."""
        words = []
        for packet in packets:
            for start in range(0, len(packet), 8):
                chunk = packet[start : start + 8]
                last = start + 8 >= len(packet)
                words.append({"data": int.from_bytes(chunk, "little"), "count": len(chunk) % 8, "last": last})
        under_way = [None, None]
        while words or any(under_way):
            word = under_way.pop(0)
            ctx.set(dut.put, word is not None)
            if word is not None:
                ctx.set(dut.word, word)
            ask = words and ctx.get(dut.room) and rng.random() < 0.9
            under_way.append(words.pop(0) if ask else None)
            await ctx.tick()
        ctx.set(dut.put, 0)

    async def sink(ctx):
        data = b""
        seen = []
        for beat in await receive_all(ctx, dut.o, beats, rng):
            assert (beat["first"], beat["error"]) == (data == b"", 0)
            assert beat["last"] or beat["count"] == width // 8
            data += beat["data"].to_bytes(width // 8, "little")[: beat["count"]]
            if beat["last"]:
                seen.append(data)
                data = b""
        assert seen == packets

    simulate(dut, reader, sink, seed=rng.seed_value)
