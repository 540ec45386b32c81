"""What the benchmark measures, a function a kind of row: a dictionary, as ``build/bench.json`` has it.

Two adapters on one wire with 10 GbE framing, exact in cycles: throughput from batches of two lengths, latency from the
first register write of posting to the responder's completion in its memory, all with warm caches.
"""

from pathlib import Path

from verbena.hdl.abi.cqe import CQE
from verbena.hdl.abi.wqe import SendOpcode
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

from .devices import world
from .pair import End, connect
from .ports import Faults
from .wire_limit import wire_cycles

__all__ = [
    "CURVES",
    "LOSSES",
    "LOSSY",
    "MTU",
    "OPERATIONS",
    "RETURNING",
    "SIZES",
    "both_ways",
    "busy_latency",
    "data_width",
    "goodput",
    "latency",
    "round_trip",
    "throughput",
]

SIZES = (8, 64, 256, 1024, 4096, 16384, 65536)
MTU = 4096
OPERATIONS = {
    "WRITE": SendOpcode.RDMA_WRITE,
    "SEND": SendOpcode.SEND,
    "READ": SendOpcode.RDMA_READ,
    "FETCH_ADD": SendOpcode.ATOMIC_FETCH_AND_ADD,
    "WRITE_WITH_IMM": SendOpcode.RDMA_WRITE_WITH_IMM,
}
CURVES = ("WRITE", "SEND", "READ")
RETURNING = ("READ", "FETCH_ADD")
"""Operations that are over when their data is back at the requester."""

LOSSES = {0: 50, 0.001: 400, 0.01: 200, 0.05: 100}
"""Probabilities of loss, and how many messages are sent at each: of their 16 packets each, 6 to 80 are lost."""

PATIENCE = 2_000_000
TIMEOUT = 8
"""Local ACK timeout of the lossy rows, 4.096 us << 8: 4096 cycles of simulated time, or 8 packets. An ACK is asked for
every second packet, so it takes three lost ones to make the requester go back without need."""

OUTBOUND = 2
"""Of the captures: a frame that leaves its port."""

BTH, AETH = 42, 54
"""Where the opcode stands, and an acknowledgement's AETH, its syndrome first."""

READ_REQUEST = 0x0C
LOSSY = ("WRITE", "READ")

REGION = 1 << 20
BUFFER = 1 << 17
"""Messages go round in that much memory, as perftest's do in less: the caches are warm after the first round."""


def data_width():
    """Bits of the engines' buses."""
    return world().model.design.data_width


def _cqe_written(cq, number):
    """Whether completion ``number`` (from 0, since the CQ was made) stands in the ring."""
    slot = number & (1 << cq._log_size) - 1
    entry = CQE.unpack(cq._adapter.memory.read(cq._ring + CQE.size * slot, CQE.size))
    if entry["phase"] == number >> cq._log_size & 1:
        return False
    if entry["status"]:
        raise RuntimeError(f"completion {number} failed: status {entry['status']}, vendor error {entry['syndrome']}")
    return True


def _cycle_of(cq, number, start, step=4096):
    """The cycle, counted from ``start``, in which completion ``number`` of ``cq`` came into memory; up to ``step`` too
    late if the world does not stop at it.
    """
    here = world()
    while not _cqe_written(cq, number):
        if here.cycles - start > PATIENCE:
            raise RuntimeError(f"completion {number} did not come within {PATIENCE} cycles")
        here.advance(step)
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
        "wire_fraction": round(wire_cycles(opcode, size, mtu, data_width()) / cycles, 4),
    }


def both_ways(name, size, qps, mtu=MTU):
    """One row: as :func:`throughput`, with the same on the way back at the same time. A message is one of either
    direction, each of which has a wire of its own; the ACKs of one direction share the wire with the messages of the
    other.
    """
    opcode = OPERATIONS[name]
    share, short = 64, 16
    sizes = {"qps": qps, "depth": share, "cqe": share * qps + 8}
    with End("sim0", REGION, **sizes) as a, End("sim1", REGION, **sizes) as b:
        connect(a, b, mtu=mtu)
        ends, completed = ((a, b), (b, a)), 0

        def batch(each):
            nonlocal completed
            start = world().cycles
            for i in range(qps):
                for here, there in ends:
                    here.qps[i].post_send(_send(here, there, opcode, size, each, i * each))
            completed += each * qps
            cycles = max(_cycle_of(here.cq, completed - 1, start) for here, _ in ends)
            for here, _ in ends:
                while here.cq.poll(1024)[0]:
                    pass
            return cycles

        batch(share)
        before, sent = batch(short), a.context.query_counters()
        after, now = batch(share), a.context.query_counters()
    cycles = (after - before) / ((share - short) * qps)
    return {
        "op": f"{name}, both ways",
        "transport": "RC",
        "size": size,
        "mtu": mtu,
        "qps": qps,
        "messages": (share - short) * qps,
        "messages_per_ack": round(share * qps / (now["tx_acks"] - sent["tx_acks"]), 2),
        "cycles_per_message": round(cycles, 2),
        "payload_bytes_per_cycle": round(size / cycles, 3),
        "wire_fraction": round(wire_cycles(opcode, size, mtu, data_width()) / cycles, 4),
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
        "wire_fraction": round(wire_cycles(opcode, size, mtu, data_width()) / cycles, 4),
    }


def busy_latency(mtu, size=65536):
    """One row: an 8-byte SEND from an adapter that answers its peer's READs of ``size`` bytes meanwhile, 16 of them
    outstanding; the worst of 16, at different moments. Its WQE is pushed: one that is read waits behind payload, too.
    """
    opcode = OPERATIONS["SEND"]
    samples = []
    with End("sim0", REGION) as a, End("sim1", REGION) as b, End("sim0", REGION) as c, End("sim1", REGION) as d:
        connect(a, b, mtu=mtu)
        connect(c, d, mtu=mtu)
        d.qp.post_recv(_receives(d, 8, 17))
        b.qp.post_send(_send(b, a, OPERATIONS["READ"], size, 16))
        _cycle_of(b.cq, 1, world().cycles)
        for number in range(17):  # the first with cold caches
            start = world().cycles
            c.qp.post_send(_send(c, d, opcode, 8, 1))
            samples.append(_cycle_of(d.cq, number, start, 8))
            _cycle_of(c.cq, number, start)
            c.cq.poll(1)  # what is posted alone, and with all completions seen, is pushed
            end = world().cycles + 600 + 37 * number
            while world().cycles < end:
                world().advance(end - world().cycles)
        if _cqe_written(b.cq, 15):
            raise RuntimeError("the READs were over before the SENDs")
    cycles = max(samples[1:])
    return {
        "op": "SEND",
        "transport": "RC",
        "size": 8,
        "mtu": mtu,
        "qps": 1,
        "under_reads": size,
        "latency_cycles": cycles,
        "cycles_per_message": cycles,
        "payload_bytes_per_cycle": round(8 / cycles, 3),
        "wire_fraction": round(wire_cycles(opcode, 8, mtu, data_width()) / cycles, 4),
    }


def round_trip(name="WRITE"):
    """Cycles from the last beat of a full packet behind a gap to that of what asks for the lost one, read off a capture
    at the end that sends the payload: of WRITEs the requester's, and a NAK; of READs the responder's, and the READ that
    is sent again. A wire that may lose frames stores each before it forwards it.
    """
    import tempfile

    from scapy.utils import PcapNgReader
    from verbena.hdl.transport.common.aeth import AethSyndrome

    sender = 1 if name == "READ" else 0
    with tempfile.TemporaryDirectory() as folder, End("sim0", REGION) as a, End("sim1", REGION) as b:
        connect(a, b, mtu=MTU, timeout=TIMEOUT)
        port = world().adapters[sender]
        world().set_faults(Faults(lose=1e-9))
        for number in range(3):
            if number == 2:
                world().capture(Path(folder) / "frames.pcapng", frames="both")
                port.fault_at(port.counters["sent_frames"] + 1, "lose")
            a.qp.post_send(_send(a, b, OPERATIONS[name], 8 * MTU, 1))
            _cycle_of(a.cq, number, world().cycles)
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


def goodput(name, loss, count, size=65536, mtu=MTU):
    """One row: WRITEs or READs over a wire that loses each frame with this probability, ACKs and requests included; and
    what an ideal go-back-N would reach with the same packets and the same round trip.
    """
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
                a.qp.post_send(_send(a, b, opcode, size, more, posted))
                posted += more
            number, entries = a.cq.poll(16)
            done += number
            if any(wc.status for wc in entries):
                raise RuntimeError(f"{entries} at a loss of {loss}")
        cycles = (world().cycles - start) / count
        world().set_faults(Faults())
        retries = a.context.query_counters("retries")["retries"] - before
    ideal = wire_cycles(opcode, size, mtu, data_width())
    return {
        "op": name,
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
