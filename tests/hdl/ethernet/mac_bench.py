"""Runs inside the simulator: the MAC against cocotbext-eth. :mod:`test_mac` and :mod:`test_rgmii` start it."""

import itertools
import os
import random
import warnings
import zlib

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge, Timer, with_timeout
from scapy.contrib.mac_control import MACControlPause
from scapy.layers.l2 import Ether

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-eth on cocotb 2
    from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource, RgmiiPhy

from ether_frames import beats, frames_of, mac_text, padded
from streams import Item
from verbena.hdl.ethernet.mac import COUNTERS
from verbena.hdl.stream.packet import PacketBeat

PINS = os.environ["MAC_PINS"]
WIDTH = int(os.environ["MAC_WIDTH"])
WHOLE = os.environ["MAC_WHOLE"] == "1"
SLOW = os.environ.get("MAC_SLOW") == "1"
CORE_PS = int(os.environ.get("MAC_CORE_PS", "8000"))
SEED = int(os.environ["MAC_SEED"])
BYTE_NS = 80 if SLOW else 8
LARGEST = 4200
OWN = 0x0256420000E1
LAYOUT = PacketBeat(WIDTH)


class Bench:
    """The MAC with a PHY; ``received`` and ``counts`` collect what comes, ``rx_stall`` and ``tx_stall`` hold it up."""

    def __init__(self, dut):
        self.dut = dut
        self.rng = random.Random(SEED)
        self.beats, self.counts = [], dict.fromkeys(COUNTERS, 0)
        self.rx_stall = self.tx_stall = 0.3 if WHOLE else 0.0

    async def start(self):
        dut = self.dut
        for name in ("tx__valid", "tx__payload", "rx__ready", "pause"):
            getattr(dut, name).value = 0
        dut.slow.value = SLOW
        dut.mac.value = OWN
        clocks = {"clk": CORE_PS, "ethernet_tx_clk": 8000}
        for name in ("rst", "ethernet_tx_rst", "ethernet_rx_rst"):
            getattr(dut, name).value = 1
        for name, period in clocks.items():
            Clock(getattr(dut, name), period, "ps").start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if PINS == "gmii":
                Clock(dut.ethernet_rx_clk, 8002, "ps").start()
                self.source = GmiiSource(dut.gmii__rx_data, dut.gmii__rx_error, dut.gmii__rx_valid, dut.ethernet_rx_clk)
                self.sink = GmiiSink(dut.gmii__tx_data, None, dut.gmii__tx_enable, dut.ethernet_tx_clk)
            else:
                pins = [
                    getattr(dut, f"pins__{n}") for n in ("tx_data", "tx_control", "tx_clock", "rx_data", "rx_control")
                ]
                phy = RgmiiPhy(*pins, dut.ethernet_rx_clk, speed=100e6 if SLOW else 1000e6)
                self.source, self.sink = phy.rx, phy.tx
        for port in (self.source, self.sink):
            port.log.setLevel("WARNING")
        await Timer(200, "ns")
        for name in ("rst", "ethernet_tx_rst", "ethernet_rx_rst"):
            getattr(dut, name).value = 0
        await Timer(400, "ns")
        cocotb.start_soon(self._read())
        cocotb.start_soon(self._count())
        return self

    async def _read(self):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        while True:
            dut.rx__ready.value = ready = int(self.rng.random() >= self.rx_stall)
            await ReadOnly()
            valid, payload = int(dut.rx__valid.value), int(dut.rx__payload.value)
            await edge
            if valid and ready:
                self.beats.append(Item((name, int(value)) for name, value in fields(payload).items()))

    async def _count(self):
        strobes = {name: getattr(self.dut, f"count_{name}") for name in COUNTERS}
        edge = RisingEdge(self.dut.clk)
        while True:
            await edge
            for name, strobe in strobes.items():
                if int(strobe.value):
                    self.counts[name] += 1

    async def transmit(self, frames):
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        await edge
        for frame in frames:
            frame, error = frame if isinstance(frame, tuple) else (frame, False)
            for beat in beats(frame, WIDTH, error=error, rng=self.rng):
                while self.rng.random() < self.tx_stall:
                    await edge
                dut.tx__payload.value = LAYOUT.const(beat).as_bits()
                dut.tx__valid.value = 1
                taken = 0
                while not taken:
                    await ReadOnly()
                    taken = int(dut.tx__ready.value)
                    await edge
                dut.tx__valid.value = 0

    async def quiet(self, bytes_=60):
        """Until both sides have nothing left, and as long as that many bytes take."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await self.source.wait()
        await Timer(BYTE_NS * (bytes_ + 300) + 20 * CORE_PS // 1000, "ns")

    def received(self):
        """(bytes, error) of all frames since the last call."""
        frames = frames_of(self.beats, WIDTH)
        self.beats.clear()
        return frames

    async def sent(self, count):
        return [await with_timeout(self.sink.recv(), 20_000 * BYTE_NS, "ns") for _ in range(count)]


def fields(raw):
    """Fields of a beat, read as Amaranth packs them."""
    values = {}
    for name, field in LAYOUT:
        values[name] = raw >> field.offset & (1 << field.width) - 1
    return values


def good(frames):
    return [(frame, 0) for frame in frames]


@cocotb.test()
async def frames_go_out(dut):
    """Whole, filled up to 60 bytes, with preamble, FCS and gap, however slowly they come; damaged ones do not."""
    bench = await Bench(dut).start()
    rng = bench.rng
    sizes = [1, 14, 42, 59, 60, 61, 63, 64, 65, 66, 67, 68, *(rng.randrange(60, 400) for _ in range(2 if SLOW else 8))]
    sizes += [1514, 4174] * (not SLOW)
    rng.shuffle(sizes)
    frames = [rng.randbytes(size) for size in sizes]
    bench.tx_stall = rng.choice([0, 0.5, 0.85])
    offered = list(frames)
    for place in (3, 9):
        offered.insert(place, (rng.randbytes(100), True))
    offered.insert(5, rng.randbytes(9000))  # more than there is room for
    cocotb.start_soon(bench.transmit(offered))
    got = await bench.sent(len(frames))
    for frame, wire in zip(frames, got, strict=True):
        assert wire.error is None or not any(wire.error)
        # Verilator shows what stands behind the edge, so the sink, which waits for a frame's first byte, misses that.
        assert bytes(wire.get_preamble())[-7:] == b"\x55" * 6 + b"\xd5"
        assert bytes(wire.get_payload()) == padded(frame)
        assert bytes(wire.get_fcs()) == zlib.crc32(padded(frame)).to_bytes(4, "little")
    starts = [wire.sim_time_start for wire in got[1:]]
    gaps = [(start - wire.sim_time_end) / 1000 / BYTE_NS for wire, start in zip(got, starts)]
    assert min(gaps) >= 12 - 0.01
    await bench.quiet()
    assert bench.counts == dict.fromkeys(COUNTERS, 0) | {"tx_frames": len(frames), "tx_overflow": 1}


@cocotb.test(skip=PINS != "gmii")
async def frames_go_out_one_behind_the_other(dut):
    """The gap is 12 bytes, and no more, if the next frame is there."""
    bench = await Bench(dut).start()
    bench.tx_stall = 0
    frames = [bench.rng.randbytes(bench.rng.randrange(60, 300)) for _ in range(8)]
    cocotb.start_soon(bench.transmit(frames))
    got = await bench.sent(len(frames))
    gaps = [(b.sim_time_start - a.sim_time_end) / 1000 / BYTE_NS for a, b in itertools.pairwise(got)]
    assert max(gaps) < 14, gaps


@cocotb.test()
async def frames_come_in(dut):
    """All good ones come out, whatever the gap between them and what is left of their preambles."""
    bench = await Bench(dut).start()
    rng = bench.rng
    sizes = [
        *range(60, 70),
        *(rng.randrange(60, 400) for _ in range(2 if SLOW else 8)),
        *([1514, 4174, LARGEST - 4] * (not SLOW)),
    ]
    rng.shuffle(sizes)
    frames = [rng.randbytes(size) for size in sizes]
    for frame in frames:
        wire = GmiiFrame.from_payload(frame)
        if PINS == "gmii" or SLOW:
            wire.data = wire.data[rng.randrange(7) :]
        bench.source.ifg = rng.choice([1, 2, 5, 11, 12, 13, 40])
        await bench.source.send(wire)
        await bench.source.wait()
    await bench.quiet(500 if SLOW else 4200)
    assert bench.received() == good(frames)
    assert bench.counts == dict.fromkeys(COUNTERS, 0) | {"rx_frames": len(frames)}


@cocotb.test()
async def bad_frames_come_in(dut):
    """Each is counted as what it is, leaves no trace, or an error, and does not harm the good one behind it."""
    bench = await Bench(dut).start()
    rng = bench.rng
    counts = dict.fromkeys(COUNTERS, 0)
    wanted = []

    async def send(raw, kind=None, errors=()):
        wire = GmiiFrame.from_raw_payload(raw)
        wire.error = [int(n in errors) for n in range(len(wire.data))]
        bench.source.ifg = rng.choice([1, 3, 12, 25])
        await bench.source.send(wire)
        counts[f"rx_{kind}"] += 1
        frame = bytes(raw[:-4])
        if kind != "frames" and not WHOLE and frame:
            wanted.append((frame, 1))
        if kind == "frames":
            wanted.append((frame, 0))

    def with_fcs(frame, wrong=0):
        return frame + (zlib.crc32(frame) ^ wrong).to_bytes(4, "little")

    async def one_good():
        await send(with_fcs(rng.randbytes(rng.randrange(60, 200))), "frames")

    await one_good()
    for size in (0, 10, 59):
        await send(with_fcs(rng.randbytes(size)), "short")
        await one_good()
    await send(rng.randbytes(3), "short")
    if not SLOW:
        for size in (LARGEST - 3, 8300):
            await send(with_fcs(rng.randbytes(size)), "long")
            await one_good()
    for bit in (0, 9, 31):
        await send(with_fcs(rng.randbytes(rng.randrange(60, 300)), 1 << bit), "fcs")
        await one_good()
    for place in (8, 40, 70):
        await send(with_fcs(rng.randbytes(63)), "error", [place])
        await one_good()
    await bench.quiet()
    frames = bench.received()
    if WHOLE:
        assert frames == wanted
    else:
        assert [(frame, error) for frame, error in frames if not error] == [w for w in wanted if not w[1]]
        assert frames == wanted
    assert bench.counts == counts


@cocotb.test(skip=PINS != "gmii")
async def false_carriers(dut):
    """They are counted; what comes between frames does not matter otherwise."""
    bench = await Bench(dut).start()
    frame = bench.rng.randbytes(100)
    for _ in range(3):
        await bench.source.send(GmiiFrame.from_payload(frame))
        await bench.source.wait()
        await ClockCycles(dut.ethernet_rx_clk, 3)
        for data in (0x0E, 0x0F, 0x1F):
            dut.gmii__rx_error.value = 1
            dut.gmii__rx_data.value = data
            await ClockCycles(dut.ethernet_rx_clk, bench.rng.randrange(1, 4))
            dut.gmii__rx_error.value = 0
            dut.gmii__rx_data.value = 0
            await ClockCycles(dut.ethernet_rx_clk, 2)
    await bench.quiet()
    assert bench.received() == good([frame] * 3)
    assert bench.counts == dict.fromkeys(COUNTERS, 0) | {"rx_frames": 3, "rx_false_carrier": 3}


@cocotb.test(skip=PINS != "gmii")
async def a_pause_holds_frames_back(dut):
    """As many byte times as it says, and no longer if another one ends it; a damaged one does nothing."""
    bench = await Bench(dut).start()
    bench.tx_stall = 0
    quanta = 8 if SLOW else 30
    pause = bytes(Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:00:77") / MACControlPause(pause_time=quanta))
    stop = bytes(Ether(dst="01:80:c2:00:00:01", src="02:00:00:00:00:77") / MACControlPause(pause_time=0))

    async def send(frame, wrong=0):
        wire = GmiiFrame.from_payload(frame)
        wire.data[-1] ^= wrong
        await bench.source.send(wire)
        await bench.source.wait()
        await Timer(40 * BYTE_NS, "ns")
        return cocotb.utils.get_sim_time("ns")

    async def time_of_next():
        await bench.transmit([bytes(60)])
        (frame,) = await bench.sent(1)
        return frame.sim_time_start / 1000

    bytes_ = quanta * 64
    begun = await send(pause)
    waited = (await time_of_next() - begun) / BYTE_NS
    assert bytes_ - 110 < waited < bytes_ + 110, waited
    begun = await send(pause, wrong=1)
    assert (await time_of_next() - begun) / BYTE_NS < 110
    await send(pause)
    begun = await send(stop)
    assert (await time_of_next() - begun) / BYTE_NS < 110
    await bench.quiet()
    assert bench.counts["rx_pause"] == 3
    assert bench.counts["tx_frames"] == 3


@cocotb.test(skip=PINS != "gmii")
async def a_pause_is_asked_for(dut):
    """Between frames, at the beginning and at the end of ``pause``."""
    bench = await Bench(dut).start()
    cocotb.start_soon(bench.transmit([bytes(100)] * 3))
    await bench.sent(1)
    dut.pause.value = 1
    frames = await bench.sent(3)
    dut.pause.value = 0
    frames += await bench.sent(1)
    await bench.quiet(100)
    assert bench.sink.empty()
    asked = [Ether(bytes(frame.get_payload())) for frame in frames if frame.get_payload()[12:14] == b"\x88\x08"]
    assert all(frame.check_fcs() for frame in frames)
    assert [packet[MACControlPause].pause_time for packet in asked] == [0xFFFF, 0]
    for packet in asked:
        assert packet.dst == "01:80:c2:00:00:01"
        assert packet.src == mac_text(OWN)
        assert len(packet) == 60
    assert bench.counts == dict.fromkeys(COUNTERS, 0) | {"tx_frames": 3, "tx_pause": 2}


@cocotb.test(skip=not WHOLE or PINS != "gmii")
async def the_receive_buffer_overflows(dut):
    """Frames are lost whole, and the partner is asked to pause before."""
    bench = await Bench(dut).start()
    bench.rx_stall = 1.0
    frames = [n.to_bytes(2, "big") + bench.rng.randbytes(1500) for n in range(8)]
    for frame in frames:
        await bench.source.send(GmiiFrame.from_payload(frame))
    await bench.quiet(1000)
    (asked,) = await bench.sent(1)
    assert Ether(bytes(asked.get_payload()))[MACControlPause].pause_time == 0xFFFF
    bench.rx_stall = 0.0
    await bench.quiet(3000)
    (asked,) = await bench.sent(1)
    assert Ether(bytes(asked.get_payload()))[MACControlPause].pause_time == 0
    got = bench.received()
    assert got == good(frames[: len(got)])
    assert len(got) + bench.counts["rx_overflow"] == 8
    assert 4 <= len(got) < 8


@cocotb.test()
async def both_directions_at_once(dut):
    bench = await Bench(dut).start()
    out = [bench.rng.randbytes(bench.rng.randrange(60, 300)) for _ in range(4 if SLOW else 12)]
    into = [bench.rng.randbytes(bench.rng.randrange(60, 300)) for _ in range(4 if SLOW else 12)]
    for frame in into:
        await bench.source.send(GmiiFrame.from_payload(frame))
    cocotb.start_soon(bench.transmit(out))
    got = await bench.sent(len(out))
    await bench.quiet()
    assert [bytes(frame.get_payload()) for frame in got] == out
    assert bench.received() == good(into)
