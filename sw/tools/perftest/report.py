"""What a test prints, in perftest's form. Times are the device's: in simulation, simulated ones."""

from ..exchange.perftest import Report
from .kinds import Verb

__all__ = ["address", "header", "results", "title"]

LINE = "-" * 87
MIB = 1 << 20


def title(kind, options):
    """The name of a test, as its header has it."""
    name = kind.verb.value
    if kind.verb is Verb.ATOMIC:
        name += " CMP_AND_SWAP" if options.compare_and_swap else " FETCH_AND_ADD"
    if kind.latency:
        return f"{name} Latency Test"
    return f"{name} {'Bidirectional ' if options.bidirectional else ''}BW Test"


def header(kind, options, device, mtu, *, server):
    """Lines that tell a side what is going to be measured; ``mtu`` is the one agreed on, in bytes."""
    yield LINE
    yield f"                    {title(kind, options)}"
    yield f" Dual-port       : OFF\t\tDevice         : {device}"
    yield f" Number of qps   : {options.qps}\t\tTransport type : IB"
    yield " Connection type : RC\t\tUsing SRQ      : OFF"
    if not server or options.bidirectional:
        yield f" TX depth        : {options.tx_depth}"
    if kind.verb is Verb.SEND and (server or options.bidirectional):
        yield f" RX depth        : {options.rx_depth}"
    if not kind.latency:
        yield f" CQ Moderation   : {options.cq_mod}"
    yield f" Mtu             : {mtu}[B]"
    yield " Link type       : Ethernet"
    yield f" GID index       : {options.gid_index}"
    if kind.reading:
        yield f" Outstand reads  : {options.outstanding}"
    else:
        yield f" Max inline data : {options.inline}[B]"
    yield " rdma_cm QPs\t : OFF"
    yield " Data ex. method : Ethernet"
    yield " Times           : the device's"
    yield LINE


def address(side, kind, key):
    """Two lines for the queue pair of a side, "local" or "remote"."""
    text = f" {side} address: LID {key.lid:04x} QPN {key.qpn:#06x} PSN {key.psn:#06x}"
    if kind.verb is Verb.READ:
        text += f" OUT {key.out_reads:#04x}"
    if kind.verb in (Verb.READ, Verb.WRITE):
        text += f" RKey {key.rkey:#08x} VAddr {key.vaddr:#016x}"
    yield text
    yield " GID: " + ":".join(f"{byte:02d}" for byte in key.gid)


def results(outcome, options):
    """The table for a :class:`.Report` or a :class:`.latency.Latency`."""
    yield LINE
    if isinstance(outcome, Report):
        yield from _bandwidth(outcome, options.gbits)
    else:
        yield from _latency(outcome)
    yield LINE


def _bandwidth(report, gbits):
    unit, scale = ("Gb/sec", MIB * 8 / 1e9) if gbits else ("MiB/sec", 1)
    yield f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    yield (
        f" {report.size:<7}    {report.iterations:<10}       {report.peak * scale:<7.2f}            "
        f"{report.average * scale:<7.2f}\t\t     {report.message_rate:<7.6f}"
    )


def _latency(latency):
    yield (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
        "99% percentile[usec]   99.9% percentile[usec] "
    )
    yield (
        f" {latency.size:<7} {latency.iterations}          {latency.least:<7.2f}        {latency.most:<7.2f}      "
        f"{latency.typical:<7.2f}  \t       {latency.average:<7.2f}     \t{latency.deviation:<7.2f}\t\t"
        f"{latency.percentile_99:<7.2f} \t\t{latency.percentile_99_9:<7.2f}"
    )
