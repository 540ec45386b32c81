"""The command block: what is written where, in which order, and what an error sets off."""

from streams import Item, collect, make_rng, plain, send_all, simulate
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus, QpAction
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT, QP_CONTEXT_WORDS, QpState
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.control.commands import Commands

QPS, CQS = 8, 4
TOKENS = ("requester", "responder", "completer", "sq_fetch", "rq_fetch")


class Bench:
    """Mailbox, pipelines and observers around a command block. ``log`` holds what happened, in order."""

    def __init__(self, seed=None, drain=20):
        self.rng = make_rng(seed)
        self.dut = Commands(QPS, CQS)
        self.mailbox = [0] * 64
        self.log = []
        self.drain = drain
        self.events = []

    async def memory(self, ctx):
        dut = self.dut
        async for _, _, address, enable, data in ctx.tick().sample(
            dut.mailbox_addr, dut.mailbox_w_en, dut.mailbox_w_data
        ):
            if enable:
                self.mailbox[address] = data

    async def mailbox_read(self, ctx):
        dut = self.dut
        async for address in ctx.changed(dut.mailbox_addr):
            ctx.set(dut.mailbox_r_data, self.mailbox[address[0]])

    async def attributes(self, ctx):
        dut = self.dut
        ports = (dut.qp_attribute_en, dut.qp_attribute, dut.cq_attribute_en, dut.cq_attribute)
        async for _, _, qp_en, qp, cq_en, cq in ctx.tick().sample(*ports):
            if qp_en:
                self.log.append(("qp", qp.index, qp.word, qp.data))
            if cq_en:
                self.log.append(("cq", cq.index, cq.word, cq.data))

    def token(self, name):
        async def process(ctx):
            port = getattr(self.dut, name)
            while True:
                for _ in range(self.rng.randrange(4)):
                    await ctx.tick()
                ctx.set(port.ready, 1)
                valid = 0
                while not valid:
                    _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                ctx.set(port.ready, 0)
                item = plain(payload)
                self.log.append((name, item["qp"], item["action"], item["psn"]))
                if name in ("requester", "responder") and item["action"] == QpAction.RESET:
                    for _ in range(self.rng.randrange(self.drain)):
                        await ctx.tick()
                    self.log.append((name, "out"))
                    ctx.set(getattr(self.dut, f"{name}_done"), 1)
                    await ctx.tick()
                    ctx.set(getattr(self.dut, f"{name}_done"), 0)
                if name in ("requester", "responder", "completer") and item["action"] == QpAction.QUERY:
                    reply = {"requester": {"psn": 0xAB, "index": 3}, "responder": {"psn": 0xCD, "index": 4}}
                    await send_all(ctx, getattr(self.dut, f"{name}_reply"), [reply.get(name, {"index": 2})])

        return process

    async def command(self, ctx, opcode, number, action=QpAction.NONE, words=()):
        self.mailbox[: len(words)] = words
        port = self.dut.command
        ctx.set(port.payload.as_value(), COMMAND.words(opcode=opcode, number=number, action=action)[0])
        ctx.set(port.valid, 1)
        ready = 0
        while not ready:
            _, _, ready, result = await ctx.tick().sample(port.ready, self.dut.result)
        ctx.set(port.valid, 0)
        return CommandStatus(result)

    def run(self, host):
        async def accept_cq(ctx):
            ctx.set(self.dut.cq_control.ready, 1)
            async for _, _, valid, cq in ctx.tick().sample(self.dut.cq_control.valid, self.dut.cq_control.payload.cq):
                if valid:
                    self.log.append(("cq_control", cq))

        async def accept_invalidate(ctx):
            port = self.dut.invalidate
            ctx.set(port.ready, 1)
            async for _, _, valid, index in ctx.tick().sample(port.valid, port.payload.index):
                if valid:
                    self.log.append(("invalidate", index))

        async def take_events(ctx):
            await collect(ctx, self.dut.event, self.events)

        tokens = [self.token(name) for name in TOKENS]
        background = [
            self.memory,
            self.mailbox_read,
            self.attributes,
            accept_cq,
            accept_invalidate,
            take_events,
            *tokens,
        ]
        simulate(self.dut, host, background=background, seed=self.rng.seed_value)


def _words(**values):
    return QP_CONTEXT.words(**values)


def test_create_writes_all_words_and_ends_when_both_pipelines_are_empty():
    bench = Bench()
    words = [(i + 1) * 0x01010101 for i in range(QP_CONTEXT_WORDS)]

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_QP, QPS + 5, words=words) == CommandStatus.OK
        assert ("requester", "out") in bench.log
        assert ("responder", "out") in bench.log

    bench.run(host)
    written = [entry for entry in bench.log if entry[0] == "qp"]
    assert written == [("qp", 5, i, words[i]) for i in reversed(range(QP_CONTEXT_WORDS))]
    tokens = [entry[0] for entry in bench.log if entry[0] in TOKENS and entry[1] != "out"]
    assert tokens == list(TOKENS)
    assert bench.log.index(("requester", 5, QpAction.RESET, 0)) > bench.log.index(("qp", 5, 0, words[0]))


def test_start_tokens_carry_their_psn_before_the_attributes_are_written():
    bench = Bench()
    words = _words(state=QpState.RTR, rq_psn=0x123456, sq_psn=0x654321)

    async def host(ctx):
        await bench.command(ctx, Command.MODIFY_QP, QPS + 1, QpAction.START_RECEIVE, words)
        first = list(bench.log)
        assert first.index(("responder", 1, QpAction.START_RECEIVE, 0x123456)) < first.index(("qp", 1, 0, words[0]))
        await bench.command(ctx, Command.MODIFY_QP, QPS + 1, QpAction.START_SEND, words)
        second = bench.log[len(first) :]
        assert second.index(("requester", 1, QpAction.START_SEND, 0x654321)) < second.index(("qp", 1, 0, words[0]))

    bench.run(host)


def test_query_gives_attributes_and_what_the_owners_say():
    bench = Bench()
    words = _words(state=QpState.RTS, pd=77, sq_base=0x123000)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 2, words=words)
        bench.mailbox[:] = [0] * 64
        assert await bench.command(ctx, Command.QUERY_QP, QPS + 2) == CommandStatus.OK

    bench.run(host)
    assert bench.mailbox[: len(words)] == words
    assert bench.mailbox[32:36] == [0xAB, 0xCD, 3 | 4 << 16, 2]


def test_wrong_numbers_and_opcodes_are_refused_and_change_nothing():
    bench = Bench()

    async def host(ctx):
        for number in (0, QPS - 1, 2 * QPS, 3 * QPS):
            for opcode in (Command.CREATE_QP, Command.MODIFY_QP, Command.QUERY_QP, Command.DESTROY_QP):
                assert await bench.command(ctx, opcode, number) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_CQ, CQS) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, 15, QPS) == CommandStatus.BAD_OPCODE
        assert await bench.command(ctx, Command.MODIFY_QP, QPS, 7) == CommandStatus.BAD_PARAMETER
        assert await bench.command(ctx, Command.NOP, 0) == CommandStatus.OK

    bench.run(host)
    assert bench.log == []


def test_completion_queues_and_invalidation():
    bench = Bench()
    words = CQ_CONTEXT.words(base=0xABC000, log_size=7, valid=1)

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_CQ, 3, words=words) == CommandStatus.OK
        assert await bench.command(ctx, Command.INVALIDATE_KEY, 0x1234) == CommandStatus.OK
        assert await bench.command(ctx, Command.DESTROY_CQ, 3) == CommandStatus.OK

    bench.run(host)
    writes = [("cq", 3, i, words[i]) for i in (3, 2, 1, 0)]
    zeros = [("cq", 3, i, 0) for i in (3, 2, 1, 0)]
    assert bench.log == [*writes, ("cq_control", 3), ("invalidate", 0x1234), *zeros, ("cq_control", 3)]


def test_an_error_moves_the_qp_to_err_once_keeps_the_rest_and_tells_the_host():
    bench = Bench()
    words = _words(state=QpState.RTS, path_mtu=3, access=14, rnr_retry=7)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        report = Item(qp=4, event=EventType.QP_ACCESS_ERR)
        await send_all(ctx, bench.dut.responder_error, [report])
        await send_all(ctx, bench.dut.completer_error, [Item(qp=4, event=255)])
        for _ in range(100):
            await ctx.tick()

    bench.run(host)
    moved = _words(state=QpState.ERR, path_mtu=3, access=14, rnr_retry=7)[0]
    assert bench.log == [("qp", 4, 0, moved), *[(name, 4, QpAction.ERROR, 0) for name in TOKENS]]
    assert bench.events == [{"type": EventType.QP_ACCESS_ERR, "number": QPS + 4}]


def test_an_error_of_the_old_life_does_not_touch_the_new_one():
    bench = Bench(drain=60)
    words = _words(state=QpState.RTS)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        # The report waits in the queue while the command runs, and is taken, and dropped, before the command ends.
        port = bench.dut.responder_error
        ctx.set(port.payload, {"qp": 4, "event": EventType.QP_REQ_ERR})
        command = COMMAND.words(opcode=Command.DESTROY_QP, number=QPS + 4)[0]
        ctx.set(bench.dut.command.payload.as_value(), command)
        ctx.set(bench.dut.command.valid, 1)
        while not any(entry[:3] == ("requester", 4, QpAction.RESET) for entry in bench.log):
            await ctx.tick()
        ctx.set(port.valid, 1)
        await ctx.tick()
        ctx.set(port.valid, 0)
        ready = 0
        while not ready:
            _, _, ready = await ctx.tick().sample(bench.dut.command.ready)
        ctx.set(bench.dut.command.valid, 0)
        del bench.log[:]
        for _ in range(100):
            await ctx.tick()
        assert bench.log == []
        assert bench.events == []

    bench.run(host)


def test_a_qp_in_err_is_not_brought_back_by_a_host_that_does_not_know():
    bench = Bench()
    words = _words(state=QpState.RTS, path_mtu=3)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        await send_all(ctx, bench.dut.responder_error, [Item(qp=4, event=EventType.QP_ACCESS_ERR)])
        for _ in range(100):
            await ctx.tick()
        del bench.log[:]
        status = await bench.command(ctx, Command.MODIFY_QP, QPS + 4, QpAction.NONE, words)
        assert status == CommandStatus.BAD_STATE
        assert ("qp", 4, 0, words[0]) not in bench.log
        reset = _words(state=QpState.RESET)
        assert await bench.command(ctx, Command.MODIFY_QP, QPS + 4, QpAction.RESET, reset) == CommandStatus.OK
        assert await bench.command(ctx, Command.MODIFY_QP, QPS + 4, QpAction.NONE, words) == CommandStatus.OK

    bench.run(host)
