"""The segmenter alone: packet by packet, its own next state fed back to it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from send_queue import ATOMICS, ONE_SIDED, Wqe, packets_of, resend_of, target_of
from streams import plain, simulate
from verbena.hdl.abi.contexts import QpType
from verbena.hdl.abi.cqe import Syndrome
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.layouts import DepartureKind, PayloadSource
from verbena.hdl.transport.segmenter import Segmenter

AREA = 1024
STREAMS = ("packet", "access", "inline", "outstanding", "reads")
NEWEST = {"newest": 1}


class Driver:
    """One segment at a time; all outputs are taken at once."""

    def __init__(self, wqe, index, *, large=1, type_=QpType.RC, path_mtu=1):
        self.dut = Segmenter(64, AREA)
        size = 64 << large
        content = wqe.pack(size)
        self.words = [0xDEAD_BEEF_DEAD_BEEF] * (AREA // 8)
        base = index * size % AREA // 8
        for word in range(size // 8):
            self.words[base + word] = int.from_bytes(content[word * 8 : word * 8 + 8], "little")
        self.fixed = {"qp": 9, "path_mtu": path_mtu, "type": type_, "pd": 77, "large": large}
        self.log = []  # (cycle since the segment was taken, stream, payload)
        self.pipe = [0, 0]

    async def tick(self, ctx, cycle):
        dut = self.dut
        ctx.set(dut.word, self.pipe.pop(0))
        for name in STREAMS:
            ctx.set(getattr(dut, name).ready, 1)
        ports = [getattr(dut, name) for name in STREAMS]
        flat = [x for port in ports for x in (port.valid, port.payload)]
        state = [dut.done, dut.ended, dut.failed, dut.syndrome, dut.next]
        _, _, address, taken, *values = await ctx.tick().sample(dut.word_address, dut.i.ready, *state, *flat)
        self.pipe.append(self.words[address.word])
        for number, name in enumerate(STREAMS):
            if values[len(state) + 2 * number]:
                self.log.append((cycle, name, plain(values[len(state) + 2 * number + 1])))
        return taken, values[: len(state)]

    async def cut(self, ctx, state, **more):
        """Cuts a packet; (ended, failed, syndrome, next)."""
        ctx.set(self.dut.i.payload, self.fixed | {"state": state, "admission": NEWEST} | more)
        ctx.set(self.dut.i.valid, 1)
        taken = False
        while not taken:
            taken, _ = await self.tick(ctx, 0)
        ctx.set(self.dut.i.valid, 0)
        result = None
        for cycle in range(1, 12 + 28):
            _, (done, *values) = await self.tick(ctx, cycle)
            if done:
                assert result is None
                result = [*values[:3], plain(values[3])]
        return result

    def of(self, name):
        return [item for _, stream, item in self.log if stream == name]


@settings(max_examples=25)
@given(
    path_mtu=st.integers(1, 5),
    psn=st.sampled_from([0, 30, (1 << 24) - 1]) | st.integers(0, (1 << 24) - 1),
    index=st.integers(0, 65535),
    opcode=st.sampled_from(list(SendOpcode)[:4]),
    lengths=st.lists(st.integers(0, 3000) | st.sampled_from([0, 1, 255, 256, 257]), max_size=6),
    inline=st.none() | st.binary(max_size=96),
)
def test_message(path_mtu, psn, index, opcode, lengths, inline):
    sges = [(0x1_0000_0000 * (k + 1) - 5, length, 0x100 + k) for k, length in enumerate(lengths)]
    wqe = Wqe(opcode, 2, sges, inline, immediate=0x12345678, remote_address=0xFEDC_BA98_7654_3210, rkey=0xBADCAFE)
    expected = packets_of(wqe, 128 << path_mtu, psn)
    driver = Driver(wqe, index, path_mtu=path_mtu)

    async def testbench(ctx):
        # Fields that mean nothing before a message hold rubbish.
        state = {"index": index, "psn": psn, "remaining": 12345, "sge": 5, "offset": 99}
        for want in expected:
            driver.log = []
            ended, failed, _, state = await driver.cut(ctx, state)
            assert (ended, failed) == (want["message_last"], 0)
            (header,) = driver.of("packet")
            transport = header["transport"]
            for name in set(want) & set(transport):
                assert transport[name] == want[name], name
            assert (header["qp"], header["wqe_index"]) == (9, index)
            pieces = [(a["key"], a["address"], a["length"]) for a in driver.of("access") if a["length"]]
            assert pieces == want["pieces"]
            lasts = [access["last"] for access in driver.of("access")]
            assert lasts == [0] * (len(lasts) - 1) + [1]
            beats = driver.of("inline")
            data = b"".join(beat["data"].to_bytes(8, "little")[: beat["count"]] for beat in beats)
            assert data == (inline or b"")
            assert len(driver.of("outstanding")) == ended
        assert state["psn"] == (psn + len(expected)) % (1 << 24)
        assert state["index"] == (index + 1) % 65536
        assert (state["middle"], state["halted"]) == (0, 0)

    simulate(driver.dut, testbench)


def test_latency():
    """7 cycles to the access and to the packet, 8 if the packet ends a message; a further entry costs 3, then 2."""
    sges = [(0, 100, 1), (0, 100, 1), (0, 100, 1), (0, 100, 1)]
    driver = Driver(Wqe(sges=sges), 3)

    async def testbench(ctx):
        _, _, _, state = await driver.cut(ctx, {"index": 3})
        assert [cycle for cycle, name, _ in driver.log if name == "access"] == [12, 13, 14]
        assert [cycle for cycle, name, _ in driver.log if name == "packet"] == [12]
        driver.log = []
        await driver.cut(ctx, state)
        assert [cycle for cycle, name, _ in driver.log if name == "access"] == [10, 11]
        assert [cycle for cycle, name, _ in driver.log if name == "packet"] == [11]

    simulate(driver.dut, testbench)


@pytest.mark.parametrize(("large", "count", "fails"), [(0, 2, False), (0, 3, True), (1, 6, False), (1, 7, True)])
def test_entries(large, count, fails):
    """The stride bounds the entries."""
    driver = Driver(Wqe(sges=[(0, 8, 1)] * (6 if large else 2), sge_count=count, length=8), 0, large=large)

    async def testbench(ctx):
        _, failed, syndrome, state = await driver.cut(ctx, {})
        assert failed == state["halted"] == fails
        if fails:
            assert syndrome == Syndrome.SGE_COUNT
            assert driver.log == []

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("kind", [DepartureKind.REQUEST_TOKEN, DepartureKind.VOID])
def test_no_packet(kind):
    """No packet, no words, no new state: a header and an empty access."""
    driver = Driver(Wqe(), 0)

    async def testbench(ctx):
        assert await driver.cut(ctx, {}, kind=kind) is None
        (header,) = driver.of("packet")
        (access,) = driver.of("access")
        assert (header["qp"], header["kind"], header["message_last"]) == (9, kind, 0)
        assert header["transport"]["length"] == 0
        assert (access["qp"], access["clear"], access["length"], access["last"]) == (9, 1, 0, 1)

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("area", [128, 1000])
def test_arguments(area):
    with pytest.raises(ValueError, match=str(area)):
        Segmenter(64, area)
