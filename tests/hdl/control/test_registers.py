"""Registers behind AXI4-Lite: what is written reads back, doorbells come out, the mailbox waits for commands."""

import pytest
from streams import make_rng, pause, plain, receive_all, send_all, simulate
from verbena.hdl.abi import registers as abi
from verbena.hdl.abi.commands import COMMAND, Command
from verbena.hdl.control.registers import Registers

REG = abi.REGISTERS


class Bus:
    """A small AXI4-Lite manager with random gaps."""

    def __init__(self, port, rng):
        self.port, self.rng = port, rng

    async def write(self, ctx, address, value):
        port = self.port
        await pause(ctx, self.rng, 0.3)
        ctx.set(port.awaddr, address)
        ctx.set(port.wdata, value)
        ctx.set(port.wstrb, 15)
        late = self.rng.random() < 0.5
        ctx.set(port.awvalid, 1)
        if late:
            await ctx.tick()
        ctx.set(port.wvalid, 1)
        taken = False
        while not taken:
            _, _, taken = await ctx.tick().sample(port.awready & port.wready)
        ctx.set(port.awvalid, 0)
        ctx.set(port.wvalid, 0)
        await pause(ctx, self.rng, 0.3)
        ctx.set(port.bready, 1)
        done = False
        while not done:
            _, _, done, response = await ctx.tick().sample(port.bvalid, port.bresp)
        assert response == 0
        ctx.set(port.bready, 0)

    async def read(self, ctx, address):
        port = self.port
        ctx.set(port.araddr, address)
        ctx.set(port.arvalid, 1)
        taken = False
        while not taken:
            _, _, taken = await ctx.tick().sample(port.arready)
        ctx.set(port.arvalid, 0)
        await pause(ctx, self.rng, 0.3)
        ctx.set(port.rready, 1)
        done = False
        while not done:
            _, _, done, value = await ctx.tick().sample(port.rvalid, port.rdata)
        ctx.set(port.rready, 0)
        return value


def make():
    return Registers(data_width=64, qps=16, cqs=8, window=64)


def test_an_engine_that_only_responds_says_so():
    dut = Registers(data_width=64, qps=4, cqs=2, window=16, requests=False, address_width=33)
    bus = Bus(dut.axil, make_rng())

    async def host(ctx):
        assert await bus.read(ctx, REG["capabilities"].offset) == 2 | 1 << 4 | 3 << 8 | 4 << 12 | 1 << 17 | 33 << 24

    simulate(dut, host)


def test_constants_and_what_is_written_read_back():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    written = {
        "mac_low": 0x11223344,
        "mac_high": 0x5566,
        "ip": 0x0A000001,
        "mpt_low": 0x9000,
        "mpt_high": 7,
        "tick": 99,
    }

    async def host(ctx):
        assert await bus.read(ctx, REG["magic"].offset) == abi.MAGIC
        assert await bus.read(ctx, REG["version"].offset) == abi.VERSION
        assert await bus.read(ctx, REG["capabilities"].offset) == 4 | 3 << 4 | 3 << 8 | 6 << 12 | 1 << 16 | 64 << 24
        assert await bus.read(ctx, REG["tick"].offset) == 512
        for name, value in written.items():
            await bus.write(ctx, REG[name].offset, value)
        for name, value in written.items():
            assert await bus.read(ctx, REG[name].offset) == value
        assert ctx.get(dut.mac) == 0x556611223344
        assert ctx.get(dut.ip) == 0x0A000001
        assert ctx.get(dut.mpt_base) == 7 << 32 | 0x9000
        await bus.write(ctx, 0x700, 5)
        assert await bus.read(ctx, 0x700) == 0
        for due in (12345, 0xFFFFFFFF):
            ctx.set(dut.next_due, due)
            assert await bus.read(ctx, REG["next_due"].offset) == due
        ctx.set(dut.neighbour_mac, 0x0256000000FE)
        assert await bus.read(ctx, REG["neighbour_mac_low"].offset) == 0xFE
        assert await bus.read(ctx, REG["neighbour_mac_high"].offset) == 0x0256
        ctx.set(dut.neighbour_valid, 1)
        assert await bus.read(ctx, REG["neighbour_mac_high"].offset) == 0x80000256
        before = await bus.read(ctx, REG["clock"].offset)
        assert before < await bus.read(ctx, REG["clock"].offset)

    simulate(dut, host, seed=rng.seed_value)


def test_a_question_for_a_neighbour_is_asked_once():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    asked = []

    async def host(ctx):
        for ip in (0x0A000007, 0x0A000007, 0x0A000008):
            await bus.write(ctx, REG["ip"].offset, 1)
            await bus.write(ctx, REG["neighbour_ip"].offset, ip)
            assert await bus.read(ctx, REG["neighbour_ip"].offset) == ip

    async def station(ctx):
        while True:
            *_, ask, ip = await ctx.tick().sample(dut.neighbour_ask, dut.neighbour_ip)
            if ask:
                asked.append(ip)

    simulate(dut, host, background=[station], seed=rng.seed_value)
    assert asked == [0x0A000007, 0x0A000007, 0x0A000008]


def test_doorbells_come_out_and_pages_beyond_the_last_are_ignored():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    sq = [(rng.randrange(16), rng.randrange(1 << 16)) for _ in range(20)]

    async def host(ctx):
        for qp, index in sq:
            await bus.write(ctx, abi.QP_PAGES + qp * abi.PAGE + abi.QpDoorbell.SQ_PRODUCER, index)
            await bus.write(ctx, abi.QP_PAGES + 16 * abi.PAGE, index)
            await bus.write(ctx, abi.QP_PAGES + qp * abi.PAGE + abi.QpDoorbell.RQ_PRODUCER, index ^ 1)
            await bus.write(ctx, abi.CQ_PAGES + qp % 8 * abi.PAGE + abi.CqDoorbell.CONSUMER, index ^ 2)
            await bus.write(ctx, abi.CQ_PAGES + 8 * abi.PAGE, index)
            await bus.write(ctx, abi.CQ_PAGES + qp % 8 * abi.PAGE + abi.CqDoorbell.ARM, index & 3)

    def expect(port, values):
        async def consumer(ctx):
            assert await receive_all(ctx, port, len(values), rng) == values
            for _ in range(20):
                _, _, extra = await ctx.tick().sample(port.valid)
                assert not extra

        return consumer

    simulate(
        dut,
        host,
        expect(dut.sq, [{"qp": qp, "index": i, "push": 0} for qp, i in sq]),
        expect(dut.rq, [{"qp": qp, "index": i ^ 1} for qp, i in sq]),
        expect(dut.consumer, [{"cq": qp % 8, "index": i ^ 2} for qp, i in sq]),
        expect(dut.arm, [{"cq": qp % 8, "flags": i & 3} for qp, i in sq]),
        seed=rng.seed_value,
    )


def test_pushed_words_come_out_before_their_doorbell():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    writes = [(rng.randrange(18), rng.choice([-1, 32, *range(32)]), rng.getrandbits(32)) for _ in range(150)]
    seen = []

    async def host(ctx):
        for qp, word, value in writes:
            page = abi.QP_PAGES + qp * abi.PAGE
            await bus.write(ctx, page + abi.QP_PUSH + 4 * word, value)
            if word % 4 == 0:
                await bus.write(ctx, page + abi.QpDoorbell.SQ_PUSH, value)
            if word % 4 == 1:
                await bus.write(ctx, page + abi.QpDoorbell.SQ_PRODUCER, value)
            if word % 4 == 2:
                await bus.write(ctx, page + abi.QpDoorbell.RQ_PRODUCER, value)
        for _ in range(20):
            await ctx.tick()

    async def user(ctx):
        """A doorbell is taken before what comes after it: as the prefetcher does, a word waits for it."""
        while True:
            ready = rng.random() < 0.5
            ctx.set(dut.sq.ready, ready)
            ctx.set(dut.push.ready, ready and not ctx.get(dut.sq.valid))
            ctx.set(dut.rq.ready, 1)
            signals = dut.sq.valid, dut.sq.payload, dut.push.valid, dut.push.payload, dut.push.ready
            _, _, rung, doorbell, pushed, word, taken = await ctx.tick().sample(*signals)
            if rung and ready:
                seen.append(plain(doorbell))
            if pushed and taken:
                seen.append(plain(word))

    simulate(dut, host, background=[user], seed=rng.seed_value, deadline=20_000)
    expected = []
    for qp, word, value in writes:
        if qp < 16 and 0 <= word < 32:
            expected.append({"qp": qp, "word": word, "data": value})
        if qp < 16 and word % 4 < 2:
            expected.append({"qp": qp, "index": value & 0xFFFF, "push": int(word % 4 == 0)})
    assert seen == expected


def test_a_pushed_word_every_two_cycles():
    dut = make()

    async def host(ctx):
        port = dut.axil
        ctx.set(dut.push.ready, 1)
        ctx.set(port.awaddr, abi.QP_PAGES + abi.QP_PUSH + 4)
        ctx.set(port.awvalid, 1)
        ctx.set(port.wvalid, 1)
        ctx.set(port.bready, 1)
        for _ in range(8):
            assert ctx.get(port.awready)
            assert not ctx.get(port.bvalid)
            await ctx.tick()
            assert ctx.get(port.bvalid)
            assert ctx.get(dut.push.valid)
            await ctx.tick()

    simulate(dut, host)


def test_mailbox_waits_while_a_command_runs_and_status_does_not():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    word = COMMAND.words(opcode=Command.QUERY_QP, number=17, action=0)[0]

    async def host(ctx):
        await bus.write(ctx, abi.MAILBOX + 4 * 5, 0xABCD)
        assert await bus.read(ctx, abi.MAILBOX + 4 * 5) == 0xABCD
        await bus.write(ctx, REG["command"].offset, word)
        assert await bus.read(ctx, REG["command_status"].offset) >> 31 == 1
        assert await bus.read(ctx, abi.MAILBOX + 4 * 5) == 0x1234
        assert await bus.read(ctx, REG["command_status"].offset) == 2

    async def block(ctx):
        ctx.set(dut.mailbox_addr, 5)
        while True:
            _, _, valid, payload = await ctx.tick().sample(dut.command.valid, dut.command.payload)
            if valid:
                break
        assert plain(payload)["number"] == 17
        assert plain(payload)["opcode"] == Command.QUERY_QP
        assert ctx.get(dut.mailbox_r_data) == 0xABCD
        for _ in range(30):
            await ctx.tick()
        ctx.set(dut.mailbox_w_data, 0x1234)
        ctx.set(dut.mailbox_w_en, 1)
        await ctx.tick()
        ctx.set(dut.mailbox_w_en, 0)
        for _ in range(30):
            await ctx.tick()
        ctx.set(dut.command_result, 2)
        ctx.set(dut.command.ready, 1)
        await ctx.tick()
        ctx.set(dut.command.ready, 0)

    simulate(dut, host, block, seed=rng.seed_value)


@pytest.mark.parametrize("word", [0, 57])
def test_counters_are_read(word):
    dut = make()
    bus = Bus(dut.axil, make_rng(1))

    async def host(ctx):
        assert await bus.read(ctx, abi.COUNTERS + 4 * word) == 1000 + word

    async def counters(ctx):
        rng = make_rng()
        [address] = await receive_all(ctx, dut.counter_addr, 1, rng)
        await send_all(ctx, dut.counter_data, [1000 + address], rng)

    simulate(dut, host, counters)
