"""What is random in the simulated devices: a program is run again and again, each time in a process of its own."""

import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
from verbena.sim.devices import world
from verbena.sim.pair import End, connect
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, SendWR

with End("sim0", 4096, qps=3) as a, End("sim1", 4096, qps=3) as b:
    world().set_wire(stall=0.2)
    connect(a, b)
    wr = SendWR(1, ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(a.mr.buf, 4096, a.mr.lkey)])
    wr.send_flags = ibv_send_flags.IBV_SEND_SIGNALED
    wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
    a.qp.post_send(wr)
    while not a.cq.poll(1)[0]:
        pass
    qps = [*a.qps, *b.qps]
    print([a.mr.buf, b.mr.buf], [a.mr.rkey, b.mr.rkey], [qp.qp_num for qp in qps], world().cycles)
"""


def run(seed=None):
    """What the program prints, and the seed of which it tells."""
    environment = {name: value for name, value in os.environ.items() if name != "VERBENA_SEED"}
    if seed is not None:
        environment["VERBENA_SEED"] = str(seed)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    told = re.findall(r"VERBENA_SEED=(\d+)", done.stderr)
    assert len(told) == (seed is None)
    return done.stdout, int(told[0]) if told else seed


@pytest.fixture(scope="module")
def unseeded():
    return run()


def test_the_seed_that_is_told_repeats_the_simulation(unseeded):
    """The same addresses, keys, numbers of QPs and cycles."""
    out, seed = unseeded
    assert run(seed) == (out, seed)


def refusal(name, text):
    """The last line of a program that opens a device, with this variable."""
    script = "from verbena.sw.verbs.device import Context; Context(name='sim0')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {name: text})
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["VERBENA_SEED", "VERBENA_MEMORY_LATENCY", "VERBENA_DATA_WIDTH", "VERBENA_TICK"])
def test_a_variable_that_is_no_number(name):
    assert f"Failed to open device sim0: {name} must be a whole number, not 'ten'" in refusal(name, "ten")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("VERBENA_SEED", "-1", "VERBENA_SEED must be 0 to 9223372036854775807, not -1"),
        ("VERBENA_MEMORY_LATENCY", "-1", "VERBENA_MEMORY_LATENCY must be 0 to 1048576, not -1"),
        ("VERBENA_MEMORY_LATENCY", "9" * 20, "VERBENA_MEMORY_LATENCY must be 0 to 1048576, not 99999999999999999999"),
        ("VERBENA_TICK", "0", "VERBENA_TICK must be 1 to 4294967295, not 0"),
        ("VERBENA_DATA_WIDTH", "100", "VERBENA_DATA_WIDTH: "),
        ("VERBENA_SLOTS", "0", "VERBENA_SLOTS: "),
        ("VERBENA_SLOTS", "3", "VERBENA_SLOTS: "),
        ("VERBENA_QPS", "1000000", "VERBENA_QPS: "),
        ("VERBENA_CAPTURE_FRAMES", "few", "VERBENA_CAPTURE_FRAMES must be sent, received, both, not 'few'"),
    ],
)
def test_a_variable_that_is_out_of_range(name, text, why):
    assert f"Failed to open device sim0: {why}" in refusal(name, text)


def test_without_a_seed_keys_and_numbers_differ(unseeded):
    others = run()
    assert others[1] != unseeded[1]
    addresses, keys, numbers = zip(*(out.split("]")[:3] for out, _ in (others, unseeded)))
    assert addresses[0] == addresses[1]
    assert keys[0] != keys[1]
    assert numbers[0] != numbers[1]
