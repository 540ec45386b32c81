"""``python -m verbena.sw.tools.perftest TEST [options] [host]``: perftest's programs.

A server, or with a host the client of one; its peer may be perftest on any machine. With ``--peer`` both run here, on
two devices of one wire.
"""

import sys

from ...verbs.limits import MAX_RD_ATOMIC
from ...verbs.pyverbs_error import PyverbsError
from ..command import Parser
from ..endpoint import open_device
from ..exchange.channel import Listener
from ..session import ToolError, run
from .kinds import KINDS
from .options import Options
from .play import PORT, client, server

__all__ = ["main"]

DESCRIPTION = "perftest's programs: a server, or with a host the client of one."


def _parser(test):
    parser = Parser(prog=f"ib_{test}" if test else "verbena-perftest", description=DESCRIPTION)
    if test is None:
        parser.add_argument("test", choices=sorted(KINDS))
    parser.add_argument("host", nargs="?", help="the server's address; without it this is the server")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    parser.add_argument("-p", "--port", type=int, default=PORT)
    parser.add_argument("-x", "--gid-index", type=int, default=0)
    parser.add_argument("-s", "--size", type=int, help="bytes of a message")
    parser.add_argument("-n", "--iters", dest="iterations", type=int, help="messages of each queue pair")
    parser.add_argument("-q", "--qp", dest="qps", type=int, default=1, help="queue pairs")
    parser.add_argument("-m", "--mtu", type=int)
    parser.add_argument("-b", "--bidirectional", action="store_true")
    parser.add_argument("-t", "--tx-depth", type=int)
    parser.add_argument("-r", "--rx-depth", type=int, default=512)
    parser.add_argument("-Q", "--cq-mod", type=int, help="one completion for so many messages")
    parser.add_argument("-I", "--inline_size", dest="inline", type=int)
    parser.add_argument("-u", "--qp-timeout", dest="timeout", type=int, default=14, help="4.096 us * 2^TIMEOUT")
    parser.add_argument("-o", "--outs", dest="outstanding", type=int, default=MAX_RD_ATOMIC)
    parser.add_argument("-A", "--atomic_type", choices=("FETCH_AND_ADD", "CMP_AND_SWAP"), default="FETCH_AND_ADD")
    parser.add_argument("-S", "--sl", dest="service_level", type=int, default=0)
    parser.add_argument("--tclass", dest="traffic_class", type=int, default=0)
    parser.add_argument("--report_gbits", dest="gbits", action="store_true")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


def main(argv=None, *, test=None):
    """Command line; ``test`` is the first argument if that is not among them."""
    args = vars(_parser(test).parse_intermixed_args(argv))
    kind, host, port = KINDS[args.pop("test", test)], args.pop("host"), args.pop("port")
    device, peer = args.pop("ib_dev"), args.pop("peer")
    options = Options(compare_and_swap=args.pop("atomic_type") == "CMP_AND_SWAP", **args)
    try:
        options.resolved(kind)
        context = open_device(device)
        if peer is not None:
            with Listener(0, "127.0.0.1") as listener, open_device(peer) as other:
                near = client(context, kind, options, "127.0.0.1", listener.port)
                run(server(other, kind, options, listener, tell=lambda line: print(f"server:{line}")), near)
        elif host is not None:
            run(client(context, kind, options, host, port))
        else:
            with Listener(port) as listener:
                run(server(context, kind, options, listener))
    except (ToolError, PyverbsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
