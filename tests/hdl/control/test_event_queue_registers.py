"""Words of one row among those of others."""

from streams import make_rng, simulate
from verbena.hdl.abi.eqe import EVENT_QUEUE, EVENT_QUEUES_MAX
from verbena.hdl.control.event_queue_registers import EventQueueRegisters

ROW = 5


def test_random():
    rng = make_rng()
    dut = EventQueueRegisters(ROW)
    model = {"eq_base": 0, "eq_log_size": 0, "eq_reset": 0, "eq_consumer": 0, "interval": 0}

    async def user(ctx):
        for _ in range(600):
            queue, word = rng.choice([ROW, ROW, rng.randrange(EVENT_QUEUES_MAX)]), rng.randrange(8)
            value, enable = rng.getrandbits(32), rng.random() < 0.8
            ctx.set(dut.event_queue, {"queue": queue, "word": word, "data": value})
            ctx.set(dut.event_queue_en, enable)
            await ctx.tick()
            model["eq_reset"] = 0
            if enable and queue == ROW:
                fields = EVENT_QUEUE.unpack(bytes(4 * word) + value.to_bytes(4, "little") + bytes(28 - 4 * word))
                if word < 2:
                    mask = 0xFFFFFFFF << 32 * word
                    model["eq_base"] = model["eq_base"] & ~mask | fields["base"]
                elif word == 2:
                    model.update(eq_log_size=fields["log_size"], eq_reset=1, eq_consumer=0)
                elif word == 3:
                    model["eq_consumer"] = fields["consumer"]
                elif word == 4:
                    model["interval"] = fields["interval"]
            assert {name: ctx.get(getattr(dut, name)) for name in model} == model

    simulate(dut, user, seed=rng.seed_value)
