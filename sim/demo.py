"""The main job, end to end: a file crosses from one adapter's memory to another's, and back.

``python -m verbena.sim.demo [FILE]``: two simulated adapters on one wire; the file goes by SEND to posted receives and
by RDMA WRITE with immediate, at several message sizes, in both directions.
"""

import argparse
import hashlib
import sys
from pathlib import Path

from verbena.hdl.abi.wqe import SendOpcode
from verbena.hdl.config import DATA_WIDTHS
from verbena.sw.tools.command import command_line, first_line, plain
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wc_status
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .console import BarColumn, Console, Progress, Table, TextColumn, TimeRemainingColumn, TransferSpeedColumn, box
from .devices import configure, world
from .pair import End, connect
from .ticks import tick_text
from .wire_limit import wire_cycles

__all__ = ["main"]

CLOCK_MHZ = 156.25
"""Nominal clock: 64 bits at 156.25 MHz are 10 Gb/s, 512 bits 80 Gb/s."""

MTU = 4096
SIZES = (1024, 16384, 262144)
DEPTH = 256
BATCH = 64
OPERATIONS = {"SEND": SendOpcode.SEND, "WRITE_IMM": SendOpcode.RDMA_WRITE_WITH_IMM}
DEFAULT_FILE = Path(__file__).resolve().parent.parent / "docs" / "architecture.png"


class Transfer:
    """One pass of the file: ``sender`` to ``receiver`` in messages of ``size`` bytes."""

    def __init__(self, name, sender, receiver, length, size):
        self.opcode = OPERATIONS[name]
        self.sender, self.receiver = sender, receiver
        self.length = length
        self.chunks = [(at, min(size, length - at)) for at in range(0, length, size)] or [(0, 0)]
        self.posted_sends = self.posted_receives = self.received = self.completed = 0

    def _post_receives(self):
        while self.posted_receives < len(self.chunks) and self.posted_receives - self.received < DEPTH:
            at, size = self.chunks[self.posted_receives]
            here = self.receiver
            sges = [SGE(here.mr.buf + at, size, here.mr.lkey)] if self.opcode == SendOpcode.SEND else []
            here.qp.post_recv(RecvWR(self.posted_receives, len(sges), sges))
            self.posted_receives += 1

    def _post_sends(self):
        room = min(len(self.chunks), self.posted_receives) - self.posted_sends
        room = min(room, DEPTH - (self.posted_sends - self.completed), BATCH)
        first = last = None
        for number in range(self.posted_sends, self.posted_sends + room):
            at, size = self.chunks[number]
            here, there = self.sender, self.receiver
            wr = SendWR(
                number,
                self.opcode,
                num_sge=1,
                imm_data=number,
                sg=[SGE(here.mr.buf + at, size, here.mr.lkey)],
                send_flags=ibv_send_flags.IBV_SEND_SIGNALED,
            )
            wr.set_wr_rdma(there.mr.rkey, there.mr.buf + at)
            if first is None:
                first = wr
            else:
                last.next_wr = wr
            last = wr
        if first is not None:
            self.sender.qp.post_send(first)
            self.posted_sends += room

    def run(self, progress):
        """Moves everything; ``progress(bytes)`` is called as receives complete.

        ``RuntimeError`` on a failed completion.
        """
        while self.received < len(self.chunks) or self.completed < len(self.chunks):
            self._post_receives()
            self._post_sends()
            moved = 0
            for wc in self.receiver.cq.poll(BATCH)[1]:
                self._check(wc, "receive")
                if wc.wr_id != self.received or wc.byte_len != self.chunks[wc.wr_id][1]:
                    raise RuntimeError(f"completion {wc} where receive {self.received} should be")
                if self.opcode == SendOpcode.RDMA_WRITE_WITH_IMM and wc.imm_data != wc.wr_id:
                    raise RuntimeError(f"immediate {wc.imm_data} of message {wc.wr_id}")
                moved += wc.byte_len
                self.received += 1
            for wc in self.sender.cq.poll(BATCH)[1]:
                self._check(wc, "send")
                self.completed = wc.wr_id + 1
            progress(moved)

    @staticmethod
    def _check(wc, what):
        if wc.status:
            status = ibv_wc_status(wc.status).name
            raise RuntimeError(f"{what} {wc.wr_id} failed: {status}, vendor error {wc.vendor_err}")


def run(content, console, sizes=SIZES):
    """Moves ``content`` every way; returns rows for the table and whether all copies were right."""
    length = len(content)
    digest = hashlib.sha256(content).digest()
    rows, good = [], True
    width = world().model.design.data_width
    with (
        End("sim0", length, depth=DEPTH, cqe=4 * DEPTH) as a,
        End("sim1", length, depth=DEPTH, cqe=4 * DEPTH) as b,
    ):
        connect(a, b, mtu=MTU, psn=0xFFFFF0)
        columns = (TextColumn("{task.description:24}"), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            for name in OPERATIONS:
                for size in sizes:
                    for sender, receiver, arrow in ((a, b, "0→1"), (b, a, "1→0")):
                        sender.mr.write(content, length)
                        receiver.mr.write(bytes(length), length)
                        task = progress.add_task(f"{name} {size} {arrow}", total=max(1, length))
                        transfer = Transfer(name, sender, receiver, length, size)
                        packets = sender.context.query_counters()
                        start = world().cycles
                        transfer.run(lambda n, task=task: progress.advance(task, n))
                        cycles = world().cycles - start
                        after = sender.context.query_counters()
                        sent = after["tx_packets"] - packets["tx_packets"] - after["tx_acks"] + packets["tx_acks"]
                        copy = receiver.mr.read(length, 0)
                        right = hashlib.sha256(copy).digest() == digest
                        good &= right
                        ideal = sum(wire_cycles(transfer.opcode, n, MTU, width) for _, n in transfer.chunks)
                        messages, share = len(transfer.chunks), ideal / cycles
                        rows.append((name, arrow, size, length, messages, sent, cycles, share, right))
                        progress.remove_task(task)
    return rows, good


def _size(size):
    return f"{size >> 10} KiB" if size % 1024 == 0 else str(size)


def show(rows, console):
    """The table of what was measured."""
    width = world().model.design.data_width
    title = f"{width}-bit engine, MTU {MTU}, nominal clock {CLOCK_MHZ} MHz, memory latency 128 cycles"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("operation", no_wrap=True)
    table.add_column("way", no_wrap=True)
    for title in ("message", "bytes", "msgs", "packets", "cycles", "µs", "Gb/s", "of wire", "SHA-256"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, arrow, size, length, messages, sent, cycles, share, right in rows:
        micro = cycles / CLOCK_MHZ
        rate = length * 8 / micro / 1000
        cells = (_size(size), length, messages, sent, cycles, f"{micro:.1f}", f"{rate:.2f}", f"{share:.1%}")
        table.add_row(name, arrow, *map(str, cells), "equal" if right else "[red]DIFFERS")
    console.print(table)


@command_line
def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m verbena.sim.demo", description=first_line(__doc__))
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--capture", type=Path, default=Path("build/demo.pcapng"))
    parser.add_argument("--data-width", type=int, choices=DATA_WIDTHS, default=64, help="of the engines, in bits")
    args = parser.parse_args(argv)
    configure(data_width=args.data_width)
    # Into a file or a pipe the table goes in full.
    console = Console(width=None if sys.stdout.isatty() else 120)
    try:
        content = args.file.read_bytes()
        args.capture.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(content).hexdigest()[:16]
        console.print(f"{args.file.name}: {len(content)} bytes, SHA-256 {digest}…", markup=False)
        with console.status("building the compiled model (once)"):
            world().capture(args.capture)
        rows, good = run(content, console)
    except OSError as error:
        console.print(f"verbena demo: {plain(error)}", style="red", markup=False)
        return 1
    except RuntimeError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    show(rows, console)
    console.print(tick_text(world().ports["sim0"].tick, world().clock_hz), highlight=False)
    world().close()
    console.print(f"frames: {args.capture} (open it with Wireshark)", markup=False)
    if not good:
        console.print("[red]a copy differs from the file")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
