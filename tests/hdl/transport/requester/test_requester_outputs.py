"""What the requester tells others, against a model that knows only who speaks when."""

from amaranth.hdl import Value
from streams import make_rng, simulate
from verbena.hdl.abi.cqe import Syndrome, WcStatus
from verbena.hdl.transport.requester.requester_context import Phase
from verbena.hdl.transport.requester.requester_outputs import OutputStrobes, RequesterOutputs
from verbena.hdl.transport.requester.send_decision import SendAction

QPS = 16
SETTLES = ("again", "consumed", "failed", "flush")


def expected(name, facts):
    """What a turn says, from what it knows."""
    state, progress = facts["state"], facts["progress"]
    drained = facts["action"] == SendAction.DRAINED
    return {
        "again": facts["qp"],
        "consumed": {
            "qp": facts["qp"],
            "index": facts["fetched"] if facts["action"] == SendAction.GIVE_UP else (state["index"] + 1) % 65536,
        },
        "rewind": {"qp": facts["qp"], "index": progress["oldest"]},
        "failed": {
            "qp": facts["qp"],
            "wqe_index": progress["oldest"] if state["phase"] == Phase.RESUME else state["index"],
            "status": WcStatus.LOC_QP_OP_ERR,
            "syndrome": Syndrome.RING_BUS,
        },
        "flush": {"qp": facts["qp"], "index": state["index"] if drained else facts["target"], "drain": drained},
        "reply": {"psn": state["psn"], "index": state["index"]},
    }[name]


def look(ctx, port):
    """A payload as the model has it: a number, or a dictionary of numbers."""
    payload = ctx.get(port.payload)
    if isinstance(payload, int):
        return payload
    return {name: int(ctx.get(Value.cast(port.payload[name]))) for name in port.payload.shape().members}


def draw(rng):
    return {
        "qp": rng.randrange(QPS),
        "action": rng.choice(list(SendAction)),
        "target": rng.getrandbits(16),
        "fetched": rng.getrandbits(16),
        "state": {"phase": rng.choice(list(Phase)), "index": rng.getrandbits(16), "psn": rng.getrandbits(24)},
        "progress": {"oldest": rng.getrandbits(16)},
    }


def test_turns_and_packets():
    """Each says what it knows; an item stays until it is taken, and a packet's facts win while one is under way."""
    rng = make_rng()
    dut = RequesterOutputs(QPS)

    async def tell(ctx, facts):
        ctx.set(dut.qp, facts["qp"])
        ctx.set(dut.action, facts["action"])
        ctx.set(dut.target, facts["target"])
        ctx.set(dut.status.fetched, facts["fetched"])
        for name in facts["state"]:
            ctx.set(dut.state[name], facts["state"][name])
        ctx.set(dut.progress.oldest, facts["progress"]["oldest"])

    async def take(ctx, wanted):
        """All of ``wanted`` stand on their streams and nothing else does; takes them one by one, late."""
        wanted = dict(wanted)
        while True:
            for name in OutputStrobes.members:
                port = getattr(dut, name)
                assert ctx.get(port.valid) == (name in wanted), name
                if name in wanted:
                    assert look(ctx, port) == wanted[name], name
            assert ctx.get(dut.settled) == (not any(name in wanted for name in SETTLES))
            if not wanted:
                return
            await tell(ctx, draw(rng))  # an item that waits does not change with what is known later
            name = rng.choice(list(wanted)) if rng.randrange(2) else None
            if name:
                ctx.set(getattr(dut, name).ready, 1)
                del wanted[name]
            await ctx.tick()
            if name:
                ctx.set(getattr(dut, name).ready, 0)

    async def turn(ctx):
        facts = draw(rng)
        names = rng.sample(list(OutputStrobes.members), rng.randint(1, len(OutputStrobes.members)))
        await tell(ctx, facts)
        for name in names:
            ctx.set(dut.strobe[name], 1)
        await ctx.tick()
        for name in names:
            ctx.set(dut.strobe[name], 0)
        await take(ctx, {name: expected(name, facts) for name in names})

    async def packet(ctx):
        end = dut.packet
        syndrome = rng.randrange(256)
        facts = draw(rng)
        qp, index = facts["qp"], facts["state"]["index"]
        facts["state"]["phase"] = rng.choice((Phase.BETWEEN, Phase.MIDDLE))
        facts["action"] = rng.choice([action for action in SendAction if action is not SendAction.GIVE_UP])
        more, lost, ended, failed, too_long = (rng.randrange(2) for _ in range(5))
        ctx.set(dut.of_packet, 1)
        ctx.set(end.status, WcStatus.LOC_LEN_ERR if too_long else WcStatus.LOC_QP_OP_ERR)
        await tell(ctx, facts)
        await ctx.tick()
        ctx.set(end.lost if lost else end.good, 1)
        ctx.set(end.more, more)
        await ctx.tick()
        ctx.set(end.lost if lost else end.good, 0)
        for name, value in ("done", 1), ("ended", ended), ("failed", failed), ("syndrome", syndrome):
            ctx.set(getattr(end, name), value)
        await ctx.tick()
        ctx.set(end.done, 0)
        ctx.set(dut.of_packet, 0)
        wanted = {}
        if more or lost:
            wanted["again"] = qp
        if ended:
            wanted["consumed"] = {"qp": qp, "index": (index + 1) % 65536}
        if failed:
            wanted["failed"] = {
                "qp": qp,
                "wqe_index": index,
                "status": WcStatus.LOC_LEN_ERR if too_long else WcStatus.LOC_QP_OP_ERR,
                "syndrome": syndrome,
            }
        await take(ctx, wanted)

    async def testbench(ctx):
        for _ in range(150):
            await rng.choice((turn, packet))(ctx)

    simulate(dut, testbench, seed=rng.seed_value)
