"""Adapters and connections, the loop that drives them, and the command line."""

import argparse
import random
import sys
from pathlib import Path

from verbena.hdl.config import SLOTS_MAX
from verbena.sw.tools.command import command_line, first_line
from verbena.sw.verbs.libibverbs_enums import ibv_qp_type

from ..console import Console, Table, box
from ..model import rnic
from ..ticks import default_tick, tick_text
from ..world import World
from .connection import Connection
from .disturbances import KINDS, Disturbances
from .flow import WEIGHTS
from .granting import Granting
from .host import Host
from .lives import Lives
from .model import Difference
from .pace import HANG, timeout_for
from .progress import Ahead
from .sharing import Sharing
from .unreliable import Unreliable

__all__ = ["Soak", "main"]

RETRIES = ("retries", "timeouts", "implied_naks", "tx_naks", "replays", "drop_duplicate", "drop_overflow")
WINDOW = 3000
"""Operations in one of the two capture files that are kept."""

UNRELIABLE = 4
"""Connections of RC for each of UC, and each pair of UD."""

SHARING = 8
"""Connections of RC for each shared receive queue."""

GRANTING = 8
"""Connections of RC for each two whose keys come and go."""

UNREST = 0.02
"""Probability of a disturbance, a step."""


class Soak:
    """Random operations on ``pairs`` connections between ``adapters``, some of an adapter to itself; beside them one
    pair of UC and one of UD for each four, and for each eight a shared receive queue, and two whose keys come and go.

    Parameters
    ----------
    seed : int
    loss : float
        Probability of each kind of fault, a frame.
    pairs : int
    adapters : int
    data_width : int
        Of the engines, in bits.
    unrest : float
        Probability of a disturbance (:mod:`.disturbances`), a step.
    slots : int
        Queue pairs that are on chip at a time, in each engine.
    swap_every : int
        Cycles from one queue pair that must leave its slot to the next, in each engine; 0: none must.
    """

    def __init__(self, seed, loss, pairs=8, adapters=3, data_width=64, unrest=UNREST, slots=64, swap_every=0):
        self.random = random.Random(seed)
        self.unrest = unrest
        self.loss = loss
        self.timeout = timeout_for(pairs, data_width, loss)
        self.world = World(adapters, rnic(data_width=data_width, slots=slots, swap_every=swap_every), seed=seed)
        self.lives = Lives(self.random)
        self.hosts = [Host(self.world, index, 64 * pairs) for index in range(adapters)]
        self.senders, self.receivers = {}, {}  # (host, QP number): flow
        self.connections = []
        for number in range(pairs):
            one = number % adapters
            other = (one + self.random.randrange(number > 0 and number == pairs - 1, 2) + number // adapters) % adapters
            self.connections.append(Connection(self, (self.hosts[one], self.hosts[other])))
        self.unreliable, self.sharing = [], []
        for number in range(-(-pairs // UNRELIABLE)):
            ends = self.hosts[number % adapters], self.hosts[(number + 1) % adapters]
            for kind in (ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD):
                self.unreliable.append(Unreliable(seed + number, ends, kind))
        for number in range(-(-pairs // SHARING)):
            ends = self.hosts[number % adapters], self.hosts[(number + 1) % adapters]
            self.sharing.append(Sharing(seed + number, ends, self.timeout))
        self.granting = []
        for number in range(-(-pairs // GRANTING)):
            ends = self.hosts[(number + 1) % adapters], self.hosts[number % adapters]
            self.granting.append(Granting(seed + number, ends, self.timeout))
        self.disturbances = Disturbances(self, loss)

    @property
    def flows(self):
        return [flow for connection in self.connections for flow in connection.flows]

    @property
    def _beside(self):
        """What goes on beside the connections."""
        return (*self.unreliable, *self.sharing, *self.granting)

    @property
    def done(self):
        return sum(flow.done for flow in self.flows)

    def step(self, posting=True):
        """Posts here and there, disturbs, lets time pass, and checks what has come. Returns how much that was."""
        random = self.random
        if posting:
            self.disturbances.step()
        for connection in self.connections:
            if not connection.tend():
                continue
            for flow in connection.flows:
                if posting and random.random() < 0.5:
                    for _ in range(random.randrange(1, 9)):
                        flow.post()
                # Often later than the message, so that it meets no receive request.
                if random.random() < 0.7:
                    flow.post_receives(random.randrange(1, 9))
        moved = self.poll() + sum(each.step(posting) for each in self._beside)
        for flow in self.flows:
            if flow.quiet and not flow.dead and random.random() < 0.01:
                flow.check()
        return moved

    def poll(self):
        """Takes all completions and events. Returns the number of completions."""
        moved = 0
        for host in self.hosts:
            for cq, flows, name in (
                (host.recv_cq, self.receivers, "arrived"),
                (host.send_cq, self.senders, "sent"),
            ):
                for wc in host.poll(cq):
                    getattr(flows[host, wc.qp_num], name)(wc)
                    moved += 1
        for connection in self.connections:
            if connection.own_cq is not None and not connection.muted:
                for wc in connection.own_cq.poll(64)[1]:
                    connection.flows[0].sent(wc)
                    moved += 1
        self.take_events()
        return moved

    def take_events(self):
        """Gives every asynchronous event to the connection that it is about."""
        for host in self.hosts:
            for event in host.take_events():
                for connection in self.connections:
                    if event.element in (*connection.qps, connection.own_cq):
                        connection.event(event)
                        break
                else:
                    if any(each.event(event) for each in (*self.sharing, *self.granting)):
                        continue
                    raise Difference(f"sim{host.index}: {event}, which is of no connection")

    def drain(self, ahead=None):
        """Posts nothing more, waits for what is open, and compares all memory. ``ahead`` hears how much is open."""
        last = self.world.cycles
        self.disturbances.calm()
        while self._open:
            if self.step(posting=False):
                last = self.world.cycles
            self.watch(last)
            if ahead is not None:
                ahead.drain(sum(len(flow.model.open) for flow in self.flows), self.world.cycles)
        for each in (*self.flows, *self._beside):
            each.check()

    @property
    def _open(self):
        """How many directions have something that is not complete."""
        rc = sum(flow.dead or flow.killed or not flow.end() or not flow.quiet for flow in self.flows)
        return rc + sum(not each.end() for each in self._beside)

    def watch(self, last):
        """Something must have completed not long ago."""
        if self.world.cycles - last > HANG:
            raise Difference(f"nothing has completed for {HANG} cycles")

    def report(self):
        """Figures of the run, by name."""
        counters = [host.context.query_counters() for host in self.hosts]
        faults = [adapter.fault_counters for adapter in self.world.adapters]
        ends = {}
        for connection in self.connections:
            for why, count in connection.ends.items():
                ends[why] = ends.get(why, 0) + count
        return {
            "operations": self.done,
            "by kind": {name: sum(f.counts[name] for f in self.flows) for name in WEIGHTS},
            "of UC and UD": {
                name: sum(pair.counts[name] for pair in self.unreliable) for name in self.unreliable[0].counts
            },
            "of shared receives": {
                name: sum(each.counts[name] for each in self.sharing) for name in self.sharing[0].counts
            },
            "of keys": {name: sum(each.counts[name] for each in self.granting) for name in self.granting[0].counts},
            "packets": sum(c["tx_packets"] for c in counters),
            "faults": {kind: sum(f[kind] for f in faults) for kind in KINDS},
            "recovery": {name: sum(c[name] for c in counters) for name in RETRIES},
            "disturbances": self.disturbances.counts,
            "lives ended by": ends,
            "events of completions": sum(host.events for host in self.hosts),
            "cycles": self.world.cycles,
        }


def show(report, console):
    table = Table(box=box.SIMPLE_HEAD, show_header=False, show_edge=False)
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {number}" for key, number in value.items())
        table.add_row(name, str(value))
    console.print(table)


def _arguments(argv):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.soak", description=first_line(__doc__))
    parser.add_argument("--seed", type=int, default=None, help="default: random, and printed")
    parser.add_argument("--loss", type=float, default=1.0, help="percent of frames that each kind of fault hits")
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=None, help="stop after so long instead")
    parser.add_argument("--pairs", type=int, default=8, help="connections, up to 32")
    parser.add_argument("--adapters", type=int, default=3, help="on one wire (%(default)s)")
    parser.add_argument("--width", type=int, default=64, help="of the engines' bus: 64, 128, 256 or 512 bits")
    parser.add_argument("--unrest", type=float, default=100 * UNREST, help="disturbances in 100 steps (%(default)g)")
    parser.add_argument("--slots", type=int, default=64, help="QPs that are on chip at a time: 4 to 1024 (%(default)s)")
    parser.add_argument("--swap-every", type=int, default=0, help="so many cycles after the last a QP leaves its slot")
    parser.add_argument("--captures", type=Path, default=Path("build/soak"))
    args = parser.parse_args(argv)
    if not 0 <= args.loss <= 50 or not 1 <= args.pairs <= 32 or args.operations < 1:
        parser.error("loss must be 0 to 50, pairs 1 to 32, operations positive")
    if not 1 <= args.adapters <= 8 or not 0 <= args.unrest <= 100 or args.width not in (64, 128, 256, 512):
        parser.error("adapters must be 1 to 8, unrest 0 to 100, width 64, 128, 256 or 512")
    if args.slots not in (numbers := [1 << n for n in range(2, SLOTS_MAX.bit_length())]):
        parser.error(f"slots must be {', '.join(map(str, numbers[:-1]))} or {numbers[-1]}")
    if not 0 <= args.swap_every <= 1 << 24:
        parser.error(f"swap-every must be 0 to {1 << 24}")
    if args.seed is None:
        args.seed = random.SystemRandom().getrandbits(31)
    return args


def _run(soak, args, captures, ahead):
    """Until there are enough operations, or time is up."""
    last, turn = soak.world.cycles, WINDOW
    while not ahead.reached:
        if soak.step():
            last = soak.world.cycles
        soak.watch(last)
        ahead.update(soak.done, soak.world.cycles)
        if soak.done >= turn:
            turn += WINDOW
            soak.world.capture(None)
            captures[1].replace(captures[0])
            soak.world.capture(captures[1])
    soak.drain(ahead)


@command_line
def main(argv=None):
    """Command line; returns the status."""
    args = _arguments(argv)
    console = Console(width=None if sys.stdout.isatty() else 120)
    again = f"make soak SEED={args.seed} LOSS={args.loss:g} OPERATIONS={args.operations} PAIRS={args.pairs}"
    defaults = {"width": 64, "adapters": 3, "unrest": 100 * UNREST, "slots": 64, "swap_every": 0}
    for name, default in defaults.items():
        if (value := getattr(args, name)) != default:
            again += f" {name.upper()}={value:g}"
    console.print(f"seed {args.seed}, {args.loss:g} % of each fault; to repeat: {again}")
    args.captures.mkdir(parents=True, exist_ok=True)
    captures = [args.captures / "before.pcapng", args.captures / "last.pcapng"]
    for path in captures:
        path.unlink(missing_ok=True)
    engine = {"data_width": args.width, "slots": args.slots, "swap_every": args.swap_every}
    soak = Soak(args.seed, args.loss / 100, args.pairs, args.adapters, unrest=args.unrest / 100, **engine)
    console.print(tick_text(default_tick(), soak.world.clock_hz), highlight=False)
    with soak.world:
        soak.world.capture(captures[1])
        try:
            with Ahead(console, None if args.minutes is not None else args.operations, args.minutes) as ahead:
                _run(soak, args, captures, ahead)
        except Difference as difference:
            soak.world.flush()
            console.print(f"[red]{difference}", highlight=False)
            console.print(f"frames around it: {captures[0]}, {captures[1]} (the newer); to repeat: {again}")
            show(soak.report(), console)
            return 1
        show(soak.report(), console)
    console.print("nothing lost, doubled or changed")
    return 0
