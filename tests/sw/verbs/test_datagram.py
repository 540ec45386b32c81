"""The header in front of a datagram, against scapy."""

import random

import pytest
from scapy.layers.inet import IP
from verbena.sw.verbs.addr import GRH
from verbena.sw.verbs.datagram import GRH_BYTES, grh_of


@pytest.mark.parametrize("seed", range(5))
def test_the_header_is_that_of_the_packet(seed):
    """As Linux and this engine send it: no options, not to be fragmented, identification 0."""
    rng = random.Random(seed)
    for _ in range(50):
        length, immediate = rng.randrange(4097), rng.randrange(2)
        entry = {
            "flags": 1 | 2 * immediate,
            "byte_length": GRH_BYTES + length,
            "traffic_class": rng.randrange(256),
            "hop_limit": rng.randrange(256),
            "source_ip": rng.getrandbits(32),
        }
        own = rng.getrandbits(32)
        source, dest = (
            ".".join(str(ip >> shift & 255) for shift in (24, 16, 8, 0)) for ip in (entry["source_ip"], own)
        )
        size = 20 + 8 + 12 + 8 + 4 * immediate + length + -length % 4 + 4
        tos, ttl = entry["traffic_class"], entry["hop_limit"]
        wanted = IP(src=source, dst=dest, tos=tos, ttl=ttl, proto=17, id=0, flags="DF", len=size)
        header = grh_of(entry, own)
        assert header == bytes(20) + bytes(wanted)
        parsed = GRH.unpack(header)
        assert parsed.hop_limit == ttl
        assert parsed.sgid.endswith(f"{entry['source_ip'] >> 16:04x}:{entry['source_ip'] & 0xFFFF:04x}")
