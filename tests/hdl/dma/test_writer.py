import pytest
from axi_memory import AxiMemory
from dma_top import Alone
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import beats_of, piece, piece_lists, random_run
from streams import make_rng, receive_all, send_all, shared, simulate
from verbena.hdl.abi.tables import AccessStatus
from verbena.hdl.dma.writer import PayloadWriter


def write(runs, data_width=64, *, rng, stall=0.3, deadline=60_000, payloads=None, check=True, **memory_options):
    """Runs a PayloadWriter over ``runs``; (statuses, memory, times)."""
    top = shared(Alone, PayloadWriter, data_width)
    dut, axi = top.block, top.axi
    memory = AxiMemory(axi, rng, **{"answer": 32, **memory_options})
    if payloads is None:
        payloads = [rng.randbytes(sum(p["length"] for p in run)) for run in runs]
    expected, due = {}, []
    allowed = set()
    for run, payload in zip(runs, payloads):
        place = 0
        for p in run:
            if not p["discard"]:
                expected.update(zip(range(p["address"], p["address"] + p["length"]), payload[place:]))
                allowed.update(range(p["address"], p["address"] + p["length"]))
            place += p["length"]
    times = {"piece": [], "payload": [], "done": []}

    async def feed_pieces(ctx):
        await send_all(ctx, dut.piece, [p for run in runs for p in run], rng, stall)

    async def feed_payload(ctx):
        beats = [b for payload in payloads for b in beats_of(payload, data_width)]
        for beat in beats:
            beat["data"] |= rng.getrandbits(data_width) >> 8 * beat["count"] << 8 * beat["count"]
        await send_all(ctx, dut.payload, beats, rng, stall)

    async def take(ctx):
        for run in runs:
            (done,) = await receive_all(ctx, dut.done, 1, rng if stall else None, stall)
            assert memory.unanswered >= 0
            assert done["tag"] == run[-1]["tag"]
            due.append(done["status"])
        ctx.set(dut.done.ready, 1)
        for _ in range(10):
            _, _, valid = await ctx.tick().sample(dut.done.valid)
            assert not valid, "a Done too many"

    async def watch(ctx):
        done = False
        async for _, _, p_valid, p_ready, d_valid, d_ready, over in ctx.tick().sample(
            dut.piece.valid, dut.piece.ready, dut.done.valid, dut.done.ready, dut.over
        ):
            assert over == done, "over comes a cycle after Done"
            done = bool(d_valid and d_ready)
            if p_valid:
                times["piece"].append((memory.now, p_ready))
            if d_valid and d_ready:
                times["done"].append(memory.now)
                # All bytes of all runs up to this one have been answered.
                answered = len(times["done"])
                bursts = sum(
                    1
                    for run in runs[:answered]
                    for p in run
                    if p["length"] and not p["discard"]
                    for _ in range(p["address"] // block, (p["address"] + p["length"] - 1) // block + 1)
                )
                assert len(memory.writes) - memory.unanswered >= bursts, "Done before the answer"

    block = min(4096, 256 * data_width // 8)
    simulate(
        top, feed_pieces, feed_payload, take, background=[watch, memory.run], deadline=deadline,
        seed=getattr(rng, "seed_value", None),
    )  # fmt: skip
    if check:
        assert memory.memory.bytes == expected, "other bytes than those of the pieces, or other values"
    assert set(memory.written) <= allowed, "a byte outside the pieces was touched"
    return due, memory, times


@pytest.mark.parametrize("data_width", [64, 128, 256, 512])
def test_random_runs(data_width):
    rng = make_rng()
    runs = [random_run(rng, most=1500, discards=True) for _ in range(40)]
    statuses, _, _ = write(runs, data_width, rng=rng, stall=0.3)
    assert statuses == [run[-1]["status"] for run in runs]


@settings(max_examples=12)
@given(st.lists(piece_lists(), min_size=1, max_size=3), st.integers(0, 1 << 32))
def test_any_alignment_and_length(lists, seed):
    rng = make_rng(seed)
    runs = [[piece(a, n, last=i == len(pieces) - 1) for i, (a, n) in enumerate(pieces)] for pieces in lists]
    write(runs, rng=rng, stall=0.1, answer=5)


def test_answer_in_the_next_cycle():
    rng = make_rng()
    runs = [random_run(rng, most=100, discards=True) for _ in range(40)]
    write(runs, rng=rng, stall=0, answer=0, shuffle=False)


def test_every_offset_between_two_pieces():
    rng = make_rng()
    runs = [
        [piece(0x1000 + 64 * n + a, la), piece(0x20000 + 64 * n + b, lb), piece(0x30000 + 64 * n + c, 11, last=1)]
        for n, (a, la, b, lb, c) in enumerate(
            (a, la, b, lb, rng.randrange(8))
            for a in (0, 3, 7)
            for la in (1, 4, 5, 9, 16)
            for b in range(8)
            for lb in (2, 8)
        )
    ]
    write(runs, rng=rng, stall=0.05, answer=3, shuffle=False)


def test_bus_error_and_refused_runs():
    rng = make_rng()
    runs = [
        [piece(0x1000, 100, last=1)],
        [piece(0x5003, 30), piece(0x9000, 17), piece(0x1000, 5, last=1)],
        [piece(0x1001, 100, last=1)],
        [piece(0, 0, last=1)],
        [piece(0x9003, 30), piece(0x6000, 17, discard=1), piece(0x1000, 5, discard=1, last=1, status=4)],
        [piece(0x1001, 9, last=1)],
        [piece(0x9001, 9), piece(0, 0, last=1)],
        [piece(0, 0, last=1, status=2)],
    ]
    statuses, _, _ = write(runs, rng=rng, broken=range(0x9000, 0x9008))
    assert statuses == [0, AccessStatus.BUS, 0, 0, 4, 0, AccessStatus.BUS, 2]


@pytest.mark.parametrize("data_width", [64, 256])
def test_packet_longer_or_shorter_than_its_pieces(data_width):
    rng = make_rng()
    runs, payloads = [], []
    for _ in range(60):
        run = [p for p in random_run(rng, most=300, discards=True) if p["length"]] or [piece(0x1000, 5)]
        run[-1]["last"] = 1
        length = sum(p["length"] for p in run)
        runs.append(run)
        payloads.append(
            rng.randbytes(max(1, length + rng.choice([0, 0, 1, -1, rng.randrange(100), -rng.randrange(100)])))
        )
    statuses, _, _ = write(runs, data_width, rng=rng, payloads=payloads, check=False, answer=4)
    assert statuses == [run[-1]["status"] for run in runs]


def test_longer_packet_is_swallowed():
    rng = make_rng()
    runs = [[piece(0x1003 + 64 * n, 7 + n), piece(0x8001 + 64 * n, n, last=1)] for n in range(20)]
    payloads = [rng.randbytes(7 + 2 * n + 3 * (n % 9)) for n in range(20)]
    write(runs, rng=rng, payloads=payloads)


def test_discard_is_done_before_its_payload_is_gone():
    rng = make_rng()
    runs = [
        [piece(0x1000, 64, last=1)],
        [piece(0, 4096, discard=1, last=1, status=4)],
        [piece(0x3000, 40), piece(0x2000, 4096, discard=1), piece(0, 100, discard=1, last=1)],
        [piece(0x5000, 64, last=1)],
    ]
    statuses, _, times = write(runs, rng=rng, stall=0, shuffle=False)
    assert statuses == [0, 4, 0, 0]
    done = times["done"]
    assert done[1] - done[0] <= 2
    assert done[2] - done[1] >= 512, "the next packet came before this one was swallowed"


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("offset", [0, 5])
def test_one_beat_a_cycle(offset, count):
    rng = make_rng(1)
    runs = [[piece(0x10000 + 8192 * n + offset, 4096, last=1)] for n in range(count)]
    _, memory, _ = write(runs, rng=rng, stall=0, shuffle=False)
    cycles = memory.w_beats[-1] - memory.w_beats[0] + 1
    print(f"{len(memory.w_beats)} beats of memory in {cycles} cycles")
    assert cycles <= len(memory.w_beats) * 1.02


def test_small_packets():
    rng = make_rng(1)
    for offset, most in ((0, 4), (5, 5)):
        runs = [[piece(0x1000 + 24 * n + offset, 8, last=1)] for n in range(200)]
        _, memory, times = write(runs, rng=rng, stall=0, shuffle=False)
        cycles = times["done"][-1] - times["done"][0]
        print(f"{cycles / 199:.2f} cycles a packet of 8 bytes at offset {offset}, {memory.most_unanswered} unanswered")
        start = times["piece"][0][0]
        print(f"piece to AWVALID {memory.writes[0][0] - start}, to W {memory.w_beats[0] - start}")
        assert memory.writes[0][0] - start <= 3
        assert cycles <= most * 199


@pytest.mark.parametrize(("data_width", "bursts"), [(64, 0), (64, 3), (100, 16)])
def test_wrong_arguments(data_width, bursts):
    with pytest.raises(ValueError, match=str(data_width if data_width == 100 else bursts)):
        PayloadWriter(data_width, bursts=bursts)
