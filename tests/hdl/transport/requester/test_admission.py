"""Who must wait, by plain numbers that do not go round."""

from hypothesis import given, settings
from hypothesis import strategies as st
from streams import shared, simulate
from verbena.hdl.transport.requester.admission import AdmissionCheck

PSNS = 1 << 24


def check(state, progress, max_rd_atomic, read_allowance, unreliable):
    """The block's answer."""
    dut = shared(AdmissionCheck)
    result = {}

    async def testbench(ctx):
        ctx.set(dut.state, state)
        ctx.set(dut.progress, progress)
        ctx.set(dut.max_rd_atomic, max_rd_atomic)
        ctx.set(dut.read_allowance, read_allowance)
        ctx.set(dut.unreliable, unreliable)
        answer = ctx.get(dut.o)
        result.update({name: answer[name] for name, _ in answer.shape()})

    simulate(dut, testbench)
    return result


@settings(max_examples=150)
@given(data=st.data())
def test_positions(data):
    """A queue of messages, some of them READs of up to 2**23 PSNs, and any place in it that a retry may lead to. With
    UC there are no READs, and credits do not count."""
    base = data.draw(st.integers(0, PSNS - 1))
    first_index = data.draw(st.integers(0, 65535))
    sizes = data.draw(
        st.lists(st.sampled_from([1, 2, 1000, 1 << 23, (1 << 22) - 1]) | st.integers(1, 5000), min_size=1)
    )
    starts = [0]
    for size in sizes:
        if starts[-1] >= 1 << 22:
            break
        starts.append(starts[-1] + size)
    count = len(starts) - 1  # messages begun; the next one begins at starts[count]
    oldest = data.draw(st.integers(0, count))
    unacked = starts[oldest]
    if oldest < count:
        unacked += data.draw(st.sampled_from([0, starts[oldest + 1] - starts[oldest] - 1]))
    index = data.draw(st.integers(0, count))
    psn = starts[index]
    limit = data.draw(st.integers(0, count + 2))
    limited = data.draw(st.booleans())
    done = data.draw(st.integers(0, 300))
    reads = done + data.draw(st.integers(0, 17))
    most = data.draw(st.sampled_from([0, 1, 2, 15, 16, 17, 255]))
    allowance = data.draw(st.sampled_from([0, 1, 5, 15]))
    unreliable = data.draw(st.booleans())
    found = check(
        {
            "index": (first_index + index) % 65536,
            "psn": (base + psn) % PSNS,
            "top": (first_index + count) % 65536,
            "top_psn": (base + starts[count]) % PSNS,
            "reads": reads % 256,
        },
        {
            "oldest": (first_index + oldest) % 65536,
            "unacked": (base + unacked) % PSNS,
            "reads": done % 256,
            "limit": (first_index + limit) % 65536,
            "limited": int(limited),
        },
        most,
        allowance,
        unreliable,
    )
    assert found["newest"] == (index == count)
    assert found["fresh"] == (psn == starts[count])
    assert found["behind"] == (psn < unacked)
    if psn >= unacked:
        assert found["far"] == (psn - unacked >= 1 << 22)
    assert found["fenced"] == (reads != done)
    assert found["full"] == (reads - done >= most or reads - done > allowance)
    assert found["rd_atomic_disabled"] == (most == 0 or unreliable)
    assert found["no_credit"] == (limited and index >= limit and index != oldest and not unreliable)
