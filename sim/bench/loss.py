"""A wire that loses frames: goodput, and the cycles that one loss costs."""

import tempfile
from pathlib import Path

from verbena.sim.devices import world
from verbena.sim.pair import End, connect
from verbena.sim.ports import Faults
from verbena.sim.wire_limit import wire_cycles

from .batch import MTU, OPERATIONS, REGION, cycle_of, data_width, drain, figures, sends

__all__ = ["LOSSES", "LOSSY", "goodput", "one_loss", "round_trip"]

LOSSES = {0: 50, 0.001: 400, 0.01: 200, 0.05: 100}
"""Probabilities of loss, and how many messages are sent at each: of their 16 packets each, 6 to 80 are lost."""

TIMEOUT = 8
"""Local ACK timeout of the lossy rows, 4.096 us << 8: 4096 cycles of simulated time, or 8 packets. An ACK is asked for
every second packet, so it takes three lost ones to make the requester go back without need."""

OUTBOUND = 2
"""Of the captures: a frame that leaves its port."""

BTH, AETH = 42, 54
"""Where the opcode stands, and an acknowledgement's AETH, its syndrome first."""

READ_REQUEST = 0x0C
LOSSY = ("WRITE", "READ")

NOTHING = Faults(lose=1e-9)
"""A wire that may lose frames stores each before it forwards it, also where it loses none."""


def round_trip(name="WRITE", size=8 * MTU, count=1, mtu=MTU):
    """Cycles from the last beat of the packet behind a gap to that of what asks for the lost one, read off a capture
    at the end that sends the payload: of WRITEs the requester's, and a NAK; of READs the responder's, and the READ that
    is sent again. ``count`` messages of ``size`` bytes are sent at once; the second frame is lost.
    """
    from scapy.utils import PcapNgReader
    from verbena.hdl.transport.common.aeth import AethSyndrome

    sender = 1 if name == "READ" else 0
    with tempfile.TemporaryDirectory() as folder, End("sim0", REGION) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=mtu, timeout=TIMEOUT)
        port = world().adapters[sender]
        world().set_faults(NOTHING)
        for number in range(3):
            if number == 2:
                world().capture(Path(folder) / "frames.pcapng", frames="both")
                port.fault_at(port.counters["sent_frames"] + 1, "lose")
            a.qp.post_send(sends(a, b, OPERATIONS[name], size, count))
            cycle_of(a.cq, (number + 1) * count - 1, world().cycles)
        world().capture(None)
        world().set_faults(Faults())
        with PcapNgReader(str(Path(folder) / "frames.pcapng")) as frames:
            seen = [frame for frame in frames if frame.sniffed_on == f"adapter{sender}"]
    sent = [float(frame.time) for frame in seen if frame.direction == OUTBOUND]
    heard = [(float(frame.time), bytes(frame)) for frame in seen if frame.direction != OUTBOUND]
    if name == "READ":
        asked = [time for time, frame in heard if frame[BTH] == READ_REQUEST][1:]
    else:
        asked = [time for time, frame in heard if frame[AETH] == AethSyndrome.NAK_SEQUENCE]
    return round((asked[0] - sent[2]) * world().clock_hz)


def one_loss(size=1024, count=96, lost=(24, 33, 42)):
    """One row: what the loss of one WRITE costs among ``count`` of ``size`` bytes, each a packet, that are posted at
    once; the mean over which of them is lost. ``ideal_cost_cycles``: of a go-back-N that sends in vain what fits the
    round trip.
    """
    opcode = OPERATIONS["WRITE"]
    with End("sim0", REGION, depth=count) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=MTU, timeout=TIMEOUT)
        world().set_faults(NOTHING)
        port, taken = world().adapters[0], []
        for number, victim in enumerate((None, None, *lost)):  # the first warms the caches
            if victim is not None:
                port.fault_at(port.counters["sent_frames"] + victim, "lose")
            start = world().cycles
            a.qp.post_send(sends(a, b, opcode, size, count))
            taken.append(cycle_of(a.cq, (number + 1) * count - 1, start))
            drain(a)
        world().set_faults(Faults())
    costs = [cycles - taken[1] for cycles in taken[2:]]
    packet, trip = wire_cycles(opcode, size, MTU, data_width()), round_trip("WRITE", size, 16)
    more = {"messages": count, "timeout": TIMEOUT, "lost_messages": 1, "round_trip": trip}
    more |= {"cost_cycles": round(sum(costs) / len(costs)), "ideal_cost_cycles": round(2 * packet + trip)}
    return figures("WRITE", size, MTU, 1, taken[1] / count, **more)


def goodput(name, loss, count, size=65536, mtu=MTU):
    """One row: WRITEs or READs over a wire that loses each frame with this probability, ACKs and requests included."""
    opcode = OPERATIONS[name]
    world().seed(1)
    with End("sim0", REGION, depth=16, cqe=64) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=mtu, timeout=TIMEOUT)
        world().set_faults(Faults(lose=loss))
        before = a.context.query_counters("retries")["retries"]
        start, posted, done = world().cycles, 0, 0
        while done < count:
            if posted < count and posted - done < 16:
                more = min(count - posted, 16 - posted + done)
                a.qp.post_send(sends(a, b, opcode, size, more, posted))
                posted += more
            number, entries = a.cq.poll(16)
            done += number
            if any(wc.status for wc in entries):
                raise RuntimeError(f"{entries} at a loss of {loss}")
        cycles = (world().cycles - start) / count
        world().set_faults(Faults())
        retries = a.context.query_counters("retries")["retries"] - before
    more = {"messages": count, "loss": loss, "timeout": TIMEOUT, "retries": retries}
    return figures(name, size, mtu, 1, cycles, **more)
