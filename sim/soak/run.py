"""Adapters, connections, faults, and the loop that drives them."""

import argparse
import random
import sys
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from verbena.sw.verbs.cq import CQ
from verbena.sw.verbs.libibverbs_enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from verbena.sw.verbs.qp import QP, QPAttr, QPCap, QPInitAttr

from ..devices import configure, world
from ..pair import End, join
from ..ports import Faults
from .flow import DEPTH, ENTRIES, INLINE, WEIGHTS, Flow
from .model import Difference

__all__ = ["Soak", "first_psn", "main"]

KINDS = ("lose", "duplicate", "reorder", "corrupt", "delay", "damage")
MTUS = (256, 512, 1024, 2048, 4096)
TIMEOUT = 11
"""Local ACK timeout, 4.096 us << 11: with simulated time's tick of 16 cycles, 32,768 cycles."""

RETRIES = ("retries", "timeouts", "implied_naks", "tx_naks", "replays", "drop_duplicate", "drop_overflow")
HANG = 4_000_000
"""Cycles without any completion after which the engine counts as hung."""

APART = 1 << 22
"""PSNs between the first ones of a connection's lives: more than a life has."""

WINDOW = 3000
"""Operations in one of the two capture files that are kept."""


def first_psn(random, before=None):
    """First PSN of a life, often next to where PSNs wrap, and far from ``before``, that of the life before.

    Frames may still be under way when a life is over: where two adapters send to one, the queue before that grows to
    tens of thousands of cycles, and a connection begins anew in half of that. With the same PSNs nobody could tell them
    from the new life's; whoever connects by InfiniBand's connection manager waits until they have died out (TimeWait).
    """
    while True:
        psn = random.choice((0, 0xFFFFF0, random.getrandbits(24)))
        if before is None or APART <= (psn - before) % (1 << 24) <= (1 << 24) - APART:
            return psn


class Pair:
    """A connection: two queue pairs, a flow in each direction."""

    def __init__(self, soak, number, ends):
        self.soak, self.ends = soak, ends
        self.mtu = soak.random.choice(MTUS)
        self.qps = [soak.make_qp(end) for end in ends]
        base = number * Flow.span
        self.flows = [
            Flow(ends[i], ends[1 - i], self.qps[i], self.qps[1 - i], base + i * soak.half, self.mtu, soak.random)
            for i in (0, 1)
        ]
        self.breaks = 0
        self.psns = [None, None]
        self.connect()

    def connect(self):
        self.psns = psns = [first_psn(self.soak.random, before) for before in self.psns]
        for i in (0, 1):
            join(
                self.qps[i],
                self.qps[1 - i],
                self.ends[1 - i].gid,
                mtu=self.mtu,
                sq_psn=psns[i],
                rq_psn=psns[1 - i],
                timeout=TIMEOUT,
                min_rnr_timer=self.soak.random.choice((1, 5, 12)),
            )
        for flow in self.flows:
            flow.post_receives(DEPTH)

    def tend(self):
        """Mends a connection that broke: everything flushes, then it begins anew. Returns whether it is up."""
        if not any(flow.dead for flow in self.flows):
            for flow in self.flows:
                if flow.flushing:
                    raise Difference(f"{flow.name}: the peer's receive queue is flushed, and nothing has failed")
            return True
        if not all(flow.killed for flow in self.flows):
            for flow, qp in zip(self.flows, self.qps):
                flow.killed = True
                qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_ERR), ibv_qp_attr_mask.IBV_QP_STATE)
        for flow in self.flows:
            if not flow.model.open and not flow.dead:
                flow.dead, flow.flushed = True, flow.next
        if not all(flow.flushed_all for flow in self.flows):
            return False
        for qp in self.qps:
            qp.modify(QPAttr(qp_state=ibv_qp_state.IBV_QPS_RESET), ibv_qp_attr_mask.IBV_QP_STATE)
        for flow in self.flows:
            flow.settle()
        self.breaks += 1
        self.connect()
        return True


class Soak:
    """Random operations on ``pairs`` connections, one of them of the first adapter to itself.

    Parameters
    ----------
    seed : int
    loss : float
        Probability of each kind of fault, a frame.
    pairs : int
    """

    def __init__(self, seed, loss, pairs=8):
        self.random = random.Random(seed)
        self.half = pairs * Flow.span
        self.ends = [End(name, 2 * self.half, qps=0) for name in ("sim0", "sim1")]
        self.cqs = {end: (CQ(end.context, 4 * DEPTH * pairs), CQ(end.context, 4 * DEPTH * pairs)) for end in self.ends}
        a, b = self.ends
        self.pairs = [Pair(self, i, (a, a) if i == pairs - 1 and pairs > 1 else (a, b)) for i in range(pairs)]
        self.senders = {(flow.here, flow.qp.qp_num): flow for pair in self.pairs for flow in pair.flows}
        self.receivers = {(flow.there, flow.peer.qp_num): flow for pair in self.pairs for flow in pair.flows}
        world().set_faults(Faults(**dict.fromkeys(KINDS, loss)))

    def make_qp(self, end):
        send, receive = self.cqs[end]
        cap = QPCap(DEPTH, DEPTH, ENTRIES, ENTRIES, INLINE)
        return QP(end.pd, QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=send, rcq=receive, cap=cap, sq_sig_all=0))

    @property
    def flows(self):
        return [flow for pair in self.pairs for flow in pair.flows]

    @property
    def done(self):
        return sum(flow.done for flow in self.flows)

    def step(self, posting=True):
        """Posts here and there, lets time pass, and checks what has come."""
        random = self.random
        for pair in self.pairs:
            if not pair.tend():
                continue
            for flow in pair.flows:
                if posting and random.random() < 0.5:
                    for _ in range(random.randrange(1, 9)):
                        flow.post()
                # Often later than the message, so that it meets no receive request.
                if random.random() < 0.7:
                    flow.post_receives(random.randrange(1, 9))
        moved = 0
        for end, (send, receive) in self.cqs.items():
            for wc in receive.poll(64)[1]:
                self.receivers[end, wc.qp_num].arrived(wc)
                moved += 1
            for wc in send.poll(64)[1]:
                self.senders[end, wc.qp_num].sent(wc)
                moved += 1
        for flow in self.flows:
            if flow.quiet and not flow.dead and random.random() < 0.01:
                flow.check()
        return moved

    def drain(self):
        """Posts nothing more, waits for what is open, and compares all memory."""
        last = world().cycles
        while any(flow.dead or not flow.end() or not flow.quiet for flow in self.flows):
            if self.step(posting=False):
                last = world().cycles
            self.watch(last)
        for flow in self.flows:
            flow.check()

    @staticmethod
    def watch(last):
        if world().cycles - last > HANG:
            raise Difference(f"nothing has completed for {HANG} cycles")

    def report(self):
        """Figures of the run, by name."""
        counters = [end.context.query_counters() for end in self.ends]
        faults = [a.fault_counters for a in world().adapters]
        return {
            "operations": self.done,
            "by kind": {name: sum(f.counts[name] for f in self.flows) for name in WEIGHTS},
            "packets": sum(c["tx_packets"] for c in counters),
            "faults": {kind: sum(f[kind] for f in faults) for kind in KINDS},
            "recovery": {name: sum(c[name] for c in counters) for name in RETRIES},
            "connections broken (RETRY_EXC_ERR)": sum(pair.breaks for pair in self.pairs),
            "cycles": world().cycles,
        }


def show(report, console):
    table = Table(box=box.SIMPLE_HEAD, show_header=False, show_edge=False)
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {number}" for key, number in value.items())
        table.add_row(name, str(value))
    console.print(table)


def _arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="default: random, and printed")
    parser.add_argument("--loss", type=float, default=1.0, help="percent of frames that each kind of fault hits")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long instead")
    parser.add_argument("--pairs", type=int, default=8, help="connections, up to 32")
    parser.add_argument("--captures", type=Path, default=Path("build/soak"))
    args = parser.parse_args(argv)
    if not 0 <= args.loss <= 50 or not 1 <= args.pairs <= 32 or args.operations < 1:
        parser.error("loss must be 0 to 50, pairs 1 to 32, operations positive")
    if args.seed is None:
        args.seed = random.SystemRandom().getrandbits(31)
    return args


def main(argv=None):
    args = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    again = f"make soak SEED={args.seed} LOSS={args.loss:g} OPERATIONS={args.operations} PAIRS={args.pairs}"
    console.print(f"seed {args.seed}, {args.loss:g} % of each fault; to repeat: {again}")
    args.captures.mkdir(parents=True, exist_ok=True)
    configure(seed=args.seed)
    captures = [args.captures / "before.pcapng", args.captures / "last.pcapng"]
    for path in captures:
        path.unlink(missing_ok=True)
    columns = (TextColumn("{task.completed:,.0f} operations"), BarColumn(), TimeElapsedColumn())
    began = time.monotonic()
    try:
        with console.status("building the compiled model (once)"):
            world().capture(captures[1])
            soak = Soak(args.seed, args.loss / 100, args.pairs)
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=args.operations if args.minutes is None else None)
            last, turn = world().cycles, WINDOW
            while soak.done < args.operations if args.minutes is None else time.monotonic() - began < 60 * args.minutes:
                if soak.step():
                    last = world().cycles
                soak.watch(last)
                progress.update(task, completed=soak.done)
                if soak.done >= turn:
                    turn += WINDOW
                    world().capture(None)
                    captures[1].replace(captures[0])
                    world().capture(captures[1])
            soak.drain()
    except Difference as difference:
        world().flush()
        console.print(f"[red]{difference}")
        console.print(f"frames around it: {captures[0]}, {captures[1]} (the newer); to repeat: {again}")
        show(soak.report(), console)
        return 1
    show(soak.report(), console)
    console.print("nothing lost, doubled or changed")
    return 0
