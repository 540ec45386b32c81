"""The segmenter alone: packet by packet, its own next state fed back to it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from send_queue import ATOMICS, ONE_SIDED, Wqe, datagram_of, packets_of, psns_of, resend_of, target_of
from streams import plain, shared, simulate
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.abi.wqe import SGE_OFFSET, UD_ROUTE, SendOpcode, send_sges
from verbena.hdl.queue.ring import send_batch
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind
from verbena.hdl.transport.requester.requester_context import Phase
from verbena.hdl.transport.requester.segmenter import Segmenter

BLOCKS = 4
STREAMS = ("packet", "access", "inline", "outstanding", "reads")
NEWEST = {"newest": 1, "fresh": 1}


class Driver:
    """One segment at a time; all outputs are taken at once."""

    def __init__(self, wqe, index, *, stride=1, unreliable=False, path_mtu=1, route=None):
        """``route``: the last 16 bytes of the WQE, of a segmenter with a table of GIDs."""
        gids = (True,) if route is not None else ()
        wqe_bytes = 512 if stride > 1 else 128
        self.dut = shared(Segmenter, 64, BLOCKS, *gids, wqe_bytes=wqe_bytes)
        self.batch = send_batch(wqe_bytes)
        self.streams = (*STREAMS, "route") if gids else STREAMS
        size = 64 << stride
        content = wqe.pack(size) if route is None else wqe.pack(size - len(route)) + route
        self.words = [0xDEAD_BEEF_DEAD_BEEF] * (BLOCKS * self.batch // 8)
        self.put(content, index)
        piece = index * size // self.batch
        self.places = [(piece + (piece ^ parity) % 2) % BLOCKS for parity in range(2)]
        self.fixed = {"qp": 9, "path_mtu": path_mtu, "pd": 77, "stride": stride}
        self.fixed |= {"connected": 1, "unreliable": int(unreliable)}
        self.inline = wqe.data is not None or wqe.opcode in ATOMICS
        self.log = []  # (cycle since the segment was taken, stream, payload)
        self.held = ()  # streams of which nothing is taken
        self.pipe = [0, 0]

    def put(self, content, index):
        base = index * len(content) % (BLOCKS * self.batch) // 8
        for word in range(len(content) // 8):
            self.words[base + word] = int.from_bytes(content[word * 8 : word * 8 + 8], "little")

    async def tick(self, ctx, cycle):
        dut = self.dut
        ctx.set(dut.word, self.pipe.pop(0))
        ctx.set(dut.places, self.places)
        for name in self.streams:
            ctx.set(getattr(dut, name).ready, name not in self.held)
        ports = [getattr(dut, name) for name in self.streams]
        flat = [x for port in ports for x in (port.valid, port.payload)]
        state = [dut.done, dut.ended, dut.failed, dut.syndrome, dut.next, dut.begun, dut.fresh]
        _, _, address, taken, *values = await ctx.tick().sample(dut.word_address, dut.i.ready, *state, *flat)
        self.pipe.append(self.words[self.batch // 8 * address.block + address.word])
        for number, name in enumerate(self.streams):
            if values[len(state) + 2 * number]:
                self.log.append((cycle, name, plain(values[len(state) + 2 * number + 1])))
        return taken, values[: len(state)]

    async def ask(self, ctx, index, datagram):
        """Asks ahead for the words of a WQE."""
        for name, value in ("index", index), ("stride", self.fixed["stride"]), ("datagram", datagram):
            ctx.set(getattr(self.dut, f"ahead_{name}"), value)
        ctx.set(self.dut.ahead, 1)
        await self.tick(ctx, 0)
        ctx.set(self.dut.ahead, 0)

    async def cut(self, ctx, state, **more):
        """Cuts a packet; (ended, failed, syndrome, next)."""
        ctx.set(self.dut.i.payload, self.fixed | {"state": state, "admission": NEWEST} | more)
        ctx.set(self.dut.i.valid, 1)
        taken = False
        while not taken:
            taken, _ = await self.tick(ctx, 0)
        ctx.set(self.dut.i.valid, 0)
        result, rest = None, 100
        for cycle in range(1, 120):
            _, (done, *values) = await self.tick(ctx, cycle)
            if done:
                assert result is None
                result = [*values[:3], plain(values[3])]
                self.begun, self.fresh = values[4:]
                rest = 48 if self.inline else 8
            rest -= 1
            if rest == 0:
                break
        return result

    def of(self, name):
        return [item for _, stream, item in self.log if stream == name]

    def check(self, want, index):
        """What came out since ``log`` was emptied is the packet ``want``."""
        (header,) = self.of("packet")
        transport = header["transport"]
        for name in set(want) & set(transport):
            assert transport[name] == want[name], (name, transport, want)
        assert (header["qp"], header["wqe_index"], header["kind"]) == (9, index, TxDescriptorKind.REQUEST)
        assert header["source"] == (PayloadSource.INLINE if want["data"] else PayloadSource.MEMORY)
        pieces = [(a["key"], a["address"], a["length"]) for a in self.of("access") if a["length"]]
        assert pieces == [(key, address % (1 << 64), length) for key, address, length in want["pieces"]]
        lasts = [access["last"] for access in self.of("access")]
        assert lasts == [0] * (len(lasts) - 1) + [1]
        data = b"".join(beat["data"].to_bytes(8, "little")[: beat["count"]] for beat in self.of("inline"))
        assert data == (want["data"] or b"")


def test_ahead():
    """What was asked for ahead comes a cycle earlier, and leaves no trace in vain; a header that waits stays whole."""
    wqe = Wqe(SendOpcode.RDMA_WRITE, 0, [(0x1000, 8, 0x55)], None, 0, 0x2000, 0xBAD)
    driver = Driver(wqe, 5)
    want = packets_of(wqe, 256, 100)[0]
    dut, state = driver.dut, {"index": 5, "psn": 100}

    async def cut(ctx, access):
        driver.log.clear()
        ended, failed, _, _ = await driver.cut(ctx, state)
        assert (ended, failed) == (1, 0)
        driver.check(want, 5)
        assert [cycle for cycle, name, _ in driver.log if name == "access"] == [access]

    async def ask(ctx, index=5):
        ctx.set(dut.ahead_index, index)
        ctx.set(dut.ahead_stride, 1)
        ctx.set(dut.ahead, 1)
        await driver.tick(ctx, 0)
        ctx.set(dut.ahead, 0)

    async def testbench(ctx):
        for _ in range(4):
            await driver.tick(ctx, 0)
        await cut(ctx, 8)
        await ask(ctx)
        await cut(ctx, 7)
        for pause in range(1, 6):
            await ask(ctx, 6)  # another one's words
            for _ in range(pause):
                await driver.tick(ctx, 0)
            await cut(ctx, 8)
        driver.held = ("packet",)
        driver.log.clear()
        await driver.cut(ctx, state)
        await ask(ctx, 6)
        for _ in range(8):
            await driver.tick(ctx, 0)
        headers = driver.of("packet")
        assert headers == [headers[0]] * len(headers)
        driver.held = ()

    simulate(dut, testbench)


@pytest.mark.parametrize("begun", [False, True], ids=["asked for in vain", "cancelled"])
@pytest.mark.parametrize("pause", range(6))
def test_words_of_another_wqe(begun, pause):
    """Words of an inline WQE that were asked for before say nothing about the packet that is cut next."""
    wqe = Wqe(SendOpcode.SEND, 0, [(0x1000, 300, 1), (0x2000, 300, 2)])
    driver = Driver(wqe, 5)
    driver.put(Wqe(SendOpcode.SEND, 0, data=bytes(80)).pack(128), 6)
    dut = driver.dut
    want = resend_of(wqe, 256, 100, 2)[0]

    async def other(ctx):
        if begun:
            ctx.set(dut.i.payload, driver.fixed | {"state": {"index": 6}, "admission": NEWEST})
            ctx.set(dut.i.valid, 1)
            while not (await driver.tick(ctx, 0))[0]:
                pass
            ctx.set(dut.i.valid, 0)
            ctx.set(dut.cancel, 1)
        else:
            ctx.set(dut.ahead_index, 6)
            ctx.set(dut.ahead_stride, 1)
            ctx.set(dut.ahead, 1)
        await driver.tick(ctx, 0)
        ctx.set(dut.cancel, 0)
        ctx.set(dut.ahead, 0)
        for _ in range(pause if begun else pause + 1):  # what follows `ahead` at once is what was asked for
            await driver.tick(ctx, 0)
        driver.log.clear()

    async def testbench(ctx):
        for _ in range(4):
            await driver.tick(ctx, 0)
        await other(ctx)
        await driver.cut(ctx, {"index": 5, "psn": 102, "phase": Phase.MIDDLE, "blocks": 2})
        driver.check(want, 5)
        await other(ctx)
        await driver.cut(ctx, {}, kind=TxDescriptorKind.VOID)
        (header,) = driver.of("packet")
        assert header["source"] == PayloadSource.MEMORY

    simulate(dut, testbench)


UD = {"datagram": 1}
WAY = {"remote_address": 0xFEDC_BA98_7654_3210, "rkey": 0xC0A8_0001, "traffic_class": 0x77}
WAY |= {"dest_mac": 0x1122_3344_5566, "source_port": 0xD1C0}


@pytest.mark.parametrize("code", [1, 5])
@pytest.mark.parametrize("opcode", [SendOpcode.SEND, SendOpcode.SEND_WITH_IMM])
@pytest.mark.parametrize("content", ["empty", "one", "several", "whole", "inline"])
def test_datagram(opcode, content, code):
    """One packet, and what leads to its receiver; a cycle later than others, with and without ``ahead``. What was asked
    for ahead for a QP of another type leaves no trace."""
    mtu = 128 << code
    sges = {"one": [(0x1000, 200, 1)], "several": [(0x1000, 100, 1), (0x2000, 0, 2), (0x3000, 156, 3)]}
    sges |= {"whole": [(0x1000, mtu, 1)]}
    data = b"abcdefgh12" if content == "inline" else None
    wqe = Wqe(opcode, 2, sges.get(content, []), data, 0x12345678, **WAY)
    driver = Driver(wqe, 5, path_mtu=code, unreliable=True)
    state = {"index": 5, "psn": 100, "blocks": 99}
    firsts = []

    async def cut(ctx):
        driver.log.clear()
        ended, failed, _, after = await driver.cut(ctx, state, **UD)
        assert (ended, failed, after["psn"], after["index"], after["phase"]) == (1, 0, 101, 6, Phase.BETWEEN)
        driver.check(datagram_of(wqe, 100), 5)
        (header,) = driver.of("packet")
        assert (header["traffic_class"], header["message_last"]) == (0x77, 1)
        (message,) = driver.of("outstanding")
        assert (message["last_psn"], message["opcode"], driver.of("reads")) == (100, opcode, [])
        firsts.append(next(cycle for cycle, name, _ in driver.log if name == "access"))

    async def testbench(ctx):
        for _ in range(4):
            await driver.tick(ctx, 0)
        await cut(ctx)
        await driver.ask(ctx, 5, 1)
        await cut(ctx)
        for datagram in range(2):
            for pause in range(1, 5):
                await driver.ask(ctx, 6, datagram)
                for _ in range(pause):
                    await driver.tick(ctx, 0)
                await cut(ctx)

    simulate(driver.dut, testbench)
    assert firsts[1:] == [firsts[0] - 1] + [firsts[0]] * 8
    if content in ("one", "whole"):
        assert firsts[0] == 9


@pytest.mark.parametrize("stride", [0, 1, 2, 3])
@pytest.mark.parametrize("data", [None, b"abcdefgh12"])
def test_route(data, stride):
    """With a table of GIDs: the last 16 bytes of a datagram's WQE come out once, 3 cycles later than without one, and
    the header behind them. A connected queue pair has no such bytes.
    """
    fields = {
        "dest_gid_high": 0xFE80_0001_0002_0003,
        "dest_gid_middle": 0x12345678,
        "flow_label": 0xABCDE,
        "sgid_index": 0xB,
    }
    wqe = Wqe(SendOpcode.SEND, 2, [] if data else [(0x1000, 200, 1)], data, **WAY)
    driver = Driver(wqe, 5, path_mtu=1, unreliable=True, stride=stride, route=UD_ROUTE.pack(**fields))
    state = {"index": 5, "psn": 100, "blocks": 99}

    async def cut(ctx, **kind):
        driver.log.clear()
        ended, failed, *_ = await driver.cut(ctx, state, **kind)
        assert (ended, failed) == (1, 0)
        return [(cycle, name) for cycle, name, _ in driver.log if name in ("route", "packet")]

    async def testbench(ctx):
        for _ in range(4):
            await driver.tick(ctx, 0)
        for ahead in (False, True, False):
            if ahead:
                await driver.ask(ctx, 5, 1)
            order = await cut(ctx, **UD)
            assert [name for _, name in order] == ["route", "packet"]
            (route,) = driver.of("route")
            assert {name: route[name] for name in fields} == fields
            driver.check(datagram_of(wqe, 100), 5)
        driver.held = ("route",)
        assert {name for _, name in await cut(ctx, **UD)} == {"route"}
        driver.held = ()
        for _ in range(4):
            await driver.tick(ctx, 0)
        assert driver.log[-1][1] == "packet"
        assert [name for _, name in await cut(ctx)] == ["packet"]

    simulate(driver.dut, testbench)


@pytest.mark.parametrize(
    ("wqe", "syndrome", "too_long"),
    [
        (Wqe(sges=[(0, 257, 1)]), Syndrome.LENGTH, 1),
        (Wqe(SendOpcode.SEND_WITH_IMM, sges=[(0, 200, 1), (0, 400, 1)]), Syndrome.LENGTH, 1),
        (Wqe(sges=[(0, 1 << 31, 1)]), Syndrome.LENGTH, 1),
        (Wqe(sges=[(0, 200, 1)], length=201), Syndrome.LENGTH, 0),
        (Wqe(sges=[(0, 257, 1)], sge_count=7), Syndrome.SGE_COUNT, 0),
        (Wqe(SendOpcode.RDMA_WRITE, sges=[(0, 8, 1)]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.RDMA_WRITE_WITH_IMM, sges=[(0, 300, 1)]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.RDMA_READ, sges=[(0, 8, 1)]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.ATOMIC_CMP_AND_SWP, sges=[(0, 8, 1)]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, sges=[(0, 8, 1)]), Syndrome.OPCODE, 0),
        (Wqe(SendOpcode.LOCAL_INV, sges=[(0, 8, 1)]), Syndrome.OPCODE, 0),
    ],
)
def test_no_datagram(wqe, syndrome, too_long):
    """Nothing comes out of what is no SEND, or more than a packet."""
    driver = Driver(wqe, 0, unreliable=True)

    async def testbench(ctx):
        admission = NEWEST | {"rd_atomic_disabled": 1}
        ended, failed, found, state = await driver.cut(ctx, {"psn": 7}, admission=admission, **UD)
        assert (ctx.get(driver.dut.status) == WcStatus.LOC_LEN_ERR) == too_long
        assert (ended, failed, found, driver.log) == (0, 1, syndrome, [])
        assert (state["index"], state["phase"]) == (0, Phase.HALTED)

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("length", [14, 200, 4096, 4097])
def test_raw_frame(length):
    """As UC's SEND ONLY with bit 7 set, a cycle earlier than a datagram; all entries are its own; or it is too long."""
    wqe = Wqe(SendOpcode.SEND, 2, [(0x1000, 10, 1), (0x2000, length - 10, 2)])
    driver = Driver(wqe, 5, path_mtu=5, unreliable=True)

    async def testbench(ctx):
        ended, failed, _, _ = await driver.cut(ctx, {"index": 5, "psn": 100, "blocks": 99}, raw=1)
        assert (ended, failed) == (length <= 4096, length > 4096)
        assert (ctx.get(driver.dut.status) == WcStatus.LOC_LEN_ERR) == (length > 4096)
        if length <= 4096:
            (header,) = driver.of("packet")
            assert (header["transport"]["opcode"], header["transport"]["length"]) == (0xA4, length)
            assert header["message_last"] == 1
            assert [(each["address"], each["length"]) for each in driver.of("access")] == [
                (0x1000, 10),
                (0x2000, length - 10),
            ]
        else:
            assert driver.log == []

    simulate(driver.dut, testbench)


PSNS = st.sampled_from([0, 30, (1 << 24) - 1]) | st.integers(0, (1 << 24) - 1)


@st.composite
def requests(draw):
    """(WQE, PMTU code, whether it is UC, stride) of a good one: entries of odd lengths, none, inline data, operands."""
    stride = draw(st.integers(0, 3))
    size = 64 << stride
    unreliable = draw(st.booleans())
    opcode = draw(st.sampled_from(list(SendOpcode)[: 4 if unreliable else 7]))
    code = draw(st.integers(1, 5))
    lengths = draw(
        st.lists(st.integers(0, 1000) | st.sampled_from([0, 1, 255, 256, 257, 2500]), max_size=send_sges(size))
    )
    data = (
        None
        if opcode in ONE_SIDED
        else draw(st.none() | st.binary(max_size=size - SGE_OFFSET) | st.just(bytes(range(1, 9)) * (size // 8 - 4)))
    )
    if opcode in ATOMICS:
        lengths = [8]
    sges = [(0x1_0000_0000 * (k + 1) - 5, length, 0x100 + k) for k, length in enumerate(lengths)]
    wqe = Wqe(opcode, 2, sges, data, 0x12345678, draw(st.sampled_from([0xFEDC_BA98_7654_3210, (1 << 64) - 100])), 0xBAD)
    wqe.compare_add, wqe.swap = 0x0102_0304_0506_0708, 0x1112_1314_1516_1718
    return wqe, code, unreliable, stride


@settings(max_examples=30)
@given(request=requests(), psn=PSNS, index=st.integers(0, 65535), reads=st.integers(0, 255))
def test_message(request, psn, index, reads):
    wqe, code, unreliable, stride = request
    expected = packets_of(wqe, 128 << code, psn, unreliable=unreliable)
    driver = Driver(wqe, index, stride=stride, path_mtu=code, unreliable=unreliable)

    async def testbench(ctx):
        # Fields that mean nothing before a message hold rubbish.
        state = {"index": index, "psn": psn, "blocks": 99, "reads": reads}
        for want in expected:
            driver.log = []
            ended, failed, _, state = await driver.cut(ctx, state)
            assert (ended, failed) == (want["message_last"], 0)
            driver.check(want, index)
            assert len(driver.of("outstanding")) == ended
            assert (driver.begun, driver.fresh) == (ended, 1)
            assert (state["psn"], state["top_psn"]) == ((want["last_psn"] + 1) % (1 << 24),) * 2
            if wqe.opcode in ONE_SIDED:
                target = target_of(wqe, psn, index, stride)
                if not wqe.sges:
                    target |= {"address": 0, "entry_length": 0, "lkey": 0}
                (read,) = driver.of("reads")
                assert (read["qp"], read["again"]) == (9, 0)
                assert {name: read["target"][name] for name in target} == target
                assert state["reads"] == (reads + 1) % 256
            else:
                assert (driver.of("reads"), state["reads"]) == ([], reads)
        (message,) = driver.of("outstanding")
        assert (message["last_psn"], message["opcode"]) == (expected[-1]["last_psn"], wqe.opcode)
        assert state["index"] == state["top"] == (index + 1) % 65536
        assert state["phase"] == Phase.BETWEEN

    simulate(driver.dut, testbench)


@settings(max_examples=40)
@given(request=requests(), psn=PSNS, data=st.data())
def test_resume(request, psn, data):
    """From any PSN of a message on it goes on as it did the first time; only where a READ goes on is told."""
    wqe, code, unreliable, stride = request
    mtu = 128 << code
    skip = data.draw(st.integers(0, psns_of(wqe, mtu) - 1))
    expected = resend_of(wqe, mtu, psn, skip, unreliable=unreliable)
    driver = Driver(wqe, 77, stride=stride, path_mtu=code, unreliable=unreliable)

    async def testbench(ctx):
        state = {"index": 77, "psn": (psn + skip) % (1 << 24), "blocks": skip * mtu // 256}
        state |= {"phase": Phase.MIDDLE if skip else Phase.BETWEEN}
        for want in expected[:8]:
            driver.log = []
            ended, failed, _, state = await driver.cut(ctx, state, admission={})
            assert (ended, failed) == (want["message_last"], 0)
            driver.check(want, 77)
            assert driver.of("outstanding") == []
            goes_on = [want["psn"]] if skip and wqe.opcode == SendOpcode.RDMA_READ else []
            assert [(item["qp"], item["again"], item["target"]["psn"]) for item in driver.of("reads")] == [
                (9, 1, place) for place in goes_on
            ]
            assert (driver.begun, driver.fresh) == (0, 0)
            assert state["psn"] == (want["last_psn"] + 1) % (1 << 24)
        after = (78, Phase.BETWEEN) if len(expected) <= 8 else (77, Phase.MIDDLE)
        assert (state["index"], state["phase"]) == after

    simulate(driver.dut, testbench)


def test_longest():
    """2^31 bytes: all of them, or only the last packet; a READ of them; one byte more is too much."""
    sges = [(0, 1, 1), (0x1000, (1 << 31) - 1001, 2), (0x2000, 1000, 3)]
    skip = (1 << 23) - 1
    driver = Driver(Wqe(SendOpcode.RDMA_READ, 0, sges), 0)

    async def testbench(ctx):
        await driver.cut(ctx, {"psn": 5})
        (header,) = driver.of("packet")
        assert header["transport"]["dma_length"] == 1 << 31
        assert driver.of("outstanding")[0]["last_psn"] == 5 + skip

    simulate(driver.dut, testbench)
    wqe = Wqe(SendOpcode.SEND, 0, sges)
    last = Driver(wqe, 0)

    async def resume(ctx):
        await last.cut(ctx, {"psn": skip, "phase": Phase.MIDDLE, "blocks": skip}, admission={})
        assert [(a["key"], a["address"], a["length"]) for a in last.of("access")] == [(3, 0x2000 + 744, 256)]

    simulate(last.dut, resume)


GOOD = [(0x1000, 300, 5)]


@pytest.mark.parametrize(
    ("wqe", "admission", "blocked"),
    [
        (Wqe(SendOpcode.SEND, 0, GOOD), {"behind": 1}, "lost"),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD), {"behind": 1}, "lost"),
        (Wqe(SendOpcode.RDMA_WRITE, 0, GOOD), {"far": 1}, "waits"),
        (
            Wqe(SendOpcode.RDMA_WRITE, 0, GOOD),
            {"fenced": 1, "full": 1, "no_credit": 1, "rd_atomic_disabled": 1} | NEWEST,
            "",
        ),
        (Wqe(SendOpcode.RDMA_WRITE, 1, GOOD), {"fenced": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.RDMA_WRITE, 1, GOOD), {"full": 1, "no_credit": 1} | NEWEST, ""),
        (Wqe(SendOpcode.SEND, 1, GOOD), {"fenced": 1}, ""),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD), {"full": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD), {"no_credit": 1, "fenced": 1} | NEWEST, ""),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD), {"full": 1}, ""),
        (Wqe(SendOpcode.ATOMIC_CMP_AND_SWP, 0, [(0, 8, 1)]), {"full": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, 1, [(0, 8, 1)]), {"fenced": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.SEND, 0, GOOD), {"no_credit": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.SEND_WITH_IMM, 0, GOOD), {"no_credit": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.RDMA_WRITE_WITH_IMM, 0, GOOD), {"no_credit": 1} | NEWEST, "waits"),
        (Wqe(SendOpcode.SEND, 0, GOOD), {"full": 1} | NEWEST, ""),
        (Wqe(SendOpcode.SEND, 0, GOOD), {"no_credit": 1}, ""),
        (Wqe(SendOpcode.SEND, 0, data=b"12345678" * 4), {"no_credit": 1} | NEWEST, "waits"),
    ],
)
def test_admission(wqe, admission, blocked):
    """Who must wait leaves no trace, and may be sent later; who is too late says so."""
    driver = Driver(wqe, 5)
    state = {"index": 5, "psn": 100, "reads": 7}

    async def testbench(ctx):
        result = await driver.cut(ctx, state, admission=admission)
        if blocked:
            assert driver.log == []
            if blocked == "lost":
                ended, failed, _, after = result
                assert (ended, failed, driver.begun, driver.fresh) == (0, 0, 0, 0)
                assert (after["phase"], after["index"]) == (Phase.RESUME, 5)
            else:
                assert result is None
            await driver.cut(ctx, state)
        assert len(driver.of("packet")) == 1
        driver.check(packets_of(wqe, 256, 100)[0], 5)

    simulate(driver.dut, testbench)


@pytest.mark.parametrize(
    ("wqe", "syndrome"),
    [
        (Wqe(SendOpcode.ATOMIC_CMP_AND_SWP, 0, [(0, 9, 1)], length=8), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_CMP_AND_SWP, 0, [((0), (1 << 32) - 248, 1)], length=8), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_CMP_AND_SWP, 0, [(0, 16, 1)]), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, 0, [(0, 8, 1)], length=264), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, 0, [(0, 8, 1)], sge_count=2), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, 0, [(0, 8, 1)], sge_count=0), Syndrome.LENGTH),
        (Wqe(SendOpcode.ATOMIC_FETCH_AND_ADD, 8, [(0, 8, 1)]), Syndrome.LENGTH),
        (Wqe(SendOpcode.RDMA_READ, 8, GOOD), Syndrome.LENGTH),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD, length=(1 << 31) + 1), Syndrome.LENGTH),
        (Wqe(SendOpcode.RDMA_READ, 0, GOOD, sge_count=7), Syndrome.SGE_COUNT),
        (Wqe(SendOpcode.LOCAL_INV, 0, GOOD), Syndrome.OPCODE),
        (Wqe(SendOpcode.SEND, 0, data=b"12345678" * 4, sge_count=7), Syndrome.SGE_COUNT),
        (Wqe(SendOpcode.LOCAL_INV, 0, data=b"12345678" * 4), Syndrome.OPCODE),
    ],
)
def test_malformed(wqe, syndrome):
    """Nothing comes out, not even of inline data; and the next packet is whole."""
    driver = Driver(wqe, 0)

    async def testbench(ctx):
        ended, failed, found, state = await driver.cut(ctx, {"reads": 3})
        for cycle in range(12):
            await driver.tick(ctx, cycle)  # words may still arrive
        assert (ended, failed, found, driver.log) == (0, 1, syndrome, [])
        assert (state["index"], state["phase"], driver.begun, driver.fresh) == (0, Phase.HALTED, 0, 0)
        good = Wqe(SendOpcode.SEND, 0, data=b"abcdefgh12")
        for word in range(16):
            driver.words[word] = int.from_bytes(good.pack(128)[word * 8 : word * 8 + 8], "little")
        await driver.cut(ctx, {})
        driver.check(packets_of(good, 256, 0)[0], 0)

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("unreliable", [False, True])
@pytest.mark.parametrize("opcode", ONE_SIDED)
def test_no_reads_allowed(opcode, unreliable):
    """max_rd_atomic 0, or UC."""
    driver = Driver(Wqe(opcode, 0, [(0, 8, 1)]), 0, unreliable=unreliable)

    async def testbench(ctx):
        _, failed, syndrome, _ = await driver.cut(ctx, {}, admission={"rd_atomic_disabled": 1, "full": 1} | NEWEST)
        assert (failed, syndrome, driver.log) == (1, Syndrome.OPCODE, [])

    simulate(driver.dut, testbench)


def test_not_connected():
    """A QP that is neither RC nor UC."""
    driver = Driver(Wqe(SendOpcode.SEND, 0, GOOD), 0)

    async def testbench(ctx):
        _, failed, syndrome, _ = await driver.cut(ctx, {}, connected=0)
        assert (failed, syndrome, driver.log) == (1, Syndrome.OPCODE, [])

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("change", [{"length": 100}, {"sges": []}, {"opcode": 200}, {"data": b"tampered"}])
def test_changed_wqe(change):
    """A host that changes a WQE before it is sent again gets an error, or another packet; nothing hangs."""
    wqe = Wqe(SendOpcode.SEND, 0, [(0, 500, 1), (0, 500, 2)])
    for name, value in change.items():
        setattr(wqe, name, value)
    driver = Driver(wqe, 0)

    async def testbench(ctx):
        _, failed, _, _ = await driver.cut(ctx, {"phase": Phase.MIDDLE, "blocks": 2})
        assert (failed, driver.log) == (1, [])

    simulate(driver.dut, testbench)


def test_latency():
    """8 cycles to the access, 9 to the packet, 10 at a message's end; further entries cost 3, then 2, also to pass."""
    sges = [(0, 100, 1), (0, 100, 1), (0, 100, 1), (0, 100, 1)]
    driver = Driver(Wqe(sges=sges), 3)

    async def testbench(ctx):
        _, _, _, state = await driver.cut(ctx, {"index": 3})
        assert [cycle for cycle, name, _ in driver.log if name == "access"] == [13, 14, 15]
        assert [cycle for cycle, name, _ in driver.log if name == "packet"] == [14]
        driver.log = []
        await driver.cut(ctx, state)
        assert [cycle for cycle, name, _ in driver.log if name == "access"] == [15, 16]
        assert [cycle for cycle, name, _ in driver.log if name == "packet"] == [17]

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize(("stride", "most"), [(0, 2), (1, 6), (2, 14), (3, 16)])
def test_entries(stride, most, more):
    """The stride bounds the entries."""
    count, fails = most + more, bool(more)
    driver = Driver(Wqe(sges=[(0, 8, 1)] * most, sge_count=count, length=8), 0, stride=stride)

    async def testbench(ctx):
        _, failed, syndrome, state = await driver.cut(ctx, {})
        assert failed == (state["phase"] == Phase.HALTED) == fails
        if fails:
            assert syndrome == Syndrome.SGE_COUNT
            assert driver.log == []

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("stride", range(4))
def test_nobody_takes_inline_data_before_its_header(stride):
    """All that a WQE can hold comes out of it all the same."""
    size = (64 << stride) - SGE_OFFSET
    driver = Driver(Wqe(data=(bytes(range(256)) * 2)[:size]), 0, stride=stride, path_mtu=5)
    driver.held = ("inline",)

    async def testbench(ctx):
        await driver.cut(ctx, {})
        assert len(driver.of("packet")) == 1

    simulate(driver.dut, testbench)


@pytest.mark.parametrize("kind", [TxDescriptorKind.REQUEST_TOKEN, TxDescriptorKind.VOID])
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


@pytest.mark.parametrize("blocks", [1, 12])
def test_arguments(blocks):
    with pytest.raises(ValueError, match=f"blocks must be a power of two, at least 2, not {blocks}"):
        Segmenter(64, blocks)
