"""Cycles per message, as perftest would print them: ``python -m verbena.sim.bench``.

Two adapters on one wire with 10 GbE framing, exact in cycles: throughput from batches of two lengths, latency from the
first register write of posting to the responder's completion in its memory, all with warm caches.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.transport.aeth import AethSyndrome
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .devices import configure, world
from .pair import End, connect
from .ports import Faults
from .wire_limit import go_back_n, wire_cycles

__all__ = ["main"]

CLOCK_MHZ = 156.25
SIZES = (8, 64, 256, 1024, 4096, 16384, 65536)
MTU = 4096
OPERATIONS = {
    "WRITE": SendOpcode.RDMA_WRITE,
    "SEND": SendOpcode.SEND,
    "READ": SendOpcode.RDMA_READ,
    "FETCH_ADD": SendOpcode.ATOMIC_FETCH_AND_ADD,
    "WRITE_WITH_IMM": SendOpcode.RDMA_WRITE_WITH_IMM,
}
CURVES = {"WRITE": "#2a6fb0", "SEND": "#c2571a", "READ": "#3d8b4f"}
RETURNING = ("READ", "FETCH_ADD")
"""Operations that are over when their data is back at the requester."""

LOSSES = (0, 0.001, 0.01, 0.05)
PATIENCE = 2_000_000
TIMEOUT = 8
"""Local ACK timeout of the lossy rows, 4.096 us << 8: 4096 cycles of simulated time, or 8 packets. An ACK is asked for
every second packet, so it takes three lost ones to make the requester go back without need."""

OUTBOUND = 2
"""Of the captures: a frame that leaves its port."""

AETH = 54
"""Where an acknowledgement's AETH stands, its syndrome first."""

REGION = 1 << 20
BUFFER = 1 << 17
"""Messages go round in that much memory, as perftest's do in less: the caches are warm after the first round."""


def _cqe_written(cq, number):
    """Whether completion ``number`` (from 0, since the CQ was made) stands in the ring."""
    slot = number & (1 << cq._log_size) - 1
    entry = CQE.unpack(cq._adapter.memory.read(cq._ring + CQE.size * slot, CQE.size))
    if entry["phase"] == number >> cq._log_size & 1:
        return False
    if entry["status"]:
        raise RuntimeError(f"completion {number} failed: status {entry['status']}, vendor error {entry['syndrome']}")
    return True


def _cycle_of(cq, number, start):
    """The cycle, counted from ``start``, in which completion ``number`` of ``cq`` came into memory."""
    here = world()
    while not _cqe_written(cq, number):
        if here.cycles - start > PATIENCE:
            raise RuntimeError(f"completion {number} did not come within {PATIENCE} cycles")
        here.advance(4096)
    return here.cycles - start


def _send(end, other, opcode, size, count, number=0, inline=False):
    """A list of ``count`` sends from ``end``; buffers alternate within the region as perftest's do."""
    first = last = None
    flags = ibv_send_flags.IBV_SEND_SIGNALED | (ibv_send_flags.IBV_SEND_INLINE if inline else 0)
    for i in range(count):
        at = (number + i) * max(size, 64) % BUFFER
        wr = SendWR(i, opcode, num_sge=1, sg=[SGE(end.mr.buf + at, size, end.mr.lkey)], send_flags=flags)
        if opcode != SendOpcode.SEND:
            wr.set_wr_atomic(other.mr.rkey, other.mr.buf + at, 1)  # the operand counts for atomics only
        if first is None:
            first = wr
        else:
            last.next_wr = wr
        last = wr
    return first


def _receives(end, size, count, number=0):
    first = last = None
    for i in range(count):
        at = (number + i) * max(size, 64) % BUFFER
        wr = RecvWR(i, 1, [SGE(end.mr.buf + at, size, end.mr.lkey)])
        if first is None:
            first = wr
        else:
            last.next_wr = wr
        last = wr
    return first


def throughput(name, size, qps, mtu=MTU):
    """One row: messages of ``size`` bytes on ``qps`` queue pairs, all posted, one doorbell each.

    A short and a long batch are timed from the first doorbell to the last completion, after one that warms the caches;
    the difference is free of latencies at both ends.
    """
    opcode = OPERATIONS[name]
    share = max(4, min(1024, 60_000 * 8 // max(size, 400)) // qps)
    short = max(1, share // 4)
    sizes = {"qps": qps, "depth": share, "cqe": share * qps + 8}
    with End("sim0", REGION, **sizes) as a, End("sim1", REGION, **sizes) as b:
        connect(a, b, mtu=mtu)
        completed = 0

        def batch(each):
            nonlocal completed
            if opcode == SendOpcode.SEND:
                for qp in b.qps:
                    qp.post_recv(_receives(b, size, each))
                world().advance(2000)
            start = world().cycles
            for i, qp in enumerate(a.qps):
                qp.post_send(_send(a, b, opcode, size, each, i * each))
            completed += each * qps
            cycles = _cycle_of(a.cq, completed - 1, start)
            for end in (a, b):  # what completes later, at the receiver, and slots for the next batch
                while end.cq.poll(1024)[0]:
                    pass
            return cycles

        batch(max(short, min(share, BUFFER // size)))  # the whole buffer
        before, after = batch(short), batch(share)
    messages = (share - short) * qps
    cycles = (after - before) / messages
    return {
        "op": name,
        "transport": "RC",
        "size": size,
        "mtu": mtu,
        "qps": qps,
        "messages": messages,
        "cycles_per_message": round(cycles, 2),
        "payload_bytes_per_cycle": round(size / cycles, 3),
        "wire_fraction": round(wire_cycles(opcode, size, mtu, 64) / cycles, 4),
    }


def latency(name, size, inline, push, mtu=MTU):
    """One row: one message at a time, caches warm: one way, or there and back. Its WQE is pushed, as the driver does by
    default, or read by the engine. ``post_cycles``, a part of the latency: what the register writes take.
    """
    opcode = OPERATIONS[name]
    samples, posts = [], []
    with End("sim0", REGION, depth=16, inline=32, push=push) as a, End("sim1", REGION, depth=16) as b:
        connect(a, b, mtu=mtu)
        a.mr.write(b"\xa5" * size, size)  # of inline data that is zero nothing would be written
        for number in range(6):
            if name not in RETURNING:
                b.qp.post_recv(_receives(b, size, 1))
            while world().advance(5000) < 5000:
                pass
            start = world().cycles
            a.qp.post_send(_send(a, b, opcode, size, 1, inline=inline))
            posts.append(world().cycles - start)
            samples.append(_cycle_of((a if name in RETURNING else b).cq, number, start))
            _cycle_of(a.cq, number, start)
            for end in (a, b):
                end.cq.poll(16)
    cycles = sorted(samples[2:])[len(samples[2:]) // 2]
    return {
        "op": name,
        "transport": "RC",
        "size": size,
        "mtu": mtu,
        "qps": 1,
        "inline": inline,
        "push": push,
        "post_cycles": posts[-1],
        "latency_cycles": cycles,
        "cycles_per_message": cycles,
        "payload_bytes_per_cycle": round(size / cycles, 3),
        "wire_fraction": round(wire_cycles(opcode, size, mtu, 64) / cycles, 4),
    }


def round_trip():
    """Cycles from the last beat of a full packet behind a gap to that of the NAK, as the requester's end of
    the wire sees them, read off a capture. A wire that may lose frames stores each before it forwards it.
    """
    import tempfile

    from scapy.utils import PcapNgReader

    with tempfile.TemporaryDirectory() as folder, End("sim0", REGION) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=MTU, timeout=TIMEOUT)
        port = world().adapters[0]
        world().set_faults(Faults(lose=1e-9))
        for number in range(3):
            if number == 2:
                world().capture(Path(folder) / "frames.pcapng")
                port.fault_at(port.counters["sent_frames"] + 1, "lose")
            a.qp.post_send(_send(a, b, OPERATIONS["WRITE"], 8 * MTU, 1))
            _cycle_of(a.cq, number, world().cycles)
        world().capture(None)
        world().set_faults(Faults())
        with PcapNgReader(str(Path(folder) / "frames.pcapng")) as frames:
            seen = [frame for frame in frames if frame.sniffed_on == "adapter0"]
    sent = [float(frame.time) for frame in seen if frame.direction == OUTBOUND]
    naks = [float(f.time) for f in seen if f.direction != OUTBOUND and bytes(f)[AETH] == AethSyndrome.NAK_SEQUENCE]
    return round((naks[0] - sent[2]) * world().clock_hz)


def goodput(loss, size=65536, mtu=MTU, count=400):
    """One row: WRITEs over a wire that loses each frame with this probability, ACKs included; and what an ideal
    go-back-N would reach with the same packets and the same round trip.
    """
    opcode = OPERATIONS["WRITE"]
    world().seed(1)
    with End("sim0", REGION, depth=16, cqe=64) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=mtu, timeout=TIMEOUT)
        world().set_faults(Faults(lose=loss))
        before = a.context.query_counters()["retries"]
        start, posted, done = world().cycles, 0, 0
        while done < count:
            if posted < count and posted - done < 16:
                more = min(count - posted, 16 - posted + done)
                a.qp.post_send(_send(a, b, opcode, size, more, posted))
                posted += more
            number, entries = a.cq.poll(16)
            done += number
            if any(wc.status for wc in entries):
                raise RuntimeError(f"{entries} at a loss of {loss}")
        cycles = (world().cycles - start) / count
        world().set_faults(Faults())
        retries = a.context.query_counters()["retries"] - before
    ideal = wire_cycles(opcode, size, mtu, 64)
    return {
        "op": "WRITE",
        "transport": "RC",
        "size": size,
        "mtu": mtu,
        "qps": 1,
        "messages": count,
        "loss": loss,
        "timeout": TIMEOUT,
        "retries": retries,
        "cycles_per_message": round(cycles, 2),
        "payload_bytes_per_cycle": round(size / cycles, 3),
        "wire_fraction": round(ideal / cycles, 4),
    }


def draw(rows, path):
    """Throughput and message rate against size, and goodput against loss, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right, lossy) = plt.subplots(1, 3, figsize=(17, 4.8), dpi=110)
    for qps, style in ((1, "-"), (16, "--")):
        for name, colour in CURVES.items():
            line = [r for r in rows if (r["op"], r["qps"], r["mtu"]) == (name, qps, MTU)]
            line = [r for r in line if "latency_cycles" not in r and "loss" not in r]
            sizes = [r["size"] for r in line]
            label = f"{name}, {qps} QP{'s' if qps > 1 else ''}"
            rate = [r["payload_bytes_per_cycle"] * 8 * CLOCK_MHZ / 1000 for r in line]
            left.plot(sizes, rate, style, color=colour, marker="o", ms=4, label=label)
            messages = [CLOCK_MHZ / r["cycles_per_message"] for r in line]
            right.plot(sizes, messages, style, color=colour, marker="o", ms=4, label=label)
    ideal = [wire_cycles(SendOpcode.RDMA_WRITE, size, MTU, 64) for size in SIZES]
    wire = {"linestyle": ":", "color": "#555", "label": "wire, WRITE"}
    left.plot(SIZES, [s * 8 * CLOCK_MHZ / 1000 / i for s, i in zip(SIZES, ideal)], **wire)
    right.plot(SIZES, [CLOCK_MHZ / i for i in ideal], **wire)
    for axes, title in ((left, "payload, Gb/s"), (right, "messages, million/s")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(SIZES, [str(s) for s in SIZES], rotation=30)
        axes.set_xlabel("message size, bytes")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    right.set_yscale("log")
    line = [r for r in rows if "loss" in r]
    for key, style, label in (("wire_fraction", "-o", "measured"), ("ideal_fraction", ":s", "ideal go-back-N")):
        lossy.plot([100 * r["loss"] for r in line], [r[key] for r in line], style, ms=4, label=label)
    lossy.set_xscale("symlog", linthresh=0.1)
    lossy.set_xticks([100 * loss for loss in LOSSES], [f"{100 * loss:g}" for loss in LOSSES])
    lossy.set_ylim(0, 1.05)
    lossy.set_xlabel("frames lost, %")
    lossy.set_title("goodput of 64 KiB WRITEs, share of the wire")
    lossy.grid(alpha=0.3)
    lossy.legend(fontsize=8)
    figure.suptitle(f"64-bit engine at {CLOCK_MHZ} MHz, MTU {MTU}, memory latency {rows[0]['memory_latency']} cycles")
    figure.tight_layout()
    figure.savefig(path)


def show(rows, console):
    table = Table(
        title=f"memory read latency {rows[0]['memory_latency']} cycles, {rows[0]['data_width']} bits at {CLOCK_MHZ} MHz"
    )
    table.add_column("operation")
    titles = ("bytes", "MTU", "QPs", "cycles/message", "bytes/cycle", "of the wire", "Gb/s", "Mpps", "latency")
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        suffix = f", {100 * row['loss']:g} % lost" if "loss" in row else ""
        suffix += (" inline" if row.get("inline") else "") + (" pushed" if row.get("push") else "")
        cells = [row["op"] + suffix, *(str(row[k]) for k in ("size", "mtu", "qps"))]
        if "latency_cycles" in row:
            cells += [""] * 5 + [f"{row['latency_cycles']} cycles"]
        else:
            cycles, payload = row["cycles_per_message"], row["payload_bytes_per_cycle"]
            cells += [f"{cycles:.2f}", f"{payload:.3f}", f"{row['wire_fraction']:.1%}"]
            cells += [f"{payload * 8 * CLOCK_MHZ / 1000:.2f}", f"{CLOCK_MHZ / cycles:.3f}", ""]
        table.add_row(*cells)
    console.print(table)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--memory-latency", type=int, default=128)
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"))
    args = parser.parse_args(argv)
    configure(memory_latency=args.memory_latency)
    # Into a file or a pipe the table goes in full.
    console = Console(width=None if sys.stdout.isatty() else 120)
    work = [(throughput, (name, size, qps)) for name in CURVES for qps in (1, 16) for size in SIZES]
    work += [(throughput, (name, 65536, 1, 1024)) for name in CURVES]
    work += [(throughput, ("FETCH_ADD", 8, qps)) for qps in (1, 16)]
    for push in (True, False):
        work += [(latency, (name, 8, inline, push)) for name in ("SEND", "WRITE_WITH_IMM") for inline in (False, True)]
        work += [(latency, (name, 8, False, push)) for name in RETURNING]
    work += [(goodput, (loss,)) for loss in LOSSES]
    rows = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(work))
        for function, arguments in work:
            progress.update(task, description=f"{function.__name__} {' '.join(map(str, arguments))}")
            rows.append(function(*arguments) | {"data_width": 64, "memory_latency": args.memory_latency})
            progress.advance(task)
    trip = round_trip()
    for row in rows:
        if "loss" in row:
            packet = wire_cycles(OPERATIONS["WRITE"], row["mtu"], row["mtu"], 64)
            row |= {"round_trip": trip, "ideal_fraction": round(go_back_n(row["loss"], packet, trip), 4)}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(rows, indent=1) + "\n")
    picture = args.output.with_suffix(".png")
    draw(rows, picture)
    show(rows, console)
    console.print(f"{args.output} and {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
