"""What a test prints, in perftest's form. Times are the device's: in simulation, simulated ones."""

from ..exchange.perftest import Report
from .kinds import Verb

__all__ = ["LINE", "address", "columns", "header", "record", "row", "title", "unit"]

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


def header(kind, options, device, mtu, *, server, times=None):
    """Lines that tell a side what is going to be measured; ``mtu`` is the one agreed on, in bytes; ``times`` tells what
    the device's times are, if they are not true ones.
    """
    yield LINE
    yield f"                    {title(kind, options)}"
    yield f" Dual-port       : OFF\t\tDevice         : {device}"
    yield f" Number of qps   : {options.qps}\t\tTransport type : IB"
    yield f" Connection type : {options.connection}\t\tUsing SRQ      : {'ON' if options.use_srq else 'OFF'}"
    if not server or options.bidirectional:
        yield f" TX depth        : {options.tx_depth}"
    if kind.verb is Verb.SEND and (server or options.bidirectional):
        yield f" RX depth        : {options.rx_depth}"
    if options.post_list > 1:
        yield f" Post List       : {options.post_list}"
    if not kind.latency:
        yield f" CQ Moderation   : {options.cq_mod}"
    yield f" Mtu             : {mtu}[B]"
    yield " Link type       : Ethernet"
    yield f" GID index       : {options.gid_index}"
    if kind.reading:
        yield f" Outstand reads  : {options.outstanding}"
    else:
        yield f" Max inline data : {options.inline}[B]"
    yield f" rdma_cm QPs\t : {'ON' if options.rdma_cm else 'OFF'}"
    yield f" Data ex. method : {'rdma_cm' if options.rdma_cm else 'Ethernet'}"
    yield " Times           : " + (times or "the device's")
    yield LINE


def _hexadecimal(value, width):
    """As C's ``%#0`` prints it: 0 has no prefix."""
    return f"{value:#0{width}x}" if value else "0" * width


def address(side, kind, key):
    """Two lines for the queue pair of a side, "local" or "remote"."""
    text = f" {side} address: LID {_hexadecimal(key.lid, 4)} QPN {_hexadecimal(key.qpn, 6)}"
    text += f" PSN {_hexadecimal(key.psn, 6)}"
    if kind.verb is Verb.READ:
        text += f" OUT {_hexadecimal(key.out_reads, 4)}"
    if kind.verb is not Verb.SEND:
        text += f" RKey {_hexadecimal(key.rkey, 8)} VAddr {_hexadecimal(key.vaddr, 16)}"
    yield text
    yield " GID: " + ":".join(f"{byte:02d}" for byte in key.gid)


def unit(kind, options):
    """The unit of what is told."""
    if kind.latency:
        return "cycles" if options.cycles else "usec"
    return "Gb/sec" if options.gbits else "MiB/sec"


def columns(kind, options):
    """The line above the table."""
    u = unit(kind, options)
    if not kind.latency:
        return f" #bytes     #iterations    BW peak[{u}]    BW average[{u}]   MsgRate[Mpps]"
    if options.duration is not None:
        return f" #bytes        #iterations       t_avg[{u}]    tps average"
    return (
        f" #bytes #iterations    t_min[{u}]    t_max[{u}]  t_typical[{u}]    t_avg[{u}]    "
        f"t_stdev[{u}]   99% percentile[{u}]   99.9% percentile[{u}] "
    )


def row(outcome, options):
    """Lines of the table for a :class:`.Report` or a :class:`.latency.Latency`."""
    if isinstance(outcome, Report):
        yield _bandwidth(outcome, _scale(options))
    else:
        yield from _samples(outcome, options)
        yield _latency(outcome) if options.duration is None else _lasting(outcome)


def record(outcome, options):
    """The same as a dictionary, with perftest's keys."""
    first = {"MsgSize": outcome.size, "n_iterations": outcome.iterations}
    if isinstance(outcome, Report):
        scale = _scale(options)
        rates = {"BW_peak": outcome.peak * scale, "BW_average": outcome.average * scale}
        return first | rates | {"MsgRate": outcome.message_rate}
    if options.duration is not None:
        return first | {"t_avg": outcome.mean, "tps_average": outcome.rate}
    return first | {
        "t_min": outcome.least,
        "t_max": outcome.most,
        "t_typical": outcome.typical,
        "t_avg": outcome.average,
        "t_stdev": outcome.deviation,
        "percentile_99": outcome.percentile_99,
        "percentile_99.9": outcome.percentile_99_9,
    }


def _scale(options):
    """What a MiB a second is in the unit of the report."""
    return MIB * 8 / 1e9 if options.gbits else 1


def _bandwidth(report, scale):
    return (
        f" {report.size:<7}    {report.iterations:<10}       {report.peak * scale:<7.2f}            "
        f"{report.average * scale:<7.2f}\t\t     {report.message_rate:<7.6f}"
    )


def _samples(latency, options):
    for wanted, samples in ((options.unsorted, latency.samples), (options.histogram, sorted(latency.samples))):
        if wanted:
            yield f"#, {'cycles' if options.cycles else 'usec'}"
            yield from (f"{number}, {value:g}" for number, value in enumerate(samples, 1))


def _latency(latency):
    return (
        f" {latency.size:<7} {latency.iterations}          {latency.least:<7.2f}        {latency.most:<7.2f}      "
        f"{latency.typical:<7.2f}  \t       {latency.average:<7.2f}     \t{latency.deviation:<7.2f}\t\t"
        f"{latency.percentile_99:<7.2f} \t\t{latency.percentile_99_9:<7.2f}"
    )


def _lasting(latency):
    """Of a duration: the mean of all times, and how many messages there and back a second has."""
    return f" {latency.size:<7}       {latency.iterations}            {latency.mean:<7.2f}        {latency.rate:<7.2f}"
