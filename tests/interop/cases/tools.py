"""Linux' own programs, unmodified, as clients and servers of ours: rdma-core's pingpong, and perftest."""

import contextlib
import time
from functools import partial

from frames import ADAPTER
from verbena.sw.tools import pingpong
from verbena.sw.tools.exchange.channel import Listener
from verbena.sw.tools.perftest import play
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.session import run
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type

from . import connections
from .case import Case

__all__ = ["SMALL", "groups"]

RC, UC, UD = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD
ROLES = ("server", "client")
HOST = "10.0.2.2"
"""The host, as the guest's second network has it."""

LISTENS = "grep -q ':4853 .* 0A ' /proc/net/tcp"
"""Somebody in the guest listens on port 18515."""

SMALL = "perftest in 64 KiB"
"""Group of the tests that leave out what needs more memory."""

PATIENCE = 300
"""Seconds of the wall's clock, as for connections: it bounds a hang, and says nothing of speed."""

LATE = 0.15
"""Seconds; the pingpong's timeout is 67 ms."""


def converse(bench, role, command, client, server):
    """Runs ``command`` in the guest and our other end here, to the end of both; output goes to the log of tools."""
    log = (bench.folder / "tools.log").open("a")
    with log, contextlib.ExitStack() as stack:

        def tell(line):
            print(line, file=log)

        if role == "server":
            listener = stack.enter_context(Listener(0, "127.0.0.1"))
            command += f" -p {listener.port} {HOST}"
            job = bench.guest.call("start", {"command": command})
            session = server(listener, tell)
        else:
            job = bench.guest.call("start", {"command": command})
            bench.until(lambda: bench.guest.call("run", {"command": LISTENS})[0] == 0)
            session = client("127.0.0.1", bench.guest.tool_port, tell)
        tell(f"guest: {command}; adapter is the {role}")
        try:
            run(session)
            end = time.monotonic() + PATIENCE
            status = None
            while status is None and time.monotonic() < end:
                status, output = bench.guest.call("job", {"number": job, "seconds": 0.05})
        finally:
            status, output = bench.guest.call("job", {"number": job})
            tell(output)
            if status is None:
                bench.guest.call("kill", {"number": job})
    assert status == 0, f"{command}: status {status}: {' / '.join(output.strip().splitlines()[-3:])}"


def perftest(name, options, arguments, role, bench):
    """One of perftest's programs."""
    kind = KINDS[name]
    command = f"ib_{name} -d rxe0 -x 1 -F -u 22 {arguments}"
    converse(
        bench,
        role,
        command,
        lambda host, port, tell: play.client(bench.context, kind, options, host, port, tell=tell),
        lambda listener, tell: play.server(bench.context, kind, options, listener, tell=tell),
    )


def managed(name, options, arguments, role, bench):
    """One of perftest's programs, whose queue pairs the connection manager connects."""
    kind, address = KINDS[name], bench.station.guest if role == "client" else connections.ADAPTER

    def session(tell):
        if role == "server":
            return play.managed_server(bench.context, kind, options, tell=tell)
        return play.client(bench.context, kind, options, address, tell=tell)

    host = "" if role == "client" else address
    connections.converse(bench, role, f"ib_{name} -d rxe0 -x 1 -F {arguments} {host}", session)


def pings(options, role, late, bench):
    """rdma-core's pingpong, whose timeout cannot be set: the guest's clock stands still while the adapter works, or,
    ``late``, it does not, and all that the adapter says comes so late that the guest says everything twice.
    """
    name, mtu = program(options), "" if options.qp_type == UD else f" -m {options.mtu}"
    if late:
        bench.cable.harm(delays={ADAPTER: LATE})
    with contextlib.nullcontext() if late else bench.in_turns():
        converse(
            bench,
            role,
            f"{name} -d rxe0 -g 1 {special(options)}{mtu} -n {options.iterations} -s {options.size}",
            lambda host, port, tell: pingpong.client(bench.context, options, host, port, tell=tell),
            lambda listener, tell: pingpong.server(bench.context, options, listener, tell=tell),
        )
    assert bench.cable.retries or not late, "no request came twice"


def program(options):
    """Name of the pingpong for a type of queue pair, or for a shared receive queue."""
    return f"ibv_{'srq' if options.shared else options.qp_type.name[-2:].lower()}_pingpong"


def special(options):
    """Arguments that not all pingpongs have: that of a shared receive queue does not check what has come."""
    return f"-q {options.qps} -r {options.rx_depth}" if options.shared else "-c"


SEVERAL = {
    # What else is told to the tests of bandwidth, by MTU, and bytes and number of their messages.
    "perftest": ({4096: {"qps": 4}, 256: {"bidirectional": True}, 512: {"qps": 3, "bidirectional": True}}, 5000, 40),
    SMALL: ({512: {"qps": 2, "bidirectional": True}}, 4000, 16),
}


def perftests(several, length, count):
    """Tools, what they are told, and the same in our words."""
    for name, kind in KINDS.items():
        size = 8 if kind.reading and "atomic" in name else 2000 if kind.latency else length
        iterations = 10 if kind.latency else count
        variants = {1024: {}} | ({} if kind.latency else several)
        if "atomic" in name:
            variants[2048] = {"compare_and_swap": True}
        elif not kind.reading:
            variants[2048] = {"connection": "UC"}
        for mtu, variant in variants.items():
            options = Options(size=size, iterations=iterations, mtu=mtu, patience=PATIENCE, **variant)
            yield name, options


OTHERS = [
    ("send_bw", {"connection": "UD", "size": 900}),
    ("send_lat", {"connection": "UD", "size": 100}),
    ("send_bw", {"use_srq": True, "qps": 3, "size": 3000}),
    ("send_lat", {"use_srq": True, "size": 3000}),
    ("send_bw", {"rdma_cm": True, "size": 3000}),
    ("send_bw", {"rdma_cm": True, "size": 3000, "qps": 2, "bidirectional": True}),
    ("send_lat", {"rdma_cm": True, "connection": "UD", "size": 100}),
    ("write_lat", {"rdma_cm": True, "size": 3000}),
    ("read_bw", {"rdma_cm": True, "size": 3000}),
]
"""Tests with other queue pairs, or connected otherwise."""


def spelled(name, options):
    """Arguments of perftest's program."""
    words = ["-n", options.iterations, "-m", options.mtu]
    if "atomic" not in name:
        words += ["-s", options.size]
    if options.qps > 1:
        words += ["-q", options.qps]
    if options.bidirectional:
        words.append("-b")
    if options.connection != "RC":
        words += ["-c", options.connection]
    if options.compare_and_swap:
        words += ["-A", "CMP_AND_SWAP"]
    words += ["--use-srq"] * options.use_srq + ["-R"] * options.rdma_cm
    return " ".join(map(str, words))


def groups(seed):
    tests = {
        group: [
            Case(
                f"ib_{name} {spelled(name, options)}",
                role,
                partial(perftest, name, options, spelled(name, options), role),
                options.mtu,
                tool=True,
            )
            for name, options in perftests(*told)
            for role in ROLES
        ]
        for group, told in SEVERAL.items()
    }
    others = [
        (name, Options(iterations=10 if name.endswith("lat") else 40, mtu=1024, patience=PATIENCE, **given))
        for name, given in OTHERS
    ]
    tests["perftest: UD, SRQ, rdma_cm"] = [
        Case(
            f"ib_{name} {spelled(name, options)}",
            role,
            partial(managed if options.rdma_cm else perftest, name, options, spelled(name, options), role),
            4096 if options.rdma_cm else options.mtu,
            tool=True,
        )
        for name, options in others
        for role in ROLES
    ]
    plain = [
        (pingpong.Options(size, mtu, iterations=count, check=True, patience=PATIENCE, qp_type=qp_type), late)
        for qp_type, size, mtu, count, late in (
            (RC, 4096, 1024, 20, False),
            (RC, 1000, 256, 20, False),
            (RC, 4096, 1024, 5, True),
            (UC, 2500, 1024, 20, False),
            (UC, 100, 256, 20, False),
            (UD, 1000, 1024, 20, False),
        )
    ]
    shared = [
        (pingpong.Options(size, mtu, depth, count, patience=PATIENCE, qps=qps, shared=True), False)
        for size, mtu, depth, count, qps in ((4096, 1024, 20, 64, 16), (1000, 256, 5, 40, 5), (100, 1024, 500, 10, 1))
    ]
    plays = [
        Case(
            f"{program(options)} -s {options.size} -m {options.mtu}{f' -q {options.qps}' * options.shared}",
            role,
            partial(pings, options, role, late),
            options.mtu,
            f"{LATE} s late" if late else "none",
            reason="the guest's timeout passes, on purpose" if late else "",
            tool=True,
        )
        for options, late in plain + shared
        for role in ROLES
    ]
    return {**tests, "pingpong": plays}
