"""A foreign host on the wire: it finds the adapter by ARP, pings it, and is found; and RoCE goes on meanwhile."""

import errno

import pytest
from ends import WRITE, End, completions, connect, data_width, fill, send, settle, sge, world
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from streams import make_rng
from verbena.sw.adapter import AdapterError

HOST_MAC, HOST_IP = 0x0256420000F0, 0x0A0000F0
HOST, HOST_ADDRESS = "02:56:42:00:00:f0", "10.0.0.240"
OURS = "10.0.0.1"
ALL = "ff:ff:ff:ff:ff:ff"


class Host:
    """A tap that answers ARP requests for its address, unless it is told not to; it keeps all else that comes."""

    def __init__(self):
        self.tap = world().tap(HOST_MAC)
        self.frames = []
        self.ignored = 0
        self.asked = 0
        self.late = 0  # cycles after which an answer leaves
        self.answers = []  # cycle, packet

    def send(self, packet):
        frame = bytes(packet)
        self.tap.send(frame + bytes(max(0, 60 - len(frame))))

    def work(self):
        while (frame := self.tap.receive()) is not None:
            packet = Ether(frame)
            if ARP in packet and packet[ARP].op == 1 and packet[ARP].pdst == HOST_ADDRESS:
                self.asked += 1
                if self.asked > self.ignored:
                    answer = ARP(op=2, hwsrc=HOST, psrc=HOST_ADDRESS, hwdst=packet.src, pdst=packet[ARP].psrc)
                    self.answers.append((world().cycles + self.late, Ether(dst=packet.src, src=HOST) / answer))
            else:
                self.frames.append(packet)
        while self.answers and self.answers[0][0] <= world().cycles:
            self.send(self.answers.pop(0)[1])

    def exchange(self, packet, cycles=10_000):
        """The frames that come within ``cycles`` after ``packet``."""
        self.frames.clear()
        self.send(packet)
        settle(cycles)
        self.work()
        return list(self.frames)


@pytest.fixture(scope="module")
def host():
    return Host()


@pytest.fixture
def adapter(host, monkeypatch):
    """Adapter 0 with a host that works while it waits."""
    with End("sim0", 64) as end:
        adapter = end.context._adapter
        advance = adapter.port.advance

        def working(cycles):
            busy = advance(cycles)
            host.work()
            return busy

        monkeypatch.setattr(adapter.port, "advance", working)
        yield adapter


def who_has(address):
    return Ether(dst=ALL, src=HOST) / ARP(op=1, hwsrc=HOST, psrc=HOST_ADDRESS, pdst=address)


def ping(mac, payload, sequence=1):
    return Ether(dst=mac, src=HOST) / IP(src=HOST_ADDRESS, dst=OURS) / ICMP(id=5, seq=sequence) / Raw(payload)


def test_arp_and_ping(host, adapter):
    rng = make_rng()
    before = adapter.control.counters()
    (reply,) = host.exchange(who_has(OURS))
    assert (reply[ARP].op, reply[ARP].psrc, reply[ARP].pdst, reply.dst) == (2, OURS, HOST_ADDRESS, HOST)
    assert reply[ARP].hwsrc == reply.src == "02:56:42:00:00:01"
    for size in (0, 1, 56, 1472, 4000):
        payload = rng.randbytes(size)
        (answer,) = host.exchange(ping(reply.src, payload))
        assert (answer[ICMP].type, answer[ICMP].id, answer[ICMP].seq) == (0, 5, 1)
        assert bytes(answer[ICMP].payload) == payload
        again = answer.copy()
        del again[IP].chksum, again[ICMP].chksum
        assert bytes(again) == bytes(answer)
    assert host.exchange(who_has("10.0.0.77")) == []
    after = adapter.control.counters()
    changes = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changes == {"arp_replies": 1, "echo_replies": 5, "drop_not_roce": 7}


def test_the_adapter_finds_the_host(host, adapter, impatient):
    host.asked, host.ignored = 0, 0
    assert adapter.control.resolve(HOST_IP) == HOST_MAC
    assert host.asked == 1
    host.asked, host.ignored = 0, 1
    assert adapter.control.resolve(HOST_IP) == HOST_MAC
    assert host.asked == 2
    assert adapter.control.resolve(0x0A000002) == world().adapters[1].mac


@pytest.fixture
def busy(adapter):
    """Adapter 1 writes to adapter 0 all the time."""
    size = data_width() << 10
    with End("sim0", size) as a, End("sim1", size) as b:
        connect(a, b)
        for _ in range(60):
            send(b, WRITE, [sge(b, 0, size)], remote=(a, 0))
        yield b
        assert b.cq.poll(1)[0] == 1
        assert world().adapters[1].counters["sent_bytes"] > 0


@pytest.mark.slow
def test_a_late_answer_on_a_busy_wire(host, adapter, busy):
    """Three tries of a hundred thousand cycles each were over before it came."""
    host.asked, host.ignored, host.late = 0, 0, 350_000
    try:
        assert adapter.control.resolve(HOST_IP) == HOST_MAC
    finally:
        host.late = 0
    assert host.asked == 1


def test_a_lost_answer_on_a_busy_wire(host, adapter, busy, monkeypatch):
    """The next request goes out a second later, however busy the wire is."""
    second = 40_000 * 6.4
    assert adapter.port.second_ns == 16 * 244_140.625 * 6.4
    monkeypatch.setattr(type(adapter.port), "second_ns", second)
    host.asked, host.ignored = 0, 2
    start = adapter.port.time_ns()
    assert adapter.control.resolve(HOST_IP) == HOST_MAC
    assert 2 * second <= adapter.port.time_ns() - start <= 2.2 * second
    assert host.asked == 3


@pytest.mark.exact
def test_nobody_has_the_address(host, adapter, impatient):
    """A try ends early while nothing happens at all."""
    start = world().cycles
    with pytest.raises(AdapterError) as caught:
        adapter.control.resolve(0x0A0000F1)
    assert caught.value.errno == errno.EHOSTUNREACH
    assert 3 * impatient <= world().cycles - start < 5 * impatient


def test_pings_while_writes_are_under_way(host):
    """Both come through: no WRITE is lost for it, and each ping is answered or counted."""
    with End("sim0", 1 << 16) as a, End("sim1", 1 << 16) as b:
        connect(a, b)
        content = fill(a, 7)
        before = [end.context.query_counters() for end in (a, b)]
        host.work()
        host.frames.clear()
        for n in range(16):
            send(a, WRITE, [sge(a, n * 4096, 4096)], wr_id=n, remote=(b, n * 4096))
            send(b, WRITE, [sge(b, 0, 0)], wr_id=n, remote=(a, 0))
        for n in range(16):
            host.send(ping("02:56:42:00:00:01", bytes(64), n))
            settle(100)
        assert all(wc.status == 0 for wc in completions(a.cq, 16) + completions(b.cq, 16))
        settle(5000)
        host.work()
        answered = [packet[ICMP].seq for packet in host.frames if ICMP in packet]
        after = [end.context.query_counters() for end in (a, b)]
        changes = [{name: x[name] - y[name] for name in x} for x, y in zip(after, before)]
        assert answered == sorted(set(answered))
        assert len(answered) == changes[0]["echo_replies"] > 0
        assert len(answered) + changes[0]["drop_station"] == 16
        assert b.mr.read(1 << 16, 0) == content
        for change in changes:
            assert change["retries"] == change["drop_icrc"] == change["drop_malformed"] == 0
