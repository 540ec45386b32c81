"""Registers behind AXI4-Lite: what is written reads back, doorbells come out, and every access is answered in time."""

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from streams import make_rng, pause, plain, receive_all, send_all, simulate
from verbena.hdl.abi import registers as abi
from verbena.hdl.abi.commands import COMMAND, Command
from verbena.hdl.abi.contexts import QpType
from verbena.hdl.control.identity import Identity
from verbena.hdl.control.registers import Registers

REG = abi.REGISTERS


OKAY, SLVERR = 0, 2
BOUND = 128


class Bus:
    """A small AXI4-Lite manager with random gaps. What it does not offer it does not keep; no answer comes late."""

    def __init__(self, port, rng, stall=0.3):
        self.port, self.rng, self.stall = port, rng, stall

    async def offer(self, ctx, **channels):
        """Payloads of several channels at once, each begun when it likes, until all are taken."""
        port, rng = self.port, self.rng
        begun, cycles = [], 0
        while channels:
            for channel in channels:
                if channel not in begun and rng.random() >= self.stall:
                    begun.append(channel)
                    ctx.set(getattr(port, f"{channel}valid"), 1)
                    for name, value in channels[channel].items():
                        ctx.set(getattr(port, channel + name), value)
            _, _, *ready = await ctx.tick().sample(*(getattr(port, f"{channel}ready") for channel in channels))
            for channel, taken in zip(list(channels), ready, strict=True):
                if taken and channel in begun:
                    ctx.set(getattr(port, f"{channel}valid"), 0)
                    for name in channels.pop(channel):
                        signal = getattr(port, channel + name)
                        ctx.set(signal, rng.getrandbits(len(signal)))
            cycles += set(channels) <= set(begun)
            assert cycles < BOUND, "not taken"

    async def answer(self, ctx, valid, ready, *signals):
        await pause(ctx, self.rng, self.stall)
        ctx.set(ready, 1)
        for _ in range(BOUND):
            _, _, done, *values = await ctx.tick().sample(valid, *signals)
            if done:
                ctx.set(ready, 0)
                return values
        raise AssertionError("no answer")

    async def write(self, ctx, address, value, strobes=15, response=OKAY):
        port = self.port
        await self.offer(ctx, aw={"addr": address}, w={"data": value, "strb": strobes})
        assert await self.answer(ctx, port.bvalid, port.bready, port.bresp) == [response]

    async def read(self, ctx, address, response=OKAY):
        port = self.port
        await self.offer(ctx, ar={"addr": address})
        answer, value = await self.answer(ctx, port.rvalid, port.rready, port.rresp, port.rdata)
        assert answer == response
        return value


def make(**sizes):
    return Registers(Identity(data_width=64, **sizes or {"qps": 16, "cqs": 8, "window": 64, "srqs": 4}))


@pytest.mark.parametrize(("atomics", "bit"), [(True, 0), (False, 1 << 18)])
def test_an_engine_says_what_it_has_not(atomics, bit):
    dut = make(qps=4, cqs=2, window=16, responses=32, requests=False, atomics=atomics, address_width=33)
    bus = Bus(dut.axil, make_rng())

    async def host(ctx):
        wanted = 2 | 1 << 4 | 3 << 8 | 4 << 12 | 1 << 17 | bit | 5 << 20 | 33 << 24
        assert await bus.read(ctx, REG["capabilities"].offset) == wanted

    simulate(dut, host)


@pytest.mark.parametrize(
    ("transports", "wanted"),
    [
        ((QpType.RC,), 0b00100),
        ((QpType.RC, QpType.UC), 0b01100),
        ((QpType.RC, QpType.UD), 0b10100),
        ((QpType.RC, QpType.UC, QpType.UD), 0b11100),
    ],
)
def test_an_engine_says_which_types_of_queue_pairs_it_has(transports, wanted):
    """A bit each, and what is written there changes nothing; beside them the size of WQEs."""
    wqe_bytes = 128 << len(transports) - 1
    wanted |= 6 + len(transports) << 24
    dut = make(qps=4, cqs=2, window=16, transports=transports, wqe_bytes=wqe_bytes)
    bus = Bus(dut.axil, make_rng())
    offset = REG["transports"].offset

    async def host(ctx):
        assert offset == 0x2C
        assert await bus.read(ctx, offset) == wanted
        await bus.write(ctx, offset, 0xFFFF_FFFF)
        assert await bus.read(ctx, offset) == wanted

    simulate(dut, host)


@pytest.mark.parametrize("srqs", [0, 2, 256])
def test_an_engine_says_how_many_shared_receive_queues_it_has(srqs):
    """Each has a page, and without any there is no doorbell."""
    dut = make(qps=4, cqs=2, window=16, srqs=srqs)
    bus = Bus(dut.axil, make_rng())
    rung = []

    async def host(ctx):
        assert REG["queues"].offset == 0x3C
        assert await bus.read(ctx, REG["queues"].offset) == srqs
        await bus.write(ctx, REG["queues"].offset, 0xFFFF_FFFF)
        assert await bus.read(ctx, REG["queues"].offset) == srqs
        for page in (srqs - 1, srqs, 0):
            await bus.write(ctx, abi.SRQ_PAGES + page % 256 * abi.PAGE, 0x1234)
        for _ in range(10):
            await ctx.tick()

    async def listen(ctx):
        ctx.set(dut.srq.ready, 1)
        async for _, _, valid, item in ctx.tick().sample(dut.srq.valid, dut.srq.payload):
            if valid:
                rung.append((item.qp, item.index))

    simulate(dut, host, background=[listen] if srqs else [])
    assert abi.SRQ_PAGES + 256 * abi.PAGE <= 1 << abi.ADDRESS_WIDTH
    assert hasattr(dut, "srq") == (srqs > 0)
    assert rung == {0: [], 2: [(1, 0x1234), (0, 0x1234)], 256: [(255, 0x1234), (0, 0x1234), (0, 0x1234)]}[srqs]


def test_a_table_of_gids_is_written():
    """Rows of 32 bytes from 0x400 on, and the address that is sought at 0x600; neither is read back."""
    rng = make_rng()
    dut = make(qps=4, cqs=2, window=16, gids=True)
    bus = Bus(dut.axil, rng)
    places = [(index, word) for index in range(16) for word in range(8)]
    rng.shuffle(places)
    written = [(index, word, rng.getrandbits(32)) for index, word in places]
    gid, seen, asked = rng.getrandbits(128), [], []

    async def host(ctx):
        assert await bus.read(ctx, REG["transports"].offset) == 1 << 2 | 16 << 16 | 7 << 24
        for index, word, value in written:
            await bus.write(ctx, 0x400 + 32 * index + 4 * word, value)
        assert await bus.read(ctx, 0x400) == 0
        for word in range(4):
            await bus.write(ctx, 0x600 + 4 * word, gid >> 32 * word & 0xFFFFFFFF)
        await bus.write(ctx, 0x610, 13)
        for near in (0x3FC, 0x614, 0x620, 0x7FC, 0x1400, 0x1610):
            await bus.write(ctx, near, 5)
        await ctx.tick().repeat(5)

    async def listen(ctx):
        signals = (dut.gid_en, dut.gid, dut.neighbour_ask, dut.neighbour_gid, dut.neighbour_row)
        async for _, _, en, item, asks, sought, row in ctx.tick().sample(*signals):
            if en:
                seen.append((item.index, item.word, item.data))
            if asks:
                asked.append((sought, row))

    simulate(dut, host, background=[listen])
    assert (seen, asked) == (written, [(gid, 13)])
    assert not hasattr(make(), "gid")


def test_group_members_are_written():
    """Rows at 0x620, word by word; and what the engine says of RoCEv1 and of groups."""
    rng = make_rng()
    dut = make(qps=4, cqs=2, window=16, gids=True, roce_v1=True, multicast=True)
    bus = Bus(dut.axil, rng)
    written, seen, gids = [(word, rng.getrandbits(32)) for word in (0, 1, 2, 3, 4, 2, 7)], [], []

    async def host(ctx):
        assert await bus.read(ctx, REG["transports"].offset) == 1 << 2 | 16 << 16 | 7 << 24 | 1 << 29 | 1 << 30
        for word, value in written:
            await bus.write(ctx, 0x620 + 4 * word, value)
        for near in (0x3FC, 0x400, 0x614, 0x640, 0x1620):
            await bus.write(ctx, near, 5)
        await ctx.tick().repeat(5)

    async def listen(ctx):
        async for _, _, en, gid_en, item in ctx.tick().sample(dut.member_en, dut.gid_en, dut.gid):
            if en:
                seen.append((item.word, item.data))
            if gid_en:
                gids.append(item.data)

    simulate(dut, host, background=[listen])
    assert (seen, gids) == (written, [5])
    assert not hasattr(make(), "member_en")


@pytest.mark.parametrize(
    ("able", "told"),
    [
        ({"event_queues": 8}, 3 << 16),
        ({"event_queues": 2, "cq_moderation": True, "srqs": 4}, 4 | 1 << 16 | 1 << 20),
        ({"interrupt_moderation": True}, 1 << 21),
    ],
)
def test_event_queues_are_written(able, told):
    """A row each; those beyond the last are no registers."""
    dut = make(qps=4, cqs=2, window=16, **able)
    bus = Bus(dut.axil, make_rng())
    count = able.get("event_queues", 1)
    heard = []

    async def listen(ctx):
        async for _, _, en, write in ctx.tick().sample(dut.event_queue_en, dut.event_queue):
            if en:
                heard.append((write.queue, write.word, write.data))

    async def host(ctx):
        assert await bus.read(ctx, REG["queues"].offset) == told
        for queue, word in [(0, 4), (count - 1, 0), (count - 1, 3), (count, 1), (16, 2)]:
            value = queue << 8 | word
            await bus.write(ctx, abi.EVENT_QUEUES + 32 * queue + 4 * word, value)
            await ctx.tick()
            if queue < count:
                assert heard.pop(0) == (queue, word, value)
            assert not heard
        await bus.write(ctx, abi.EVENT_QUEUES, 1, strobes=3, response=SLVERR)
        await bus.write(ctx, abi.EVENT_QUEUES, 1, strobes=0)
        assert not heard
        assert await bus.read(ctx, abi.EVENT_QUEUES) == 0

    simulate(dut, host, background=[listen])
    assert not hasattr(make(), "event_queue")
    assert not hasattr(make(qps=4, cqs=2, window=16, cq_moderation=True), "event_queue")


def test_who_gets_raw_frames_is_written_and_forgotten():
    """At 0x700, and nowhere near it; a DEVICE_RESET clears it."""
    dut = make(qps=4, cqs=2, window=16, raw=True)
    bus = Bus(dut.axil, make_rng())

    async def host(ctx):
        await bus.write(ctx, 0x700, 0x1ABCDEF)
        for near in (0x6FC, 0x704, 0x1700):
            await bus.write(ctx, near, 5)
        assert (ctx.get(dut.raw_filter.qpn), ctx.get(dut.raw_filter.promiscuous)) == (0xABCDEF, 1)
        assert await bus.read(ctx, 0x700) == 0
        await bus.write(ctx, REG["command"].offset, COMMAND.words(opcode=Command.DEVICE_RESET)[0])
        await ctx.tick().repeat(2)
        assert (ctx.get(dut.raw_filter.qpn), ctx.get(dut.raw_filter.promiscuous)) == (0, 0)

    simulate(dut, host)
    assert not hasattr(make(), "raw_filter")


def test_an_engine_with_a_table_of_queue_pairs_says_so():
    """16,384 of them, each with a page."""
    dut = make(qps=1 << 14, cqs=64, window=64, table=True)
    bus = Bus(dut.axil, make_rng())

    async def host(ctx):
        wanted = 14 | 6 << 4 | 3 << 8 | 6 << 12 | 1 << 16 | 1 << 19 | 8 << 20 | 64 << 24
        assert await bus.read(ctx, REG["capabilities"].offset) == wanted
        assert wanted & abi.QP_TABLE
        assert abi.QP_PAGES + (1 << 14) * abi.PAGE == abi.CQ_PAGES
        assert await bus.read(ctx, REG["qpc_low"].offset) == await bus.read(ctx, REG["qpc_high"].offset) == 0

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
        "cqc_low": 0x4000,
        "cqc_high": 0x72,
        "qpc_low": 0x80010000,
        "qpc_high": 0x73,
    }

    async def host(ctx):
        assert await bus.read(ctx, REG["magic"].offset) == abi.MAGIC
        assert await bus.read(ctx, REG["version"].offset) == abi.VERSION
        assert (
            await bus.read(ctx, REG["capabilities"].offset)
            == 4 | 3 << 4 | 3 << 8 | 6 << 12 | 1 << 16 | 8 << 20 | 64 << 24
        )
        assert await bus.read(ctx, REG["tick"].offset) == 512
        for name, value in written.items():
            await bus.write(ctx, REG[name].offset, value)
        for name, value in written.items():
            assert await bus.read(ctx, REG[name].offset) == value
        assert ctx.get(dut.mac) == 0x556611223344
        assert ctx.get(dut.ip) == 0x0A000001
        assert ctx.get(dut.mpt_base) == 7 << 32 | 0x9000
        assert ctx.get(dut.cqc_base) == 0x72_0000_4000
        assert ctx.get(dut.qpc_base) == 0x73_8001_0000
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

    async def arp_icmp(ctx):
        while True:
            *_, ask, ip = await ctx.tick().sample(dut.neighbour_ask, dut.neighbour_ip)
            if ask:
                asked.append(ip)

    simulate(dut, host, background=[arp_icmp], seed=rng.seed_value)
    assert asked == [0x0A000007, 0x0A000007, 0x0A000008]


def test_doorbells_come_out_and_pages_beyond_the_last_are_ignored():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    sq = [(rng.randrange(16), rng.randrange(1 << 16)) for _ in range(20)]

    async def host(ctx):
        await bus.write(ctx, REG["cqc_log_size"].offset, 3)
        for qp, index in sq:
            await bus.write(ctx, abi.QP_PAGES + qp * abi.PAGE + abi.QpDoorbell.SQ_PRODUCER, index)
            await bus.write(ctx, abi.QP_PAGES + 16 * abi.PAGE, index)
            await bus.write(ctx, abi.QP_PAGES + qp * abi.PAGE + abi.QpDoorbell.RQ_PRODUCER, index ^ 1)
            await bus.write(ctx, abi.CQ_PAGES + qp % 8 * abi.PAGE + abi.CqDoorbell.CONSUMER, index ^ 2)
            await bus.write(ctx, abi.CQ_PAGES + 8 * abi.PAGE, index)
            await bus.write(ctx, abi.CQ_PAGES + qp % 8 * abi.PAGE + abi.CqDoorbell.ARM, index & 0xFF)
            await bus.write(ctx, abi.SRQ_PAGES + qp % 4 * abi.PAGE + abi.SrqDoorbell.PRODUCER, index ^ 3)
            for beyond in (4 * abi.PAGE, 4, abi.PAGE + 8, 256 * abi.PAGE):
                await bus.write(ctx, abi.SRQ_PAGES + beyond, index)

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
        expect(dut.arm, [{"cq": qp % 8, "arms": i & 15, "solicited_arms": i >> 4 & 15} for qp, i in sq]),
        expect(dut.srq, [{"qp": qp % 4, "index": i ^ 3} for qp, i in sq]),
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
        ctx.set(port.wstrb, 15)
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


def test_the_mailbox_is_the_commands_while_one_runs():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    word = COMMAND.words(opcode=Command.QUERY_QP, number=17, action=0)[0]
    tried = []

    async def host(ctx):
        await bus.write(ctx, abi.MAILBOX + 4 * 5, 0xABCD)
        assert await bus.read(ctx, abi.MAILBOX + 4 * 5) == 0xABCD
        await bus.write(ctx, REG["command"].offset, word)
        assert await bus.read(ctx, REG["command_status"].offset) >> 31 == 1
        await bus.read(ctx, abi.MAILBOX + 4 * 5, SLVERR)
        for index in range(64):
            await bus.write(ctx, abi.MAILBOX + 4 * index, 0xBAD, response=SLVERR)
        tried.append(True)
        while await bus.read(ctx, REG["command_status"].offset) >> 31:
            pass
        assert await bus.read(ctx, REG["command_status"].offset) == 2
        assert await bus.read(ctx, abi.MAILBOX + 4 * 5) == 0x1234
        await bus.write(ctx, abi.MAILBOX + 4 * 5, 7)
        assert await bus.read(ctx, abi.MAILBOX + 4 * 5) == 7

    async def block(ctx):
        ctx.set(dut.mailbox_addr, 5)
        while True:
            _, _, valid, payload = await ctx.tick().sample(dut.command.valid, dut.command.payload)
            if valid:
                break
        assert plain(payload)["number"] == 17
        assert plain(payload)["opcode"] == Command.QUERY_QP
        await ctx.tick()
        assert ctx.get(dut.mailbox_r_data) == 0xABCD
        while not tried:
            await ctx.tick()
        assert ctx.get(dut.mailbox_r_data) == 0xABCD
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


CLASSES = {
    "register": REG["mac_low"].offset,
    "constant": REG["magic"].offset,
    "command": REG["command"].offset,
    "nothing": 0x700,
    "mailbox": abi.MAILBOX + 8,
    "counter": abi.COUNTERS + 4,
    "sq": abi.QP_PAGES + abi.QpDoorbell.SQ_PRODUCER,
    "sq_push": abi.QP_PAGES + 3 * abi.PAGE + abi.QpDoorbell.SQ_PUSH,
    "rq": abi.QP_PAGES + abi.QpDoorbell.RQ_PRODUCER,
    "push": abi.QP_PAGES + abi.QP_PUSH + 4,
    "consumer": abi.CQ_PAGES + abi.CqDoorbell.CONSUMER,
    "arm": abi.CQ_PAGES + abi.CqDoorbell.ARM,
    "srq": abi.SRQ_PAGES + 3 * abi.PAGE + abi.SrqDoorbell.PRODUCER,
    "nobody": abi.CQ_PAGES + 100 * abi.PAGE,
    "no SRQ": abi.SRQ_PAGES + 4 * abi.PAGE,
}
"""An address of each kind."""

DOORBELLS = "sq", "rq", "consumer", "arm", "srq"


class Behind:
    """The blocks behind the registers, none of which is quick: what they are told, and counters."""

    def __init__(self, dut, rng, stall=0.9):
        self.dut, self.rng, self.stall = dut, rng, stall
        self.heard = []

    def doorbell(self, name):
        async def take(ctx):
            port = getattr(self.dut, name)
            while True:
                ready = self.rng.random() > self.stall
                ctx.set(port.ready, ready)
                _, _, valid, item = await ctx.tick().sample(port.valid, port.payload)
                if valid and ready:
                    self.heard.append((name, plain(item)))

        return take

    async def counters(self, ctx):
        while True:
            [address] = await receive_all(ctx, self.dut.counter_addr, 1, self.rng)
            for _ in range(40):
                await ctx.tick()
            await send_all(ctx, self.dut.counter_data, [1000 + address], self.rng)

    def testbenches(self):
        return [*(self.doorbell(name) for name in (*DOORBELLS, "push")), self.counters]


@pytest.mark.parametrize("running", [False, True])
def test_every_access_is_answered_in_time(running):
    """Reads and writes of all kinds, each on its own, in all orders, while a command runs that never ends, and not."""
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng, stall=rng.choice([0, 0.5, 0.9]))
    behind = Behind(dut, rng)
    began = []

    def refused(name):
        return SLVERR if running and name == "mailbox" else OKAY

    async def writer(ctx):
        if running:
            await bus.write(ctx, REG["command"].offset, 1)
        began.append(True)
        for _ in range(150):
            name = rng.choice(list(CLASSES))
            if name != "command" or running:
                value = rng.getrandbits(32) & ~(15 << 24)  # no command that ends the one that runs
                await bus.write(ctx, CLASSES[name], value, response=refused(name))

    async def reader(ctx):
        while not began:
            await ctx.tick()
        for _ in range(150):
            name = rng.choice(list(CLASSES))
            await bus.read(ctx, CLASSES[name], response=refused(name))

    simulate(dut, writer, reader, background=behind.testbenches(), seed=rng.seed_value, deadline=40_000)


@pytest.mark.parametrize("name", [*DOORBELLS, "push"])
def test_a_doorbell_that_must_wait_is_not_mistaken(name):
    """What the manager shows behind it, before it is answered, is none of its business."""
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    behind = Behind(dut, rng)
    values = [rng.randrange(4) for _ in range(12)]

    async def host(ctx):
        for value in values:
            await bus.write(ctx, CLASSES[name], value)
        while len(behind.heard) < len(values):
            await ctx.tick()

    simulate(dut, host, background=behind.testbenches(), seed=rng.seed_value)
    field = {"arm": "arms", "push": "data"}.get(name, "index")
    assert [(who, item[field]) for who, item in behind.heard] == [(name, value) for value in values]


@pytest.mark.parametrize("cycles", [400, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["rq", "push", "register"])
def test_reads_and_writes_take_turns(name, cycles):
    """Neither a page that is rung without pause nor a register that is polled without pause keeps the other out."""
    dut = make()
    behind = Behind(dut, make_rng(), stall=0)
    counts = {"b": 0, "r": 0}

    async def host(ctx):
        port = dut.axil
        for signal, value in (
            (port.awaddr, CLASSES[name]),
            (port.araddr, CLASSES["constant"]),
            (port.wstrb, 15),
            *((signal, 1) for signal in (port.awvalid, port.wvalid, port.arvalid, port.bready, port.rready)),
        ):
            ctx.set(signal, value)
        edges = aiter(ctx.tick().sample(port.bvalid, port.rvalid, port.rdata))
        for _ in range(cycles):
            _, _, written, read, value = await anext(edges)
            counts["b"] += written
            counts["r"] += read
            assert not read or value == abi.MAGIC

    simulate(dut, host, background=behind.testbenches())
    assert counts["r"] >= cycles // 10
    assert abs(counts["b"] - counts["r"]) <= 1


def test_cycles_of_a_read_and_of_a_doorbell():
    dut = make()

    async def host(ctx):
        port = dut.axil
        for signal, value in ((port.araddr, CLASSES["constant"]), (port.awaddr, CLASSES["rq"]), (port.wstrb, 15)):
            ctx.set(signal, value)
        for valids, answer, latency in (
            ((port.arvalid,), port.rvalid, 4),
            ((port.awvalid, port.wvalid), dut.rq.valid, 2),
        ):
            for valid in valids:
                ctx.set(valid, 1)
            await ctx.tick()
            for valid in valids:
                ctx.set(valid, 0)
            for cycle in range(1, latency + 1):
                assert ctx.get(answer) == (cycle == latency)
                await ctx.tick()
            ctx.set(port.rready, 1)
            await ctx.tick()

    simulate(dut, host)


@pytest.mark.parametrize("first", ["b", "r"])
def test_an_answer_that_is_not_taken_holds_up_its_own_channel_only(first):
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)

    async def host(ctx):
        port = dut.axil
        if first == "b":
            await bus.offer(ctx, aw={"addr": CLASSES["register"]}, w={"data": 5, "strb": 15})
            for _ in range(5):
                assert await bus.read(ctx, CLASSES["register"]) == 5
            assert await bus.answer(ctx, port.bvalid, port.bready, port.bresp) == [OKAY]
        else:
            await bus.offer(ctx, ar={"addr": CLASSES["constant"]})
            for value in range(5):
                await bus.write(ctx, CLASSES["register"], value)
            assert await bus.answer(ctx, port.rvalid, port.rready, port.rresp, port.rdata) == [OKAY, abi.MAGIC]

    simulate(dut, host, seed=rng.seed_value)


@pytest.mark.parametrize("name", [*DOORBELLS, "sq_push", "push", "register", "mailbox", "command"])
def test_a_write_without_all_its_strobes_does_nothing(name):
    """None at all is no access, as AXI's converters of widths make them; some are refused."""
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)
    behind = Behind(dut, rng)

    async def host(ctx):
        for word in (CLASSES["register"], CLASSES["mailbox"]):
            await bus.write(ctx, word, 0x01020304)
        for strobes in range(15):
            await bus.write(ctx, CLASSES[name], rng.getrandbits(32), strobes, SLVERR if strobes else OKAY)
        for word in (CLASSES["register"], CLASSES["mailbox"]):
            assert await bus.read(ctx, word) == 0x01020304
        assert ctx.get(dut.mac) == 0x01020304
        assert await bus.read(ctx, REG["command_status"].offset) == 0
        for _ in range(100):
            await ctx.tick()

    simulate(dut, host, background=behind.testbenches(), seed=rng.seed_value)
    assert not behind.heard


def test_after_a_reset_registers_read_as_what_they_hold():
    rng = make_rng()
    reset = Signal()
    dut = make()
    bus = Bus(dut.axil, rng)
    written = [name for name, register in REG.items() if register.access == "rw"]

    async def host(ctx):
        before = {name: await bus.read(ctx, REG[name].offset) for name in written}
        assert before == {name: {"tick": 512, "bus_timeout": 4096}.get(name, 0) for name in written}
        for name in written:
            await bus.write(ctx, REG[name].offset, 0xFFFFFFFF)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert {name: await bus.read(ctx, REG[name].offset) for name in written} == before
        assert (ctx.get(dut.enable), ctx.get(dut.mpt_base), ctx.get(dut.tick)) == (0, 0, 512)
        await bus.write(ctx, REG["tick"].offset, 77)
        assert await bus.read(ctx, REG["tick"].offset) == 77

    m = Module()
    m.submodules.dut = ResetInserter(reset)(dut)
    simulate(m, host, seed=rng.seed_value)


def test_a_new_event_ring_begins_at_0():
    rng = make_rng()
    dut = make()
    bus = Bus(dut.axil, rng)

    async def host(ctx):
        await bus.write(ctx, REG["eq_consumer"].offset, 9)
        assert await bus.read(ctx, REG["eq_consumer"].offset) == 9
        await bus.write(ctx, REG["eq_log_size"].offset, 3)
        assert await bus.read(ctx, REG["eq_consumer"].offset) == ctx.get(dut.eq_consumer) == 0

    simulate(dut, host, seed=rng.seed_value)


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


def test_the_owner_is_who_came_first():
    dut = make()
    bus = Bus(dut.axil, make_rng())
    owner = REG["owner"].offset

    async def host(ctx):
        assert await bus.read(ctx, owner) == 0
        for first, second in ((0x12345679, 0x9ABCDEF1), (0xFFFFFFFF, 1), (1, 3)):
            await bus.write(ctx, owner, first)
            await bus.write(ctx, owner, second)
            assert await bus.read(ctx, owner) == first
            await bus.write(ctx, owner, 0x40)  # bit 0 is clear: given up
            assert await bus.read(ctx, owner) == 0x40

    simulate(dut, host)


def test_bus_timeout_and_what_comes_of_it():
    dut = make()
    bus = Bus(dut.axil, make_rng())

    async def host(ctx):
        assert ctx.get(dut.bus_timeout) == await bus.read(ctx, REG["bus_timeout"].offset) == 4096
        await bus.write(ctx, REG["bus_timeout"].offset, 77)
        assert ctx.get(dut.bus_timeout) == await bus.read(ctx, REG["bus_timeout"].offset) == 77
        for overdue in (0, 1):
            ctx.set(dut.overdue, overdue)
            assert await bus.read(ctx, REG["status"].offset) == overdue << 2

    simulate(dut, host)


def test_device_reset_interrupts_everything():
    """It is taken while a command runs, which is not heard of again; doorbells that nobody takes hold up nothing; and
    ``busy`` until it is over. The owner, and what the adapter is told, stay.
    """
    dut = make()
    bus = Bus(dut.axil, make_rng())
    doorbells = {"sq": abi.QP_PAGES, "rq": abi.QP_PAGES + 4, "consumer": abi.CQ_PAGES, "arm": abi.CQ_PAGES + 4}
    strobes = []

    async def watch(ctx):
        async for _, _, strobe in ctx.tick().sample(dut.device_reset):
            strobes.append(strobe)

    async def host(ctx):
        await bus.write(ctx, REG["control"].offset, 3)
        await bus.write(ctx, REG["ip"].offset, 0x0A000001)
        await bus.write(ctx, REG["owner"].offset, 0x55)
        await bus.write(ctx, REG["command"].offset, COMMAND.words(opcode=Command.CREATE_QP, number=17)[0])
        for offset in doorbells.values():
            await bus.write(ctx, offset, 1)  # stays in its register
        assert ctx.get(dut.command.valid)
        await bus.write(ctx, REG["command"].offset, COMMAND.words(opcode=Command.DEVICE_RESET)[0])
        for _ in range(2):
            await ctx.tick()
        ctx.set(dut.resetting, 1)
        assert sum(strobes) == 1
        assert not ctx.get(dut.command.valid)
        assert (ctx.get(dut.enable), ctx.get(dut.interrupt_enable), ctx.get(dut.ip)) == (0, 0, 0x0A000001)
        for _ in range(3):  # nobody takes these
            for name, offset in doorbells.items():
                await bus.write(ctx, offset, 1)
                await ctx.tick()
                assert not ctx.get(getattr(dut, name).valid)
            await bus.write(ctx, abi.QP_PAGES + abi.QP_PUSH, 5)
        assert await bus.read(ctx, REG["command_status"].offset) >> 31
        # A command is ignored meanwhile.
        await bus.write(ctx, REG["command"].offset, COMMAND.words(opcode=Command.NOP)[0])
        assert not ctx.get(dut.command.valid)
        ctx.set(dut.resetting, 0)
        assert await bus.read(ctx, REG["command_status"].offset) == 0
        assert await bus.read(ctx, REG["owner"].offset) == 0x55
        await bus.write(ctx, abi.QP_PAGES, 1)
        assert ctx.get(dut.sq.valid)

    simulate(dut, host, background=[watch])
