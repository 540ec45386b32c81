"""The command block: what is written where, in which order, and what an error sets off."""

import pytest
from amaranth.hdl import Value
from streams import Item, changes, collect, make_rng, send_all, shared, simulate, unpacked
from verbena.hdl.abi.commands import COMMAND, Command, CommandStatus, QpAction
from verbena.hdl.abi.contexts import CQ_CONTEXT, QP_CONTEXT, QP_CONTEXT_WORDS, QpState, QpType
from verbena.hdl.abi.eqe import EventType
from verbena.hdl.control.commands import Commands
from verbena.hdl.control.quiet import QUIET
from verbena.hdl.stream.transfer import NO_EVENT, SEND_FAILED

QPS, LOG_CQS = 8, 2
QPN_WORD = QP_CONTEXT.fields["qpn"].word
TOKENS = ("requester", "responder", "response_receiver", "completer", "sq_fetch", "rq_fetch")
MOST = tuple(name for name in TOKENS if name != "response_receiver")
DONE = {
    "requester": ("requester",),
    "responder": ("responder", "read_atomic_responder"),
    "response_receiver": ("response_receiver",),
}
"""Whose token comes out of which pipelines, if it is one of :data:`PASSAGES`."""

PASSAGES = ((QpAction.RESET, QpAction.SAVE, QpAction.LOAD), (QpAction.RESET, QpAction.STOP))
"""Of all but the requester, and of the requester."""


class Bench:
    """Mailbox, pipelines and observers around a command block. ``log`` holds what happened, in order."""

    def __init__(self, seed=None, drain=20, **options):
        self.rng = make_rng(seed)
        self.dut = shared(Commands, QPS, **options)
        self.more = []  # testbenches in the background
        self.mailbox = [0] * 64
        self.log = []
        self.drain = drain
        self.events = []
        self.moving = 1

    async def memory(self, ctx):
        dut, put = self.dut, changes(ctx)
        edges = aiter(ctx.tick().sample(dut.mailbox_addr, dut.mailbox_w_en, dut.mailbox_w_data))
        asked = 0
        while True:
            _, _, address, enable, data = await anext(edges)
            put(dut.mailbox_r_data, self.mailbox[asked])  # 2 cycles later
            asked = address
            if enable:
                self.mailbox[address] = data

    async def attributes(self, ctx):
        dut = self.dut
        qp_bits, cq_bits = Value.cast(dut.qp_attribute), Value.cast(dut.cq_attribute)
        qp_shape, cq_shape = dut.qp_attribute.shape(), dut.cq_attribute.shape()
        async for _, _, qp_en, qp, cq_en, cq, ring_en, ring in ctx.tick().sample(
            dut.qp_attribute_en,
            qp_bits,
            dut.cq_attribute_en,
            cq_bits,
            dut.ring_attribute_en,
            Value.cast(dut.ring_attribute),
        ):
            assert ring_en or not qp_en
            if qp_en:
                assert ring == qp
                qp = qp_shape.from_bits(qp)
                self.log.append(("qp", qp.index, qp.word, qp.data))
            elif ring_en:
                ring = qp_shape.from_bits(ring)
                self.log.append(("srq", ring.index, ring.word, ring.data))
            if cq_en:
                cq = cq_shape.from_bits(cq)
                self.log.append(("cq", cq.index, cq.word, cq.data))

    def token(self, name):
        async def process(ctx):
            port = getattr(self.dut, name)
            while True:
                edges = aiter(ctx.tick().sample(port.valid, Value.cast(port.payload)))
                for _ in range(self.rng.randrange(4)):
                    await anext(edges)
                ctx.set(port.ready, 1)
                valid = 0
                while not valid:
                    _, _, valid, payload = await anext(edges)
                ctx.set(port.ready, 0)
                item = unpacked(port, payload)
                self.log.append((name, item["qp"], item["action"], item["psn"]))
                for end in DONE.get(name, ()) if item["action"] in PASSAGES[name == "requester"] else ():
                    for _ in range(self.rng.randrange(self.drain)):
                        await anext(edges)
                    self.log.append((end, "out"))
                    ctx.set(getattr(self.dut, f"{end}_done"), 1)
                    await anext(edges)
                    ctx.set(getattr(self.dut, f"{end}_done"), 0)
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

    def run(self, *hosts, deadline=20_000):
        async def accept_cq(ctx):
            ctx.set(self.dut.cqc_log_size, LOG_CQS)
            ctx.set(self.dut.cq_control.ready, 1)
            port = self.dut.cq_control
            async for _, _, valid, bits in ctx.tick().sample(port.valid, Value.cast(port.payload)):
                if valid:
                    control = unpacked(port, bits)
                    self.log.append(("cq_control", control.cq, control.hold, control.keep + 2 * control.stay))

        async def accept_invalidate(ctx):
            port = self.dut.invalidate
            ctx.set(port.ready, 1)
            async for _, _, valid, bits in ctx.tick().sample(port.valid, Value.cast(port.payload)):
                if valid:
                    what = unpacked(port, bits)
                    self.log.append(("translations",) if what.translations else ("invalidate", what.index))

        async def completions(ctx):
            edges, put = aiter(ctx.tick()), changes(ctx)
            while True:
                put(self.dut.completions_move, self.moving)
                await anext(edges)

        async def take_events(ctx):
            await collect(ctx, self.dut.event, self.events)

        names = TOKENS + (("timers",) if self.dut.swaps else ())
        tokens = [self.token(name) for name in names]
        background = [
            self.memory,
            self.attributes,
            accept_cq,
            accept_invalidate,
            take_events,
            completions,
            *tokens,
            *self.more,
        ]

        def swept(host):
            async def bench(ctx):
                await ctx.tick().until(self.dut.swept)
                if host is hosts[0]:
                    self.sweep = self.log[:]
                    del self.log[:]
                await host(ctx)

            return bench

        hosts_swept = [swept(host) for host in hosts]
        simulate(self.dut, *hosts_swept, background=background, seed=self.rng.seed_value, deadline=deadline)


def _words(**values):
    return QP_CONTEXT.words(**values)


def test_after_a_reset_everything_is_destroyed_before_the_first_command():
    bench = Bench()

    async def host(ctx):
        pass

    bench.run(host)
    assert not [entry for entry in bench.sweep if entry[0] in ("cq", "cq_control")]
    assert [entry for entry in bench.sweep if entry[0] == "qp"] == [
        ("qp", qp, word, 0) for qp in range(QPS) for word in reversed(range(QP_CONTEXT_WORDS))
    ]
    for name in TOKENS:
        said = [entry for entry in bench.sweep if entry[0] == name and entry[1] != "out"]
        assert said == [(name, qp, QpAction.RESET, 0) for qp in range(QPS)]


def test_create_writes_all_words_and_ends_when_both_pipelines_are_empty():
    bench = Bench()
    words = [(i + 1) * 0x01010101 for i in range(QP_CONTEXT_WORDS)]

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_QP, QPS + 5, words=words) == CommandStatus.OK
        for end in ("requester", "responder", "read_atomic_responder", "response_receiver"):
            assert (end, "out") in bench.log

    bench.run(host)
    written = [entry for entry in bench.log if entry[0] == "qp"]
    words[QPN_WORD] = QPS + 5  # whatever the mailbox says
    assert written == [("qp", 5, i, words[i]) for i in reversed(range(QP_CONTEXT_WORDS))]
    tokens = [entry[0] for entry in bench.log if entry[0] in TOKENS and entry[1] != "out"]
    assert tokens == list(TOKENS)
    # The response receiver's token follows what comes out of the pipelines; the completer's, what comes out of the
    # response receiver.
    places = {entry[:2] if entry[1] == "out" else entry[0]: place for place, entry in enumerate(bench.log)}
    assert (
        max(places[end, "out"] for end in ("requester", "responder", "read_atomic_responder"))
        < places["response_receiver"]
    )
    assert places["response_receiver", "out"] < places["completer"]
    assert bench.log.index(("requester", 5, QpAction.RESET, 0)) > bench.log.index(("qp", 5, 0, words[0]))


def test_start_tokens_carry_their_psn_before_the_attributes_are_written():
    bench = Bench()
    words = _words(state=QpState.RTR, rq_psn=0x123456, sq_psn=0x654321)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 1, words=_words())
        del bench.log[:]
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
    words[QPN_WORD] = QPS + 2
    assert bench.mailbox[: len(words)] == words
    assert bench.mailbox[32:36] == [0xAB, 0xCD, 3 | 4 << 16, 2]


def test_wrong_numbers_and_opcodes_are_refused_and_change_nothing():
    bench = Bench()

    async def host(ctx):
        for opcode in (Command.CREATE_QP, Command.MODIFY_QP, Command.QUERY_QP, Command.DESTROY_QP):
            assert await bench.command(ctx, opcode, 0) == CommandStatus.BAD_NUMBER
            if opcode != Command.CREATE_QP:
                for number in (1, 2, QPS + 2, 0xFFFFFF):  # nobody has it
                    assert await bench.command(ctx, opcode, number) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_CQ, 1 << LOG_CQS) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, 15, QPS) == CommandStatus.BAD_OPCODE
        assert await bench.command(ctx, Command.MODIFY_QP, QPS, QpAction.QUERY) == CommandStatus.BAD_PARAMETER
        assert await bench.command(ctx, Command.MODIFY_QP, QPS, 8) == CommandStatus.BAD_PARAMETER
        assert await bench.command(ctx, Command.NOP, 0) == CommandStatus.OK

    bench.run(host)
    assert bench.log == []


def test_a_place_belongs_to_one_number_at_a_time():
    bench = Bench()
    mine, other = 0xABCD00 | 3, 0x123450 | 3

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_QP, mine, words=_words(state=QpState.RTS)) == CommandStatus.OK
        del bench.log[:]
        for opcode in (Command.CREATE_QP, Command.MODIFY_QP, Command.QUERY_QP, Command.DESTROY_QP):
            assert await bench.command(ctx, opcode, other, words=_words()) == CommandStatus.BAD_NUMBER
        assert not bench.log
        assert await bench.command(ctx, Command.CREATE_QP, mine, words=_words(state=QpState.RTS)) == CommandStatus.OK
        await send_all(ctx, bench.dut.completer_error, [Item(qp=3, event=EventType.QP_FATAL)])
        for _ in range(100):
            await ctx.tick()
        assert bench.events == [{"type": EventType.QP_FATAL, "number": mine}]
        del bench.log[:]
        assert await bench.command(ctx, Command.DESTROY_QP, mine) == CommandStatus.OK
        # Its packets are sent by the path that it had: only the state changes before all is out.
        assert [entry for entry in bench.log if entry[0] == "qp"] == [("qp", 3, 0, 0), ("qp", 3, QPN_WORD, 0)]
        assert bench.log[-1] == ("qp", 3, QPN_WORD, 0)
        assert await bench.command(ctx, Command.QUERY_QP, mine) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_QP, other, words=_words()) == CommandStatus.OK
        assert await bench.command(ctx, Command.QUERY_QP, other) == CommandStatus.OK

    bench.run(host)


def test_completion_queues_and_invalidation():
    bench = Bench()
    words = CQ_CONTEXT.words(base=0xABC000, log_size=7, valid=1)

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_CQ, 3, words=words) == CommandStatus.OK
        assert await bench.command(ctx, Command.MODIFY_CQ, 2, words=words) == CommandStatus.OK
        assert await bench.command(ctx, Command.INVALIDATE_KEY, 0x1234) == CommandStatus.OK
        assert await bench.command(ctx, Command.INVALIDATE_MTT, 0) == CommandStatus.OK
        assert await bench.command(ctx, Command.DESTROY_CQ, 3) == CommandStatus.OK

    bench.run(host)

    def changed(cq, words, keep=0):
        """Completions are held while the words change."""
        writes = [("cq", cq, i, words[i]) for i in (3, 2, 1, 0)]
        return [("cq_control", cq, 1, keep), *writes, ("cq_control", cq, 0, keep)]

    assert bench.log == [
        *changed(3, words),
        *changed(2, words, keep=1),
        ("invalidate", 0x1234),
        ("translations",),
        *changed(3, [0] * 4),
    ]


def test_moderation():
    """All words are written while completions are held. An engine that cannot knows no such command."""
    bench = Bench(moderation=True)
    words = CQ_CONTEXT.words(base=0xABC000, log_size=7, valid=1, cq_count=5, cq_period=6, comp_vector=7)

    async def host(ctx):
        assert await bench.command(ctx, Command.MODERATE_CQ, 3, words=words) == CommandStatus.OK
        assert await bench.command(ctx, Command.MODIFY_CQ, 3, words=words) == CommandStatus.OK

    bench.run(host)
    writes = [("cq", 3, i, words[i]) for i in (3, 2, 1, 0)]
    changed = [[("cq_control", 3, 1, how), *writes, ("cq_control", 3, 0, how)] for how in (3, 1)]
    assert bench.log == changed[0] + changed[1]

    without = Bench()

    async def ask(ctx):
        assert await without.command(ctx, Command.MODERATE_CQ, 3, words=words) == CommandStatus.BAD_OPCODE

    without.run(ask)
    assert without.log == []


def test_a_queue_whose_record_cannot_be_read():
    """The command fails, and writes nothing."""
    bench = Bench()

    async def host(ctx):
        ctx.set(bench.dut.cq_control_bad, 1)
        assert await bench.command(ctx, Command.MODIFY_CQ, 1, words=[1, 2, 3, 4]) == CommandStatus.BUS_ERROR
        ctx.set(bench.dut.cq_control_bad, 0)
        assert await bench.command(ctx, Command.NOP, 0) == CommandStatus.OK

    bench.run(host)
    assert bench.log == [("cq_control", 1, 1, 1)]


def test_an_error_moves_the_qp_to_err_once_keeps_the_rest_and_tells_the_host():
    bench = Bench()
    words = _words(state=QpState.RTS, path_mtu=3, access=14, rnr_retry=7)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        report = Item(qp=4, event=EventType.QP_ACCESS_ERR)
        await send_all(ctx, bench.dut.responder_error, [report])
        await send_all(ctx, bench.dut.completer_error, [Item(qp=4, event=255)])
        await send_all(ctx, bench.dut.completion_error, [Item(qp=4, event=EventType.QP_FATAL)])
        for _ in range(100):
            await ctx.tick()

    bench.run(host)
    moved = _words(state=QpState.ERR, path_mtu=3, access=14, rnr_retry=7)[0]
    assert bench.log == [("qp", 4, 0, moved), *[(name, 4, QpAction.ERROR, 0) for name in MOST]]
    assert bench.events == [{"type": EventType.QP_ACCESS_ERR, "number": QPS + 4}]


@pytest.mark.parametrize("qp_type", [QpType.RC, QpType.UC, QpType.UD])
def test_a_send_queue_that_fails(qp_type):
    """Of UC and UD it goes to SQE, and what fails then takes the QP to ERR. Of RC all goes to ERR. Without an event."""
    bench = Bench()
    words = _words(state=QpState.RTS, type=qp_type)

    async def report(ctx, source, event):
        del bench.log[:]
        await send_all(ctx, getattr(bench.dut, source), [Item(qp=4, event=event)])
        for _ in range(100):
            await ctx.tick()
        return bench.log[:]

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        log = await report(ctx, "completer_error", SEND_FAILED)
        in_err = ("qp", 4, 0, _words(state=QpState.ERR, type=qp_type)[0])
        to_err = [in_err, *[(name, 4, QpAction.ERROR, 0) for name in MOST]]
        if qp_type == QpType.RC:
            assert log == to_err
            assert await _modify(bench, ctx, QpAction.RESTART_SEND, state=QpState.RTS) == CommandStatus.BAD_STATE
            return
        in_sqe = ("qp", 4, 0, _words(state=QpState.SQE, type=qp_type)[0])
        assert log == [in_sqe, ("requester", 4, QpAction.SEND_ERROR, 0)]
        del bench.log[:]
        restart = {"state": QpState.RTS, "type": qp_type, "sq_psn": 77}
        assert await _modify(bench, ctx, QpAction.RESTART_SEND, **restart) == CommandStatus.OK
        assert bench.log[0] == ("requester", 4, QpAction.RESTART_SEND, 77)
        assert bench.log[-1] == ("qp", 4, 0, _words(**restart)[0])
        assert await _modify(bench, ctx, QpAction.RESTART_SEND, **restart) == CommandStatus.BAD_STATE
        assert (await report(ctx, "completer_error", SEND_FAILED))[0] == in_sqe
        log = await report(ctx, "responder_error", NO_EVENT)
        assert [entry[:3] for entry in log] == [entry[:3] for entry in to_err]
        assert log[0] == in_err
        assert await report(ctx, "completer_error", SEND_FAILED) == []

    bench.run(host)
    assert bench.events == []


def test_a_lost_completion_moves_the_qp_to_err_once():
    bench = Bench()
    words = _words(state=QpState.RTS, path_mtu=3)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        await send_all(ctx, bench.dut.completion_error, [Item(qp=4, event=EventType.QP_FATAL)] * 20)
        for _ in range(150):
            await ctx.tick()

    bench.run(host)
    moved = _words(state=QpState.ERR, path_mtu=3)[0]
    assert bench.log == [("qp", 4, 0, moved), *[(name, 4, QpAction.ERROR, 0) for name in MOST]]
    assert bench.events == [{"type": EventType.QP_FATAL, "number": QPS + 4}]


async def destroy_while_an_error_is_reported(bench, ctx, qp):
    """DESTROY_QP of the QP in place 4. When its tokens go an error of the one in place ``qp`` comes."""
    port, command = bench.dut.responder_error, bench.dut.command
    ctx.set(port.payload, {"qp": qp, "event": EventType.QP_REQ_ERR})
    ctx.set(command.payload.as_value(), COMMAND.words(opcode=Command.DESTROY_QP, number=QPS + 4)[0])
    ctx.set(command.valid, 1)
    while not any(entry[:3] == ("requester", 4, QpAction.RESET) for entry in bench.log):
        await ctx.tick()
    ctx.set(port.valid, 1)
    await ctx.tick()
    ctx.set(port.valid, 0)
    ready = 0
    while not ready:
        _, _, ready = await ctx.tick().sample(command.ready)
    ctx.set(command.valid, 0)


def test_an_error_of_the_old_life_does_not_touch_the_new_one():
    bench = Bench(drain=60)
    words = _words(state=QpState.RTS)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        # The report waits in the queue while the command runs, and is taken, and dropped, before the command ends.
        await destroy_while_an_error_is_reported(bench, ctx, 4)
        del bench.log[:]
        for _ in range(100):
            await ctx.tick()
        assert bench.log == []
        assert bench.events == []

    bench.run(host)


def test_an_error_of_another_qp_does_not_change_whose_place_becomes_free():
    """It is reported while DESTROY_QP waits for the last of the old life: the other one goes to ERR, and stays."""
    bench = Bench(drain=60)
    words = _words(state=QpState.RTS)

    async def host(ctx):
        for place in (4, 2):
            assert await bench.command(ctx, Command.CREATE_QP, QPS + place, words=words) == CommandStatus.OK
        del bench.log[:]
        await destroy_while_an_error_is_reported(bench, ctx, 2)
        await ctx.tick().repeat(60)
        assert bench.events == [{"type": EventType.QP_REQ_ERR, "number": QPS + 2}]
        assert await bench.command(ctx, Command.QUERY_QP, QPS + 2) == CommandStatus.OK
        assert await bench.command(ctx, Command.CREATE_QP, 2 * QPS + 2, words=words) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_QP, 2 * QPS + 4, words=words) == CommandStatus.OK

    bench.run(host)


def test_a_completion_of_the_old_life_that_is_lost_late_does_not_touch_the_new_one():
    """It waits before the completion writer, which waits for the bus, when all tokens are out."""
    bench = Bench(drain=5)
    words = _words(state=QpState.RTS)
    done = []

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        bench.moving = 0
        assert await bench.command(ctx, Command.DESTROY_QP, QPS + 4) == CommandStatus.OK
        assert done
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=words)
        del bench.log[:]
        for _ in range(100):
            await ctx.tick()
        assert bench.log == []
        assert bench.events == []

    async def writer(ctx):
        while bench.log.count(("rq_fetch", 4, QpAction.RESET, 0)) < 2:
            await ctx.tick()
        for _ in range(50):
            await ctx.tick()
        for _ in range(QUIET - 2):
            bench.moving = 1
            await ctx.tick()
            bench.moving = 0
            await ctx.tick()
        await send_all(ctx, bench.dut.completion_error, [Item(qp=4, event=EventType.QP_FATAL)])
        done.append(True)
        bench.moving = 1

    bench.run(host, writer)


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


def _modify(bench, ctx, action, **attributes):
    return bench.command(ctx, Command.MODIFY_QP, QPS + 4, action, _words(**attributes))


def test_the_send_queue_is_drained_and_resumed():
    """The requester is told first, once the attributes stand; of a drain it alone."""
    bench = Bench()

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=_words(state=QpState.RTS))
        for action, state in ((QpAction.DRAIN, QpState.SQD), (QpAction.RESUME, QpState.RTS)):
            del bench.log[:]
            assert await _modify(bench, ctx, action, state=state) == CommandStatus.OK
            said = [entry for entry in bench.log if entry[0] in TOKENS]
            assert said[0] == ("requester", 4, action, 0)
            assert (len(said) == 1) == (action == QpAction.DRAIN)
            place = bench.log.index(said[0])
            assert bench.log[place - 1] == ("qp", 4, 0, _words(state=state)[0])

    bench.run(host)


def test_drain_and_resume_only_where_the_state_machine_has_them():
    bench = Bench()
    legal = {(QpState.RTS, QpAction.DRAIN), (QpState.SQD, QpAction.RESUME)}

    async def host(ctx):
        for state in QpState:
            for action, wanted in ((QpAction.DRAIN, QpState.SQD), (QpAction.RESUME, QpState.RTS)):
                await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=_words(state=state))
                del bench.log[:]
                status = await _modify(bench, ctx, action, state=wanted, path_mtu=5)
                good = (state, action) in legal
                assert status == (CommandStatus.OK if good else CommandStatus.BAD_STATE)
                assert (("requester", 4, action, 0) in bench.log) == good
                assert any(entry[:3] == ("qp", 4, 0) for entry in bench.log) == good

    bench.run(host, deadline=60_000)


def test_drained_is_an_event_and_no_error():
    bench = Bench()
    report = Item(qp=4, event=EventType.SQ_DRAINED)

    async def host(ctx):
        for state in (QpState.RTS, QpState.SQD, QpState.ERR, QpState.RESET):
            await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=_words(state=state))
            del bench.log[:]
            await send_all(ctx, bench.dut.completer_error, [report])
            for _ in range(60):
                await ctx.tick()
            assert bench.log == []

    bench.run(host)
    assert bench.events == [{"type": EventType.SQ_DRAINED, "number": QPS + 4}]


def test_many_reports_lose_none_and_keep_each_source_in_order():
    bench = Bench()
    reports = {"responder_error": [], "completer_error": []}

    async def host(ctx):
        for qp in range(QPS):
            await bench.command(ctx, Command.CREATE_QP, QPS + qp, words=_words(state=QpState.RTS))
            reports[bench.rng.choice(list(reports))].append(Item(qp=qp, event=qp + 1 if qp != 4 else 255))
        for name, items in reports.items():
            await send_all(ctx, getattr(bench.dut, name), items)
        before, quiet = None, 0
        edges = aiter(ctx.tick())
        while quiet < 150:
            await anext(edges)
            now = len(bench.log), len(bench.events)
            before, quiet = now, quiet + 1 if now == before else 0

    bench.run(host)
    assert sorted(event["number"] - QPS for event in bench.events) == [qp for qp in range(QPS) if qp != 4]
    for items in reports.values():
        told = [event["number"] - QPS for event in bench.events]
        assert [qp for qp in told if any(item.qp == qp for item in items)] == [i.qp for i in items if i.event != 255]
    moved = [entry[1] for entry in bench.log if entry[0] == "qp" and entry[2:] == (0, _words(state=QpState.ERR)[0])]
    assert sorted(moved) == list(range(QPS))


SRQS = 4


def test_after_a_reset_no_shared_receive_queue_is_there():
    """Their state words are written behind all that is done for QPs, and nothing else of them."""
    bench = Bench(srqs=SRQS)

    async def host(ctx):
        await ctx.tick()  # the last broadcast is on its way when all is swept
        bench.sweep += bench.log

    bench.run(host)
    srqs = [("srq", QPS + n, 0, 0) for n in range(SRQS)]
    assert [entry for entry in bench.sweep if entry[0] == "srq"] == bench.sweep[-SRQS:] == srqs


def test_shared_receive_queues():
    """One that is made takes no doorbell any more, and is empty, before it is what it is to be; its state comes last.
    Nobody but who has its ring hears of it."""
    bench = Bench(srqs=SRQS)
    words = [(i + 1) * 0x01010101 for i in range(QP_CONTEXT_WORDS)]
    limit = QP_CONTEXT.fields["srq_limit"].word

    def cleared(number):
        return [("srq", QPS + number, 0, 0), ("rq_fetch", QPS + number, QpAction.RESET, 0)]

    async def host(ctx):
        await ctx.tick()
        del bench.log[:]
        for number in (0, SRQS - 1):
            assert await bench.command(ctx, Command.CREATE_SRQ, number, words=words) == CommandStatus.OK
            assert bench.log[:2] == cleared(number)
            said = [number if word == QPN_WORD else words[word] for word in range(QP_CONTEXT_WORDS)]
            written = [("srq", QPS + number, word, said[word]) for word in reversed(range(QP_CONTEXT_WORDS))]
            assert bench.log[2:] == written
            del bench.log[:]
        assert await bench.command(ctx, Command.MODIFY_SRQ, 2, words=words) == CommandStatus.OK
        assert bench.log == [("srq", QPS + 2, limit, words[limit])]
        del bench.log[:]
        assert await bench.command(ctx, Command.DESTROY_SRQ, 1, words=words) == CommandStatus.OK
        assert bench.log == cleared(1)
        del bench.log[:]
        for opcode in (Command.CREATE_SRQ, Command.MODIFY_SRQ, Command.DESTROY_SRQ):
            for number in (SRQS, QPS, 0xFFFFFF):
                assert await bench.command(ctx, opcode, number, words=words) == CommandStatus.BAD_NUMBER
        assert bench.log == []
        # QPs are what they were.
        assert await bench.command(ctx, Command.CREATE_QP, QPS + 2, words=words) == CommandStatus.OK
        assert [entry for entry in bench.log if entry[0] == "rq_fetch"] == [("rq_fetch", 2, QpAction.RESET, 0)]

    bench.run(host)


def test_without_shared_receive_queues():
    bench = Bench()

    async def host(ctx):
        for opcode in (Command.CREATE_SRQ, Command.MODIFY_SRQ, Command.DESTROY_SRQ):
            assert await bench.command(ctx, opcode, 0) == CommandStatus.BAD_OPCODE

    bench.run(host)
    assert bench.log == []
    assert "srq" not in {entry[0] for entry in bench.sweep}


def test_who_takes_no_more_shared_wqes_is_told_of_in_err_alone():
    """What is reported of a QP that has left it since is of an old life; nothing is written."""
    bench = Bench(srqs=SRQS)

    async def host(ctx):
        for state in QpState:
            await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=_words(state=state))
            del bench.log[:]
            await send_all(ctx, bench.dut.responder_error, [Item(qp=4, event=EventType.QP_LAST_WQE_REACHED)])
            for _ in range(60 + QUIET):
                await ctx.tick()
            assert bench.log == []
            assert len(bench.events) == (state == QpState.ERR)

    bench.run(host)
    assert bench.events == [{"type": EventType.QP_LAST_WQE_REACHED, "number": QPS + 4}]


def test_the_last_shared_wqe_is_told_of_when_its_completion_is_written():
    """Behind the error that it follows, and after so many cycles in which completions move."""
    bench = Bench(srqs=SRQS)
    error = [Item(qp=4, event=EventType.QP_REQ_ERR), Item(qp=4, event=EventType.QP_LAST_WQE_REACHED)]

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, QPS + 4, words=_words(state=QpState.RTS))
        bench.moving = 0
        await send_all(ctx, bench.dut.responder_error, error)
        for moves in range(QUIET):
            for _ in range(100 if moves == 0 else 5):
                await ctx.tick()
            assert [event["type"] for event in bench.events] == [EventType.QP_REQ_ERR]
            bench.moving = 1
            await ctx.tick()
            bench.moving = 0
        for _ in range(20):
            await ctx.tick()

    bench.run(host)
    assert [event["type"] for event in bench.events] == [error[0].event, error[1].event]
    assert {event["number"] for event in bench.events} == {QPS + 4}


def test_the_last_shared_wqe_of_another_qp_while_one_is_destroyed():
    """DESTROY_QP waits for what is reported, and then as long as ever; the place that becomes free is its own."""
    bench = Bench(srqs=SRQS, drain=60)

    async def host(ctx):
        for place, state in ((4, QpState.RTS), (2, QpState.ERR)):
            await bench.command(ctx, Command.CREATE_QP, QPS + place, words=_words(state=state))
        port, command = bench.dut.responder_error, bench.dut.command
        del bench.log[:]
        ctx.set(command.payload.as_value(), COMMAND.words(opcode=Command.DESTROY_QP, number=QPS + 4)[0])
        ctx.set(command.valid, 1)
        while not any(entry[:3] == ("requester", 4, QpAction.RESET) for entry in bench.log):
            await ctx.tick()
        await send_all(ctx, port, [Item(qp=2, event=EventType.QP_LAST_WQE_REACHED)] * 2)
        ready = 0
        while not ready:
            _, _, ready = await ctx.tick().sample(command.ready)
        ctx.set(command.valid, 0)
        await ctx.tick()
        assert len(bench.events) == 2
        assert bench.log[-1] == ("qp", 4, QPN_WORD, 0)
        assert await bench.command(ctx, Command.QUERY_QP, QPS + 2) == CommandStatus.OK
        assert await bench.command(ctx, Command.QUERY_QP, QPS + 4) == CommandStatus.BAD_NUMBER

    bench.run(host)
    assert bench.events == [{"type": EventType.QP_LAST_WQE_REACHED, "number": QPS + 2}] * 2


def test_an_error_that_comes_while_a_shared_receive_queue_is_made():
    """It waits until the command is done: its tokens and that of the queue's ring do not meet."""
    bench = Bench(srqs=SRQS)
    words = _words(state=QpState.RTS)

    async def host(ctx):
        for delay in range(0, 40, 3):
            await bench.command(ctx, Command.CREATE_QP, QPS + 3, words=words)
            del bench.log[:], bench.events[:]
            port, command = bench.dut.responder_error, bench.dut.command
            bench.mailbox[: len(words)] = words
            ctx.set(command.payload.as_value(), COMMAND.words(opcode=Command.CREATE_SRQ, number=1)[0])
            ctx.set(command.valid, 1)
            ctx.set(port.payload, {"qp": 3, "event": EventType.QP_REQ_ERR})
            for cycle in range(120):
                ctx.set(port.valid, cycle == delay)
                _, _, ready = await ctx.tick().sample(command.ready)
                if ready:
                    ctx.set(command.valid, 0)
            mine = [entry for entry in bench.log if entry[1] == QPS + 1]
            others = [entry for entry in bench.log if entry[1] == 3]
            assert len(mine) == 2 + QP_CONTEXT_WORDS
            assert mine[1] == ("rq_fetch", QPS + 1, QpAction.RESET, 0)
            moved = _words(state=QpState.ERR)[0]
            assert others == [("qp", 3, 0, moved), *[(name, 3, QpAction.ERROR, 0) for name in MOST]]
            assert bench.log in (mine + others, others + mine)

    bench.run(host, deadline=60_000)


TABLE = 64
SLOT = 5
NUMBER = 3 * TABLE + 0x23
"""Of a QP whose index, 0x23, is in a table with more places than there are slots."""


class SlotBench(Bench):
    """With a keeper of slots. ``answers`` are what it says to each ``bring``: a status, with slot 5, or "again"."""

    def __init__(self, *answers, **options):
        super().__init__(table=TABLE, **options)
        self.answers = list(answers)
        self.ready_at = 0  # cycle in which the directory is ready
        self.works = False  # at a job of its own
        self.more = [self.keeper]

    async def keeper(self, ctx):
        dut = self.dut
        cycle, waits = 0, None
        ctx.set(dut.slot, SLOT)
        edges, put = aiter(ctx.tick()), changes(ctx)
        while True:
            put(dut.directory_ready, cycle >= self.ready_at)
            answer = None
            if ctx.get(dut.grant) and not self.works:
                assert ctx.get(dut.bring)
                if waits is None:
                    self.log.append(("bring", ctx.get(dut.bring_index), ctx.get(dut.bring_create)))
                    waits = self.rng.randrange(20)
                elif waits:
                    waits -= 1
                else:
                    answer, waits = self.answers.pop(0), None
                    ctx.set(dut.status, 0 if answer == "again" else answer)
            if not self.works:
                ctx.set(dut.done, answer is not None)
                ctx.set(dut.brought, answer not in (None, "again"))
            await anext(edges)
            cycle += 1
            if answer is not None:
                self.log.append(("answer", answer))

    async def work(self, ctx, job):
        """The keeper has a job; it has its turn until that is done."""
        dut = self.dut
        self.works = True
        ctx.set(dut.wants, 1)
        while not ctx.get(dut.grant):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.wants, 0)
        await job(ctx)
        assert ctx.get(dut.grant)
        ctx.set(dut.done, 1)
        await ctx.tick()
        ctx.set(dut.done, 0)
        self.works = False


def test_the_slots_are_swept_when_the_directory_is_empty():
    """No command begins before it is; there are no more resets than slots."""
    bench = SlotBench()
    bench.ready_at = 1500

    async def host(ctx):
        assert ctx.get(bench.dut.directory_ready)

    bench.run(host)
    assert [entry[1] for entry in bench.sweep if entry[0] == "requester" and entry[1] != "out"] == list(range(QPS))
    assert not any(entry[0] == "bring" for entry in bench.sweep)


def test_a_command_goes_to_the_slot_that_the_keeper_says():
    """Attributes and tokens alike; the number must be the one that has the place, as ever."""
    ok = CommandStatus.OK
    bench = SlotBench(*[ok] * 6)
    words = _words(state=QpState.RTS, pd=7)

    async def host(ctx):
        assert await bench.command(ctx, Command.CREATE_QP, NUMBER, words=words) == ok
        assert await bench.command(ctx, Command.MODIFY_QP, NUMBER, QpAction.DRAIN, _words(state=QpState.SQD)) == ok
        assert await bench.command(ctx, Command.QUERY_QP, NUMBER) == ok
        assert await bench.command(ctx, Command.MODIFY_QP, NUMBER + TABLE, words=words) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_QP, NUMBER + TABLE, words=words) == CommandStatus.BAD_NUMBER
        assert await bench.command(ctx, Command.CREATE_QP, NUMBER, words=words) == ok
        # Who does not ask for a QP needs no slot.
        assert await bench.command(ctx, Command.MODIFY_CQ, 1, words=[1, 2, 3, 4]) == ok
        assert await bench.command(ctx, Command.INVALIDATE_KEY, 5) == ok
        assert await bench.command(ctx, Command.NOP, 0) == ok

    bench.run(host)
    assert not bench.answers
    creates = [entry[1:] for entry in bench.log if entry[0] == "bring"]
    assert creates == [(NUMBER % TABLE, create) for create in (1, 0, 0, 0, 1, 1)]
    assert {entry[1] for entry in bench.log if entry[0] == "qp"} == {SLOT}
    assert ("qp", SLOT, QPN_WORD, NUMBER) in bench.log
    assert {entry[1] for entry in bench.log if entry[0] in TOKENS and entry[1] != "out"} == {SLOT}
    first = bench.log.index(("answer", ok))
    assert all(entry[0] == "bring" for entry in bench.log[:first])


def test_a_command_whose_qp_the_keeper_cannot_bring():
    """It fails as the keeper says, and changes nothing."""
    statuses = [CommandStatus.BAD_NUMBER, CommandStatus.BUS_ERROR]
    bench = SlotBench(*statuses, *statuses)

    async def host(ctx):
        for opcode in (Command.MODIFY_QP, Command.QUERY_QP):
            for status in statuses:
                assert await bench.command(ctx, opcode, NUMBER) == status
        assert await bench.command(ctx, Command.NOP, 0) == CommandStatus.OK

    bench.run(host)
    assert {entry[0] for entry in bench.log} == {"bring", "answer"}


def test_what_was_reported_goes_before_a_command_that_is_begun_again():
    """The QP that came back for it is closed until then."""
    bench = SlotBench(CommandStatus.OK, "again", "again", CommandStatus.OK)
    dut = bench.dut
    words = _words(state=QpState.RTS)
    opened = []

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, NUMBER, words=words)
        del bench.log[:]
        await bench.command(ctx, Command.QUERY_QP, NUMBER)

    async def reporter(ctx):
        while bench.log != [("bring", NUMBER % TABLE, 0)]:
            await ctx.tick()
        ctx.set(dut.closed, 1)
        ctx.set(dut.closed_qp, SLOT)
        await send_all(ctx, dut.responder_error, [Item(qp=SLOT, event=EventType.QP_ACCESS_ERR)])
        while not ctx.get(dut.opens):
            await ctx.tick()
        opened.append(len(bench.log))
        await ctx.tick()
        assert not ctx.get(dut.reported)  # told a cycle late
        ctx.set(dut.closed, 0)

    bench.run(host, reporter)
    moved = bench.log.index(("qp", SLOT, 0, _words(state=QpState.ERR)[0]))
    steps = [entry[0] for entry in bench.log if entry[0] in ("bring", "answer")]
    assert steps == ["bring", "answer"] * 3
    again = bench.log.index(("answer", "again"))
    second = bench.log.index(("bring", NUMBER % TABLE, 0), again)
    assert again < moved < opened[0] <= second + 1
    assert bench.events == [{"type": EventType.QP_ACCESS_ERR, "number": NUMBER}]


def test_the_keeper_has_its_turn_between_two_commands():
    """Tokens and attributes are its own until its job is done; a command, and what is reported, waits as long."""
    bench = SlotBench(*[CommandStatus.OK] * 2)
    dut = bench.dut
    words = _words(state=QpState.RTS, pd=0x123456)

    async def job(ctx):
        ctx.set(dut.closed, 1)
        ctx.set(dut.closed_qp, SLOT)
        bench.log.append(("job",))
        await send_all(ctx, dut.responder_error, [Item(qp=SLOT, event=EventType.QP_ACCESS_ERR)])
        for word, data in enumerate(words):
            ctx.set(dut.attribute_word, word)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.attribute_row) == (NUMBER if word == QPN_WORD else data)
        for action in (QpAction.SAVE, QpAction.LOAD):
            ctx.set(dut.token.payload, {"qp": SLOT, "action": action})
            ctx.set(dut.token.valid, 1)
            await ctx.tick().until(dut.token.ready)
            ctx.set(dut.token.valid, 0)
        ctx.set(dut.closed_qp, 2)
        ctx.set(dut.attribute_write, 1)
        for word in (3, 2, 0):
            ctx.set(dut.attribute_word, word)
            ctx.set(dut.attribute_data, 0xABC0 + word)
            await ctx.tick()
        ctx.set(dut.attribute_write, 0)
        await ctx.tick().repeat(2)
        ctx.set(dut.closed_qp, SLOT)
        bench.log.append(("done",))

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, NUMBER, words=words)
        del bench.log[:]
        bench.log.append(("begin",))
        while ("job",) not in bench.log:
            await ctx.tick()
        assert await bench.command(ctx, Command.QUERY_QP, NUMBER) == CommandStatus.OK

    async def keeper(ctx):
        while bench.log[:1] != [("begin",)]:
            await ctx.tick()
        await bench.work(ctx, job)
        assert not ctx.get(dut.grant)  # the next job must not begin now
        while not ctx.get(dut.opens):
            assert not ctx.get(dut.grant)
            await ctx.tick()
        bench.log.append(("opens",))
        ctx.set(dut.closed, 0)

    bench.run(host, keeper)
    places = [bench.log.index((name,)) for name in ("job", "done", "opens")]
    mine, then, last = bench.log[places[0] : places[1]], bench.log[places[1] : places[2]], bench.log[places[2] :]
    said = {(entry[0], entry[2]) for entry in mine if entry[0] in (*TOKENS, "timers") and entry[1] != "out"}
    assert said == {(name, QpAction.STOP) for name in ("requester",)} | {
        (name, action) for name in (*TOKENS, "timers") for action in (QpAction.SAVE, QpAction.LOAD)
    }
    assert [entry for entry in mine if entry[0] == "qp"] == [("qp", 2, word, 0xABC0 + word) for word in (3, 2, 0)]
    assert {(entry[0], entry[2]) for entry in then if entry[0] in TOKENS} == {(name, QpAction.ERROR) for name in MOST}
    assert not any(entry[0] == "bring" for entry in then)
    assert any(entry[0] == "bring" for entry in last)


def test_while_a_qp_is_closed_nothing_begins_but_what_was_reported():
    """Neither a command nor another job of the keeper, as long as something is on its way."""
    bench = SlotBench(*[CommandStatus.OK] * 2)
    dut = bench.dut
    words = _words(state=QpState.RTS)

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, NUMBER, words=words)
        del bench.log[:]
        ctx.set(dut.closed, 1)
        ctx.set(dut.closed_qp, SLOT)
        ctx.set(dut.wants, 1)
        for _ in range(20):
            assert not ctx.get(dut.grant)
            await ctx.tick()
        await send_all(ctx, dut.completer_error, [Item(qp=SLOT, event=EventType.QP_FATAL)])
        await ctx.tick()
        assert ctx.get(dut.reported)
        command = bench.command(ctx, Command.MODIFY_QP, NUMBER, QpAction.RESET, _words())
        await command

    async def keeper(ctx):
        while not ctx.get(dut.reported):
            await ctx.tick()
        while not ctx.get(dut.opens):
            assert ctx.get(dut.reported)
            assert not ctx.get(dut.grant)
            await ctx.tick()
        assert ("qp", SLOT, 0, _words(state=QpState.ERR)[0]) in bench.log
        assert not any(entry[0] == "bring" for entry in bench.log)
        ctx.set(dut.closed, 0)
        ctx.set(dut.wants, 0)

    bench.run(host, keeper)
    assert bench.events == [{"type": EventType.QP_FATAL, "number": NUMBER}]


def test_a_qp_that_is_destroyed_is_forgotten():
    """Once, when all of its old life is out, while the keeper has no job; no other command does that."""
    bench = SlotBench(*[CommandStatus.OK] * 4)
    dut = bench.dut
    forgotten = []

    async def watch(ctx):
        async for _, _, forget, slot in ctx.tick().sample(dut.forget, dut.forget_slot):
            if forget:
                assert not ctx.get(dut.grant)
                forgotten.append((slot, len(bench.log)))

    async def host(ctx):
        await bench.command(ctx, Command.CREATE_QP, NUMBER, words=_words(state=QpState.RTS))
        await bench.command(ctx, Command.MODIFY_QP, NUMBER, QpAction.RESET, _words())
        await bench.command(ctx, Command.QUERY_QP, NUMBER)
        assert not forgotten
        del bench.log[:]
        await bench.command(ctx, Command.DESTROY_QP, NUMBER)

    bench.more.append(watch)
    bench.run(host)
    assert [slot for slot, _ in forgotten] == [SLOT]
    before = bench.log[: forgotten[0][1]]
    for end in ("requester", "responder", "read_atomic_responder", "response_receiver"):
        assert (end, "out") in before
    assert ("qp", SLOT, QPN_WORD, 0) in bench.log
