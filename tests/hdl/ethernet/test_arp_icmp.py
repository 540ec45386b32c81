"""The station against scapy's packets."""

import pytest
from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, beats, ip_text, mac_text, padded
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from station_bench import LONGEST, REST, Bench, upper_case
from station_frames import BROADCAST, arp, arp_answer, echo, echo_answer, internet_sum, plain, udp
from verbena.hdl.ethernet.arp_icmp import ArpIcmp

WIDTHS = [64, 128, 256, 512]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("size", [42, 60, 64, 200])
def test_arp_request(width, size):
    """To all and to us alone."""
    bench = Bench(width)
    assert bench.run([padded(arp(), size), REST, padded(arp(to=MAC), size)]) == [arp_answer()] * 2
    assert bench.counted(arp_replies=2)


def test_arp_probe():
    """RFC 5227: somebody who has no address yet asks whether ours is free."""
    sender = (PEER_MAC, 0)
    assert Bench().run([padded(arp(sender=sender))]) == [arp_answer(sender)]


@pytest.mark.parametrize(
    ("frame", "words", "sent"), [(padded(arp()), 24, 6), (padded(echo(bytes(100))), 31, 18)], ids=["arp", "echo"]
)
def test_latency(frame, words, sent):
    bench = Bench(stall=0)
    last, valid = [], []

    async def watch(ctx):
        dut = bench.dut
        async for _, _, one, other in ctx.tick().sample(dut.i_valid & dut.i.last, dut.o.valid):
            last.append(one)
            valid.append(other)

    bench.run([frame], watch=[watch])
    assert valid.index(1) - last.index(1) == 5 * words + 6
    assert [n - valid.index(1) for n, one in enumerate(valid) if one] == [3 * n for n in range(sent)]


@pytest.mark.parametrize("width", WIDTHS)
def test_echo_of_all_small_sizes(width):
    """With TOS, ID and DF as they come, padded to 60 bytes."""
    bench = Bench(width)
    requests = []
    for size in range(40 if width == 64 else 20):
        ip = {"tos": bench.rng.randrange(256), "id": bench.rng.getrandbits(16), "flags": bench.rng.choice(["", "DF"])}
        ip["ttl"] = bench.rng.randrange(1, 256)
        icmp = {"id": bench.rng.getrandbits(16), "seq": bench.rng.getrandbits(16)}
        requests.append(echo(bench.rng.randbytes(size), ip=ip, icmp=icmp))
    frames = bench.run([action for request in requests for action in (padded(request), REST)])
    assert [*map(plain, frames)] == [plain(echo_answer(request)) for request in requests]
    for frame in frames:
        assert internet_sum(frame[14:34]) == internet_sum(frame[34:]) == 0xFFFF
    assert bench.counted(echo_replies=len(requests))


def test_echo_of_large_sizes():
    """Up to what fits; a byte more is dropped, and so is what is much more; the next one is answered again."""
    bench = Bench(stall=0.05)
    sizes = [*(bench.rng.randrange(75, 4054) for _ in range(4)), 1472, 4053, 4054]
    requests = [echo(bench.rng.randbytes(size)) for size in (*sizes, 4055, 4056, 9000, 0)]
    frames = bench.run([action for request in requests for action in (bytes(request), REST)])
    answered = [request for request in requests if len(request) <= 4096]
    assert [*map(plain, frames)] == [plain(echo_answer(request)) for request in answered]
    assert bench.counted(echo_replies=8, drop_station=3)


def test_echo_whose_checksum_passes_zero():
    """Every value of the checksum's high byte, where the old type leaves it, and an empty sum."""
    bench = Bench(stall=0)
    requests = [echo(icmp={"id": n << 8, "seq": 0}) for n in range(0, 256, 5)]
    requests += [echo(icmp={"id": n, "seq": 0}) for n in (0, 1, 0xF7FE, 0xF7FF, 0xF800, 0xFFFF)]
    frames = bench.run([action for request in requests for action in (padded(request), REST)])
    assert [*map(plain, frames)] == [plain(echo_answer(request)) for request in requests]
    for frame in frames:
        assert internet_sum(frame[34:]) == 0xFFFF


def test_wrong_icmp_checksum_stays_wrong():
    frame = bytearray(padded(echo(b"damaged on its way")))
    frame[50] ^= 4
    (answer,) = Bench().run([bytes(frame)])
    assert internet_sum(answer[34:60]) != 0xFFFF


def changed(frame, at, value):
    frame = bytearray(padded(frame))
    frame[at : at + len(value)] = value
    return bytes(frame)


IGNORED = {
    "arp for another": arp(target=(0, IP_ADDRESS + 1)),
    "arp for another, first bit": arp(target=(0, IP_ADDRESS ^ 1 << 31)),
    "arp reply that nobody wants": arp(2, to=MAC, target=(MAC, IP_ADDRESS)),
    "reverse arp": arp(3),
    "arp operation 257": arp(257),
    "arp of other hardware": arp(hwtype=6),
    "arp of another protocol": arp(ptype=0x86DD),
    "arp hardware size": arp(hwlen=8),
    "arp protocol size": arp(plen=16),
    "arp from a group": changed(arp(), 22, b"\x01"),
    "arp in a VLAN": Ether(dst=mac_text(BROADCAST)) / Dot1Q(vlan=5) / bytes(arp())[14:],
    "echo in a VLAN": Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC)) / Dot1Q(vlan=5) / echo()[IP],
    "echo for another": echo(ip={"dst": ip_text(IP_ADDRESS ^ 1 << 20)}),
    "echo to all": echo(to=BROADCAST),
    "echo to another station": echo(to=MAC ^ 1 << 40),
    "echo to another station, last bit": echo(to=MAC ^ 1),
    "echo from a group": changed(echo(), 6, b"\x01"),
    "echo reply": echo(icmp={"type": 0}),
    "echo of code 1": echo(icmp={"code": 1}),
    "unreachable": echo(icmp={"type": 3, "code": 3}),
    "first fragment": echo(b"some", ip={"flags": "MF"}),
    "last fragment": echo(b"some", ip={"frag": 100}),
    "ip checksum": changed(echo(), 24, b"\x12\x34"),
    "ip options": echo(ip={"options": b"\x01\x01\x01\x01"}),
    "ip version 5": echo(ip={"version": 5}),
    "ip header length 4": echo(ip={"ihl": 4}),
    "udp": Ether(dst=mac_text(MAC), src=mac_text(PEER_MAC))
    / IP(dst=ip_text(IP_ADDRESS))
    / UDP(dport=4791)
    / Raw(b"roce"),
    "other ethertype": changed(arp(), 12, b"\x88\xcc"),
}


@pytest.mark.parametrize("frame", IGNORED.values(), ids=IGNORED.keys())
def test_ignored(frame):
    bench = Bench()
    assert bench.run([padded(frame), REST, padded(arp())]) == [arp_answer()]
    assert bench.counted(arp_replies=1)


@pytest.mark.parametrize("length", [0, 20, 27, 47, 48, 4000, 4082, 4083, 8191, 8192 + 28, 65535])
def test_ip_length_that_is_not_the_frames(length):
    """47 is too much for a frame of 60 bytes."""
    bench = Bench()
    assert bench.run([padded(echo(ip={"len": length})), REST, padded(arp())]) == [arp_answer()]


@pytest.mark.parametrize("length", [28, 29, 45, 46])
def test_ip_length_decides(length):
    """The rest of the frame is filling, and is not sent back."""
    request = padded(echo(ip={"len": length}))
    (answer,) = Bench().run([request])
    assert answer[42:] == request[42 : 14 + length]


@pytest.mark.parametrize("width", WIDTHS)
def test_truncated(width):
    """Frames of every length from a single byte on; a whole one after each is answered."""
    bench = Bench(width, stall=0)
    script, wanted = [], []
    for size in range(1, 60, 1 if width == 64 else 3):
        for request, answer in (arp(), arp_answer()), (echo(b"echo, echo."), echo_answer(echo(b"echo, echo."))):
            script += [bytes(request)[:size], REST]
            if size >= len(request):
                wanted.append(answer)
    script.append(padded(arp()))
    assert [*map(plain, bench.run(script))] == [*map(plain, wanted), arp_answer()]


def test_damaged():
    bench = Bench()
    assert bench.run([(padded(arp()), True), REST, (padded(echo()), True), REST, padded(arp())]) == [arp_answer()]
    assert bench.counted(arp_replies=1)


def test_nothing_is_answered_before_the_addresses_are_known():
    bench = Bench(enable=0)
    assert bench.run([bench.ask(), padded(arp()), REST, padded(echo())]) == []
    assert bench.counted()


@pytest.mark.parametrize("width", WIDTHS)
def test_other_traffic_does_not_hide_a_request(width):
    """The request comes right behind other frames, without a pause."""
    bench = Bench(width, stall=0)
    others = [padded(IGNORED["udp"]), padded(IGNORED["other ethertype"]), bytes(IGNORED["udp"] / Raw(bytes(1000)))]
    assert bench.run([*others * 3, padded(arp())]) == [arp_answer()]
    assert bench.counted(arp_replies=1)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stall", [0, 0.3])
def test_requests_without_pause(width, stall):
    """Each is answered whole, or dropped and counted."""
    bench = Bench(width, stall=stall)
    requests = {
        plain(echo_answer(r)): r for n in range(150) for r in [echo(bench.rng.randbytes(n % 40), icmp={"id": n})]
    }
    requests |= {arp_answer((PEER_MAC + n, PEER_IP + n)): arp(sender=(PEER_MAC + n, PEER_IP + n)) for n in range(50)}
    order = [*requests.values()]
    bench.rng.shuffle(order)
    frames = bench.run([padded(request) for request in order])
    sent = [padded(requests[plain(frame)]) for frame in frames]
    order = [padded(request) for request in order]
    assert [order.index(frame) for frame in sent] == sorted(order.index(frame) for frame in sent)
    counts = bench.counts
    assert counts["arp_replies"] + counts["echo_replies"] == len(frames) > 1
    assert counts["drop_station"] == len(order) - len(frames) > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_question_and_answer(width):
    bench = Bench(width)
    reply = padded(arp(2, to=MAC, target=(MAC, IP_ADDRESS)))
    frames = bench.run([bench.ask(), REST, reply])
    assert frames == [bytes(arp(sender=(MAC, IP_ADDRESS), target=(0, PEER_IP)))]
    assert bench.neighbour == PEER_MAC
    assert bench.counted()


@pytest.mark.parametrize(
    "reply",
    [
        arp(2, to=MAC, sender=(PEER_MAC, PEER_IP + 1), target=(MAC, IP_ADDRESS)),
        arp(2, to=MAC, sender=(PEER_MAC, PEER_IP ^ 1 << 31), target=(MAC, IP_ADDRESS)),
        arp(2, to=MAC, target=(MAC, IP_ADDRESS + 1)),
        changed(arp(2, to=MAC, target=(MAC, IP_ADDRESS)), 22, b"\xff"),
        arp(1, target=(0, IP_ADDRESS + 1)),
        bytes(arp(2, to=MAC, target=(MAC, IP_ADDRESS)))[:41],
    ],
    ids=["another", "another, first bit", "for another", "a group", "request", "short"],
)
def test_wrong_answer(reply):
    """It is passed over, and the right one is still waited for."""
    bench = Bench()
    right = padded(arp(2, to=MAC, target=(MAC, IP_ADDRESS)))
    bench.run([bench.ask(), REST, bytes(reply)])
    assert bench.neighbour is None
    bench.run([bench.ask(), REST, bytes(reply), REST, right])
    assert bench.neighbour == PEER_MAC


def test_only_the_first_answer_counts():
    bench = Bench()
    replies = [padded(arp(2, to=MAC, sender=(PEER_MAC + n, PEER_IP), target=(MAC, IP_ADDRESS))) for n in (0, 1)]
    assert len(bench.run([replies[1], REST, bench.ask(), REST, *replies, REST, replies[1]])) == 1
    assert bench.neighbour == PEER_MAC


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1, 2))])
def test_an_answer_to_the_question_before_does_not_count(first):
    """Whenever the new question comes while the answer to the old one is looked at; there a word takes 5 cycles."""
    bench = Bench(stall=0)
    reply = padded(arp(2, to=MAC, target=(MAC, IP_ADDRESS)))
    known, script = [], []
    for wait in range(first, 75, 3):
        script += [bench.ask(), 150, reply, wait, bench.ask(PEER_IP + 1), 200]
        script.append(lambda ctx: known.append(ctx.get(bench.dut.neighbour_valid)))
    assert len(bench.run(script)) == 2 * 25
    assert known == [0] * 25


def test_question_at_any_time():
    """It is sent once what is under way is done, and no frame is torn, whatever comes meanwhile."""
    bench = Bench(stall=0)
    question = bytes(arp(sender=(MAC, IP_ADDRESS), target=(0, PEER_IP)))
    waits = range(0, 180, 7)
    script = [[padded(arp()), wait, bench.ask(), padded(echo()), LONGEST, padded(arp()), 200] for wait in waits]
    frames = bench.run([action for part in script for action in part])
    assert frames.count(question) == len(waits)
    answers = [plain(frame) for frame in frames if frame != question]
    assert answers.count(arp_answer()) == 2 * len(waits)
    assert answers.count(plain(echo_answer(echo()))) == len(answers) - 2 * len(waits)
    assert len(answers) + bench.counts["drop_station"] == 3 * len(waits)


def test_question_in_the_middle_of_a_frame_that_stops():
    """What remains of that frame, however late it comes, is not taken for a new one."""
    bench = Bench(stall=0)
    frame = padded(arp())

    def half(first):
        def action(ctx):
            ctx.set(bench.dut.i, beats(frame, 64)[0 if first else 7])
            ctx.set(bench.dut.i_valid, 1)

        return action

    def none(ctx):
        ctx.set(bench.dut.i_valid, 0)

    frames = bench.run([half(True), none, bench.ask(), REST, half(False), none, REST, frame])
    assert frames == [bytes(arp(sender=(MAC, IP_ADDRESS), target=(0, PEER_IP))), arp_answer()]


@pytest.mark.parametrize("width", WIDTHS)
def test_service(width):
    """Its answer goes to who asked, as long as it says; without one nothing goes out. ARP and ping go on."""
    bench = Bench(width, udp_port=1234)
    requests = [udp(b"abcdefgh" * n, ip={"src": ip_text(PEER_IP + n)}) for n in range(1, 6)]
    sizes = [8, 1, 24, 0, 39]
    seen = []

    async def service(ctx):
        await upper_case(ctx, bench.dut, sizes, seen)

    script = [action for request in requests for action in (padded(request), 600)]
    script += [padded(udp(b"x", port=1235)), REST, padded(arp()), REST, padded(echo(b"ping"))]
    frames = bench.run(script, watch=[service])
    assert seen == [(PEER_IP + n, b"abcdefgh" * n) for n in range(1, 6)]
    assert frames[-2:] == [arp_answer(), plain(echo_answer(echo(b"ping")))]
    asked = [(request, size) for request, size in zip(requests, sizes) if size]
    for frame, (request, size) in zip(frames[:-2], asked, strict=True):
        answer, length = Ether(frame), len(request[Raw].load)
        assert internet_sum(frame[14:34]) == 0xFFFF
        assert (answer.src, answer.dst) == (request.dst, request.src)
        assert (answer[IP].src, answer[IP].dst, answer[IP].ttl) == (request[IP].dst, request[IP].src, 64)
        assert (answer[UDP].sport, answer[UDP].dport, answer[UDP].chksum) == (1234, 4660, 0)
        assert (answer[IP].len, answer[UDP].len, len(frame)) == (28 + size, 8 + size, 42 + size)
        assert answer[Raw].load[:length] == request[Raw].load.upper()[:size]
    assert bench.counted(arp_replies=1, echo_replies=1)


@pytest.mark.parametrize("depth", [0, 128, 300, 8192, 512.0])
def test_arguments(depth):
    with pytest.raises(ValueError, match=f"not {depth}"):
        ArpIcmp(64, depth=depth)
