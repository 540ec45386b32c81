"""How many messages a second of the wall's clock two adapters exchange: in one program, and in two (:mod:`.speed`).

Each measurement has processes of its own. ``python -m verbena.sim.message_speed ROLE KIND SECONDS`` is one of them:
``both`` ends in one world, or one end of a link that ``VERBENA_SIM`` names, ``near`` or ``far``.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wc_opcode, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .devices import configure
from .pair import End, connect, join

__all__ = ["KINDS", "PLACES", "measure_messages"]

SIZE = 64
UNDER_WAY = 64
LATENCY_CYCLES = 78
"""Of a link, whose 500 ns are 78.125 cycles."""

QUANTUM = 1024
"""Cycles that an end lets pass between two looks at its input, as the tools do that wait for a socket."""

KINDS = {"write": f"WRITEs of {SIZE} bytes, {UNDER_WAY} under way", "send": f"SENDs of {SIZE} bytes, to and fro"}
PLACES = {"one core": 1, "two cores": 2, "two programs": None}
"""One program on so many of the computer's cores; None: two programs, each with its adapter."""


def _write(end, remote):
    """One list of WRITEs, with a completion of the last."""
    first = last = None
    for number in range(UNDER_WAY // 2):
        flags = ibv_send_flags.IBV_SEND_SIGNALED if number == UNDER_WAY // 2 - 1 else 0
        sge = SGE(end.mr.buf, SIZE, end.mr.lkey)
        wr = SendWR(number, ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[sge], send_flags=flags)
        wr.set_wr_rdma(remote.rkey, remote.buf)
        if last is None:
            first = wr
        else:
            last.next_wr = wr
        last = wr
    end.qp.post_send(first)


def _send(end):
    end.qp.post_send(SendWR(1, num_sge=1, sg=[SGE(end.mr.buf, SIZE, end.mr.lkey)]))


def _receive(end):
    end.qp.post_recv(RecvWR(0, 1, [SGE(end.mr.buf + SIZE, SIZE, end.mr.lkey)]))


def _wait(end, opcode):
    """Until there is a completion of that kind; False if the other program says that the time is over."""
    while True:
        for wc in end.cq.poll(16)[1]:
            if wc.status:
                raise RuntimeError(f"a message failed: {wc!r}")
            if wc.opcode == opcode:
                return True
        if opcode == ibv_wc_opcode.IBV_WC_RECV and _told():
            return False


def _told():
    """Whether a line has come on the input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _writes(near, remote, seconds):
    """Messages in a second, of an end that has two lists under way."""
    _write(near, remote)
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        _write(near, remote)
        _wait(near, ibv_wc_opcode.IBV_WC_RDMA_WRITE)
        count += UNDER_WAY // 2
    _wait(near, ibv_wc_opcode.IBV_WC_RDMA_WRITE)
    return count / passed


def _to_and_fro(near, answer, seconds):
    """Messages in a second, of an end that sends the next one when the last one has been answered."""
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        _receive(near)
        _send(near)
        answer()
        _wait(near, ibv_wc_opcode.IBV_WC_RECV)
        count += 2
    return count / passed


def _answer(far):
    if going := _wait(far, ibv_wc_opcode.IBV_WC_RECV):
        _receive(far)
        _send(far)
    return going


def _both(kind, seconds):
    configure(seed=1, wire_delay=LATENCY_CYCLES - 1, store=True)
    with End("sim0", 4096) as near, End("sim1", 4096) as far:
        connect(near, far)
        _receive(far)
        if kind == "write":
            return _writes(near, SimpleNamespace(buf=far.mr.buf, rkey=far.mr.rkey), seconds)
        return _to_and_fro(near, lambda: _answer(far), seconds)


def _one(role, kind, seconds):
    """One end; the other's address comes on the input, and this one's goes to the output."""
    with End("sim0" if role == "near" else "sim1", 4096) as end:
        mine = {"gid": end.gid.gid, "qp_num": end.qp.qp_num, "buf": end.mr.buf, "rkey": end.mr.rkey}
        print(json.dumps(mine), flush=True)
        theirs = SimpleNamespace(**json.loads(sys.stdin.readline()))
        join(end.qp, theirs, theirs.gid)
        _receive(end)
        print(flush=True)  # ready
        sys.stdin.readline()
        if role == "near":
            return _writes(end, theirs, seconds) if kind == "write" else _to_and_fro(end, lambda: None, seconds)
        while not _told():
            if kind == "write":
                end.context.advance(QUANTUM)
            elif not _answer(end):
                break
        return None


@contextlib.contextmanager
def _start(role, kind, seconds, **environment):
    """A process of a measurement, which is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, role, kind, str(seconds)],
        env={name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
        | {name: os.environ[name] for name in ("VERBENA_BUILD",) if name in os.environ}
        | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    except BaseException:
        process.kill()
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def measure_messages(kind, place, *, seconds=1.0, data_width=64):
    """Messages of a ``kind`` in a second of the wall's clock, at a place; over a wire of 500 ns in any case."""
    settings = {"VERBENA_SEED": "1", "VERBENA_DATA_WIDTH": str(data_width)}
    if (cores := PLACES[place]) is not None:
        with _start("both", kind, seconds, VERBENA_SIM="", VERBENA_CORES=str(cores), **settings) as program:
            return float(_line(program))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        roles = {"near": f"listen:{folder}/link", "far": f"connect:{folder}/link"}
        near, far = (
            stack.enter_context(_start(role, kind, seconds, VERBENA_SIM=link, **settings))
            for role, link in roles.items()
        )
        told = _line(near, far), _line(far, near)
        for program, line in zip((far, near), told):
            _tell(program, line)
        for program, other in ((near, far), (far, near)):
            _line(program, other)
        for program in (far, near):
            _tell(program, "")
        result = float(_line(near, far))
        _tell(far, "")
        return result


def _line(program, *others):
    """The next line that a program prints; ``RuntimeError`` if it has ended, or one of the ``others``, which it waits
    for.
    """
    while not select.select([program.stdout], [], [], 0.1)[0]:
        _still_there(*others)
    if not (line := program.stdout.readline()):
        program.wait()
        _still_there(program)
    return line.rstrip("\n")


def _still_there(*programs):
    for program in programs:
        if program.poll() is not None:
            raise RuntimeError(f"a program that measures has ended: status {program.returncode}")


def _tell(program, line):
    with contextlib.suppress(BrokenPipeError):  # that it has ended shows in what it does not say
        program.stdin.write(line + "\n")
        program.stdin.flush()


def main(role, kind, seconds):
    """One process of a measurement."""
    rate = _both(kind, float(seconds)) if role == "both" else _one(role, kind, float(seconds))
    if rate is not None:
        print(rate, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
