"""Several own addresses, some of them in VLANs: ARP, neighbour discovery and ping, against scapy's packets."""

import pytest
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, ip_text, mac_text, padded
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Dot1Q, Ether
from station_bench import REST, Bench, upper_case
from station_frames import PEER, advertisement, arp, echo, echo_answer, in_vlan, plain, solicitation, udp
from verbena.hdl.abi.gids import GidType

WIDTHS = [64, 128, 256, 512]

SIX, FOUR, V1 = GidType.ROCE_V2_IPV6, GidType.ROCE_V2_IPV4, GidType.ROCE_V1
ROWS = {
    0: ("10.0.0.1", FOUR, 0),
    1: ("fe80::200:ff:fe00:1", SIX, 0),
    3: ("10.1.0.1", FOUR, 100),
    4: ("fd00:100::1", SIX, 100),
    5: ("10.2.0.1", FOUR, 0xABC),
    6: ("10.3.0.1", FOUR, 0),
    9: ("fd00:abc::1", V1, 0xABC),
    10: ("10.1.0.1", None, 0),
    11: ("fd00:100::1", None, 0xABC),
}
"""``IP_ADDRESS`` is that of row 0; two rows are not valid."""


def address(text):
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def request(text, *, to=MAC):
    return padded(arp(to=to, target=(0, address(text))))


def reply(text):
    return bytes(arp(2, to=PEER_MAC, sender=(MAC, address(text)), target=(PEER_MAC, PEER_IP)))


def tagged(frame, vlan, priority=0):
    return in_vlan(frame, vlan, priority) if vlan else bytes(frame)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_address_in_its_vlan(width):
    """With the priority of the question."""
    bench = Bench(width, ipv6=True)
    script, expected = bench.table(ROWS), []
    for text, kind, vlan in ROWS.values():
        if kind is not None:
            priority = bench.rng.randrange(8) if vlan else 0
            ask, answer = (request, reply) if kind == FOUR else (solicitation, advertisement)
            script += [tagged(ask(text), vlan, priority), REST]
            expected.append(tagged(answer(text), vlan, priority))
    assert bench.run(script) == expected
    assert bench.counted(arp_replies=len(expected))


@pytest.mark.parametrize("width", [64, 512])
def test_in_another_vlan_nobody_answers(width):
    """Nor behind two tags; a priority alone is no VLAN."""
    bench = Bench(width, ipv6=True)
    script = bench.table(ROWS)
    for text, kind, own in ROWS.values():
        ask = solicitation if ":" in text else request
        for vlan in {0, 1, 100, 100 ^ 1 << 11, 0xABC} - {own if kind is not None else None}:
            if (text, vlan) not in {(row[0], row[2]) for row in ROWS.values() if row[1] is not None}:
                script += [tagged(ask(text), vlan), REST]
    twice = Ether(request("10.1.0.1"))
    script += [in_vlan(in_vlan(twice, 100), 100), REST]
    script += [in_vlan(request("10.0.0.1"), 0, 5), REST]
    assert bench.run(script, deadline=200_000) == [in_vlan(reply("10.0.0.1"), 0, 5)]


@pytest.mark.parametrize("width", WIDTHS)
def test_echo(width):
    """To the addresses of both versions, in a VLAN and outside, of all kinds of sizes."""
    bench = Bench(width, ipv6=True)
    script, expected = bench.table(ROWS), []
    for size in (0, 1, 7, 18, 300):
        data = bench.rng.randbytes(size)
        for text, vlan in ("10.1.0.1", 100), ("10.3.0.1", 0), ("10.0.0.1", 0):
            ask = echo(data, ip={"dst": text})
            script += [tagged(padded(ask), vlan, 3), REST]
            expected.append(tagged(plain(echo_answer(ask)), vlan, 3))
        for text, vlan in ("fd00:100::1", 100), ("fe80::200:ff:fe00:1", 0):
            ids = {"id": size, "seq": 3}
            ask = Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC)) / IPv6(src=PEER, dst=text, hlim=9)
            script += [tagged(ask / ICMPv6EchoRequest(**ids, data=data), vlan, 3), REST]
            answer = Ether(dst=mac_text(PEER_MAC), src=mac_text(MAC)) / IPv6(src=text, dst=PEER, hlim=64)
            expected.append(tagged(bytes(answer / ICMPv6EchoReply(**ids, data=data)), vlan, 3))
    frames = bench.run(script, deadline=400_000)
    assert [untouched(frame) for frame in frames] == expected
    assert bench.counted(echo_replies=len(expected))


def untouched(frame):
    """:func:`plain`, also behind a tag."""
    if frame[12:14] == b"\x81\x00":
        return frame[:12] + frame[12:16] + plain(frame[:12] + frame[16:])[12:]
    return plain(frame)


def test_echo_of_the_largest_size():
    """The room is for the frame with its tag; a byte more is dropped."""
    bench = Bench(ipv6=True, stall=0)
    script, expected = bench.table(ROWS), []
    for size in (4050, 4051):
        ask = echo(bench.rng.randbytes(size), ip={"dst": "10.1.0.1"})
        script += [in_vlan(ask, 100), REST]
        expected.append(in_vlan(plain(echo_answer(ask)), 100))
    assert [untouched(frame) for frame in bench.run(script)] == expected[:1]
    assert bench.counted(echo_replies=1, drop_station=1)


def question(row, text):
    own, kind, vlan = ROWS[row]
    if kind == FOUR:
        return tagged(arp(sender=(MAC, address(own)), target=(0, address(text))), vlan)
    return tagged(bytes(solicitation(text, source=own, sender=MAC)), vlan)


def answer(row, text, mac=PEER_MAC):
    own, kind, vlan = ROWS[row]
    if kind == FOUR:
        return tagged(padded(arp(2, to=MAC, sender=(mac, address(text)), target=(MAC, address(own)))), vlan, 2)
    return tagged(advertisement(text, to=own, mac=mac, receiver=MAC), vlan, 2)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("row", [row for row, each in ROWS.items() if each[1] is not None])
def test_asking(width, row):
    """From the row's address, in its VLAN."""
    bench = Bench(width, ipv6=True)
    text = "10.9.8.7" if ROWS[row][1] == FOUR else PEER
    script = [*bench.table(ROWS), bench.ask_from(row, text), REST, answer(row, text)]
    assert bench.run(script) == [question(row, text)]
    assert bench.neighbour == PEER_MAC
    assert bench.counted()


@pytest.mark.parametrize("row", [row for row, each in ROWS.items() if each[1] is not None])
def test_asking_while_another_frame_is_answered(row):
    """The VLAN is the row's, also of a question that is sent as soon as the answer has gone."""
    bench = Bench(ipv6=True, stall=0)
    text = "10.9.8.7" if ROWS[row][1] == FOUR else PEER
    frame = tagged(bytes(arp(to=MAC, target=(0, address("10.1.0.1")))), 100)
    script = [*bench.table(ROWS), frame, 20, bench.ask_from(row, text), REST, REST]
    answered, asked = bench.run(script)
    assert answered[:6] == frame[6:12]
    assert asked == question(row, text)


@pytest.mark.parametrize(("row", "text"), [(3, "10.9.8.7"), (4, PEER), (0, "10.9.8.7"), (1, PEER)])
def test_an_answer_in_another_vlan_does_not_count(row, text):
    bench = Bench(ipv6=True)
    right = answer(row, text)
    bare = right[:12] + right[16:] if ROWS[row][2] else right
    script = [*bench.table(ROWS), bench.ask_from(row, text), REST]
    for vlan in {0, 101, 0xABC} - {ROWS[row][2]}:
        script += [tagged(padded(bare), vlan), REST]
    assert bench.run(script) == [question(row, text)]
    assert bench.neighbour is None
    bench.run([*script, right])
    assert bench.neighbour == PEER_MAC


@pytest.mark.parametrize("width", WIDTHS)
def test_truncated(width):
    """A frame that ends in its tag, or behind it, is passed over; a whole one after each is answered."""
    bench = Bench(width, ipv6=True, stall=0)
    whole, expected = tagged(bytes(arp(to=MAC, target=(0, address("10.1.0.1")))), 100), []
    script = bench.table(ROWS)
    for size in range(10, len(whole) + 1, 1 if width == 64 else 3):
        script += [whole[:size], REST]
        expected += [tagged(reply("10.1.0.1"), 100)] * (size >= len(whole))
    expected.append(tagged(reply("10.1.0.1"), 100))
    assert bench.run([*script, padded(whole)], deadline=200_000) == expected


def test_service():
    """UDP in a VLAN is answered there."""
    bench = Bench(ipv6=True, udp_port=1234)
    seen = []

    async def service(ctx):
        await upper_case(ctx, bench.dut, [16, 16], seen)

    script = bench.table(ROWS)
    for text, vlan in ("10.1.0.1", 100), (ip_text(IP_ADDRESS), 0):
        script += [tagged(padded(udp(b"abcdefgh" * 2, ip={"dst": text})), vlan), 900]
    one, other = map(Ether, bench.run(script, watch=[service]))
    assert seen == [(PEER_IP, b"abcdefgh" * 2)] * 2
    assert one[Dot1Q].vlan == 100
    assert Dot1Q not in other
    for frame, text in (one, "10.1.0.1"), (other, ip_text(IP_ADDRESS)):
        packet = frame["IP"]
        assert (frame.src, packet.src, packet.dst) == (mac_text(MAC), text, ip_text(PEER_IP))
        assert bytes(packet["UDP"].payload) == b"ABCDEFGH" * 2
        again = packet.copy()
        del again.chksum
        assert bytes(again) == bytes(packet)
