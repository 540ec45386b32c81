"""The IP checksum against scapy."""

from ether_frames import IP_ADDRESS, ip_text
from roce_frames import random_path
from scapy.layers.inet import IP
from streams import make_rng, simulate
from verbena.hdl.wire.ip_checksum import IpChecksum

CONSTANT = {"version": 4, "header_words": 5, "dont_fragment": 1, "protocol": 17}


def test_against_scapy():
    """With addresses for which adding the carries carries again, or just does not."""
    rng = make_rng()
    dut = IpChecksum(CONSTANT)
    items = [(random_path(rng), rng.randrange(11, 1 << 11)) for _ in range(200)]
    expected, edges = [], 0
    for index, (path, words) in enumerate(items):
        header = IP(src=ip_text(IP_ADDRESS), id=0, flags="DF", proto=17, len=words * 4, chksum=0)
        header.tos, header.ttl, header.dst = path["traffic_class"], path["hop_limit"], "0.0.0.0"
        packed = bytes(header)
        total = sum(int.from_bytes(packed[n : n + 2], "big") for n in range(0, 20, 2)) + 0xFFFF
        if index >= 100:
            low = (0x10000 - (total >> 16) - total + rng.randrange(-4, 4)) & 0xFFFF
            path["ip"] = 0xFFFF0000 | low
            edges += (total + low & 0xFFFF) + (total + low >> 16) >= 0x10000
        header.dst, header.chksum = ip_text(path["ip"]), None
        expected.append(IP(bytes(header)).chksum)
    assert edges > 3
    got = []

    async def testbench(ctx):
        ctx.set(dut.ip, IP_ADDRESS)
        await ctx.tick().repeat(3)
        for path, words in items:
            ctx.set(dut.path, path)
            await ctx.tick()
            ctx.set(dut.words, words)
            await ctx.tick().repeat(dut.latency + rng.randrange(2))
            got.append(ctx.get(dut.o))

    simulate(dut, testbench, seed=rng.seed_value)
    assert got == expected
