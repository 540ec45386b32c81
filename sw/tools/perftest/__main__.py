"""``python -m verbena.sw.tools.perftest TEST [options] [host]``: perftest's programs.

A server, or with a host the client of one; its peer may be perftest on any machine. With ``--peer`` both run here, on
two devices of one wire.
"""

import contextlib
import json
import sys
from pathlib import Path

from ...cli import TESTS
from ...cm.ip_header import address_text
from ...verbs.limits import MAX_RD_ATOMIC
from ..command import Parser, command_line, port_number, status_of
from ..endpoint import clock_text, open_device
from ..exchange.channel import Listener
from ..session import run
from . import report
from .kinds import KINDS
from .options import CONNECTIONS, Options
from .play import PORT, client, managed_server, server
from .progress import Progress

__all__ = ["main"]

ATOMICS = ("FETCH_AND_ADD", "CMP_AND_SWAP", "CMP_AND_SWP")
"""perftest has one of the last two, from version to version."""

ROLES = "a server, or with a host the client of one."


def _parser(test):
    what = f"Measures {TESTS[f'ib_{test}'][1]}, as perftest does" if test else "perftest's programs"
    parser = Parser(prog=f"ib_{test}" if test else "verbena-perftest", description=f"{what}: {ROLES}")
    if test is None:
        parser.add_argument("test", choices=sorted(KINDS), metavar="TEST", help=", ".join(sorted(KINDS)))
    parser.add_argument("host", nargs="?", help="the server's address; without it this is the server")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    parser.add_argument("-p", "--port", type=port_number, default=PORT, help="TCP port of the server (%(default)s)")
    parser.add_argument("-x", "--gid-index", type=int, help="index of the GID (0)")
    parser.add_argument(
        "-6", "--ipv6", action="store_true", help="the link-local IPv6 address: -x 1, unless -x is there"
    )
    parser.add_argument("-s", "--size", type=int, help="bytes of a message (bandwidth: 65536, latency: 2)")
    parser.add_argument(
        "-n", "--iters", dest="iterations", type=int, help="messages of each queue pair (1000, write_bw: 5000)"
    )
    parser.add_argument("-q", "--qp", dest="qps", type=int, default=1, help="queue pairs (%(default)s)")
    parser.add_argument("-m", "--mtu", type=int, help="path MTU, 256 to 4096 bytes (the port's)")
    parser.add_argument("-b", "--bidirectional", action="store_true", help="both sides send")
    parser.add_argument("-a", "--all", dest="all_sizes", action="store_true", help="2, 4, ... 2^23 bytes")
    parser.add_argument("-c", "--connection", choices=CONNECTIONS, default="RC", help="%(choices)s (%(default)s)")
    parser.add_argument("-e", "--events", action="store_true", help="sleep until an event tells of completions")
    parser.add_argument("-i", "--ib-port", type=int, choices=(1,), default=1, help="there is only port 1")
    parser.add_argument(
        "-l", "--post_list", type=int, default=1, help="messages that are posted at a time (%(default)s)"
    )
    parser.add_argument("-D", "--duration", type=float, help="so many seconds of the device's time, such as 0.001")
    parser.add_argument("-N", "--noPeak", dest="peak", action="store_false", help="do not look for the peak")
    parser.add_argument("-F", "--CPU-freq", action="store_true", help="taken; the device's time needs no CPU's")
    parser.add_argument("-H", "--report-histogram", dest="histogram", action="store_true", help="each time, sorted")
    parser.add_argument("-U", "--report-unsorted", dest="unsorted", action="store_true", help="each time, as it came")
    parser.add_argument("-C", "--report-cycles", dest="cycles", action="store_true", help="cycles of the device")
    parser.add_argument("--out_json", action="store_true", help="write the results as JSON, too")
    parser.add_argument("--out_json_file", metavar="FILE", default="perftest_out.json", help="default: %(default)s")
    parser.add_argument("-t", "--tx-depth", type=int, help="messages under way of each queue pair (128)")
    parser.add_argument("-r", "--rx-depth", type=int, default=512, help="receives that are posted (%(default)s)")
    parser.add_argument("-Q", "--cq-mod", type=int, help="one completion for so many messages")
    parser.add_argument("-I", "--inline_size", dest="inline", type=int, help="longest message that goes within its WQE")
    parser.add_argument(
        "-u", "--qp-timeout", dest="timeout", type=int, default=14, help="4.096 us * 2^TIMEOUT (%(default)s)"
    )
    parser.add_argument(
        "-o", "--outs", dest="outstanding", type=int, default=MAX_RD_ATOMIC, help="READs under way (%(default)s)"
    )
    parser.add_argument(
        "-A", "--atomic_type", choices=ATOMICS, default=ATOMICS[0], metavar="TYPE", help=f"{ATOMICS[0]} or {ATOMICS[1]}"
    )
    parser.add_argument(
        "-R",
        "--rdma_cm",
        action="store_true",
        help="rdma_cm connects the queue pairs, with times and MTU of its own",
    )
    parser.add_argument("--use-srq", action="store_true", help="one receive queue of --rx-depth for all queue pairs")
    parser.add_argument("-S", "--sl", dest="service_level", type=int, default=0, help="service level (%(default)s)")
    parser.add_argument("--tclass", dest="traffic_class", type=int, default=0, help="traffic class (%(default)s)")
    parser.add_argument("--report_gbits", dest="gbits", action="store_true", help="10^9 bits a second, not MiB")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


@command_line
def main(argv=None, *, test=None):
    """Command line; ``test`` is the first argument if that is not among them."""
    args = vars(_parser(test).parse_intermixed_args(argv))
    kind, host, port = KINDS[args.pop("test", test)], args.pop("host"), args.pop("port")
    device, peer = args.pop("ib_dev"), args.pop("peer")
    for taken in ("ib_port", "CPU_freq"):
        del args[taken]
    ipv6, index = args.pop("ipv6"), args.pop("gid_index")
    args["gid_index"] = int(ipv6) if index is None else index
    wanted, file = args.pop("out_json"), args.pop("out_json_file")
    options = Options(compare_and_swap=args.pop("atomic_type") != ATOMICS[0], **args)

    def measure():
        options.resolved(kind)
        # A server listens first, so that a client finds it who has waited for this device.
        listens = host is None and peer is None and not options.rdma_cm
        with Listener(port) if listens else contextlib.nullcontext() as listener:
            context = open_device(device)
            progress = Progress.of(kind, options.resolved(kind), context)
            ends = {"progress": progress, "connected": progress.announce if progress else lambda: None}
            if peer is not None and options.rdma_cm:
                outcome = _both_managed(context, kind, options, port, peer, **ends)
            elif peer is not None:
                outcome = _both(context, kind, options, peer, **ends)
            elif host is not None:
                (outcome,) = run(client(context, kind, options, host, port, **ends))
            elif options.rdma_cm:
                (outcome,) = run(managed_server(context, kind, options, port, **ends))
            else:
                (outcome,) = run(server(context, kind, options, listener, **ends))
        if wanted:
            _save(Path(file), context, kind, options, outcome)

    return status_of(measure)


def _both(context, kind, options, peer, **ends):
    """Both sides in this program, the server on the device ``peer``; what the client measured."""
    with Listener(0, "127.0.0.1") as listener, open_device(peer) as other:
        near = client(context, kind, options, "127.0.0.1", listener.port, **ends)
        far = server(other, kind, options, listener, tell=lambda line: print(f"server:{line}"))
        return run(far, near)[1]


def _both_managed(context, kind, options, port, peer, **ends):
    """As :func:`_both`; the connection manager connects them, by the server's address of that index."""
    with open_device(peer) as other:
        far = managed_server(other, kind, options, port, tell=lambda line: print(f"server:{line}"))
        near = client(context, kind, options, address_text(int(other.query_gid(1, options.gid_index))), port, **ends)
        return run(far, near)[1]


def _save(path, context, kind, options, outcome):
    """Writes the results as JSON: ``results`` is a dictionary, a list of them for all sizes, null if the other side
    alone has measured.
    """
    options = options.resolved(kind)
    if isinstance(outcome, list):
        results = [report.record(each, options) for each in outcome]
    else:
        results = None if outcome is None else report.record(outcome, options)
    info = {
        "test": report.title(kind, options),
        "Device": context.name,
        "Number_of_qps": options.qps,
        "Connection_type": options.connection,
        "TX_depth": options.tx_depth,
        "CQ_Moderation": options.cq_mod,
        "GID_index": options.gid_index,
        "Times": clock_text(context) or "the device's",
        "unit": report.unit(kind, options),
    }
    path.write_text(json.dumps({"test_info": info, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
