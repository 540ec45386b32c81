"""``ibv_rc_pingpong``, ``ibv_uc_pingpong``, ``ibv_ud_pingpong`` and ``ibv_srq_pingpong``: two ends send a message to
and fro; the last one on several queue pairs, whose receives are in one queue.

``python -m verbena.sw.tools.pingpong [options] [host]`` is a server, or with a host the client of one; its peer may be
rdma-core's program on any machine. With ``--peer`` both ends run here, on two devices of one wire.
"""

import contextlib
import sys
from dataclasses import dataclass

from ..verbs.libibverbs_enums import ibv_qp_type
from ..verbs.limits import MAX_QP_WR
from .command import Parser, command_line, port_number, status_of
from .endpoint import Endpoint, clock_text, is_cut, mtu_of, open_device
from .exchange.channel import Listener, connect
from .exchange.pingpong import DONE, MOST, Address, answer, ask
from .perftest.kinds import KINDS
from .perftest.options import MIN_ITERATIONS
from .perftest.options import Options as Shape
from .perftest.progress import Progress, unheard
from .ping import Outcome, Ping
from .session import ToolError, run

__all__ = ["Options", "Outcome", "client", "main", "play", "server", "srq", "uc", "ud"]

PORT = 18515
SILENCE = 120.0
"""Seconds after which a peer that has not stayed connected counts as gone, if nothing happens meanwhile."""


@dataclass(frozen=True)
class Options:
    """What both ends must agree on is ``size``, ``iterations``, of all queue pairs together, and ``qps``; names and
    defaults are the program's. ``shared`` means ``ibv_srq_pingpong``, which alone has more than one queue pair.
    """

    size: int = 4096
    mtu: int = 1024
    rx_depth: int = 500
    iterations: int = 1000
    gid_index: int = 0
    check: bool = False
    patience: float | None = None
    service_level: int = 0
    events: bool = False
    qp_type: ibv_qp_type = ibv_qp_type.IBV_QPT_RC
    qps: int = 1
    shared: bool = False

    def validate(self):
        """:class:`.ToolError` if there can be no such test."""
        mtu_of(self.mtu)
        if self.qp_type == ibv_qp_type.IBV_QPT_UD and self.size > 4096:
            raise ToolError(f"size must be between 0 and 4096, a packet, not {self.size}")
        for name, least, most in (
            ("size", 0, 1 << 31),
            ("rx_depth", 1, MAX_QP_WR),
            ("iterations", 1, 100_000_000),
            ("service_level", 0, 7),
            ("qps", 1, MOST if self.shared else 1),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ToolError(f"{name} must be between {least} and {most}, not {value}")
        if self.rx_depth < self.qps:
            raise ToolError(f"rx_depth {self.rx_depth} is too small for {self.qps} queue pairs, each needs a receive")


def _progress(context, options):
    """What hears of each message to and fro; nobody, if the simulation is not long, or none. The course is that of
    perftest's SEND latency.
    """
    kind = KINDS["send_lat"]
    shape = Shape(size=max(1, options.size), iterations=max(MIN_ITERATIONS, options.iterations)).resolved(kind)
    progress = Progress.of(kind, shape, context)
    return progress.round(shape) if progress is not None and progress.announce() else unheard


def play(context, options, channel, *, server, tell=print, progress=False):
    """One end, a session: ``channel`` leads to the other one's. Returns the :class:`Outcome`. With ``progress`` it is
    told on stderr how long a long simulation takes, and how far it is.
    """
    depth = options.rx_depth
    end = Endpoint(
        context,
        max(1, options.size),
        qps=options.qps,
        qp_type=options.qp_type,
        recv_depth=depth,
        shared=options.shared,
        gid_index=options.gid_index,
        patience=options.patience,
        silence=SILENCE,
        events=options.events,
    )
    with end, channel:
        ping = Ping(end, options, server=server)
        mine = [Address(0, qp.qp_num, psn, end.gid, stays=True) for qp, psn in zip(end.qps, end.psns, strict=True)]
        for address in mine:
            tell(_line("local", address))

        def prepare(theirs):
            for index, peer in enumerate(theirs):
                route = {"gid": peer.gid, "qpn": peer.qpn, "psn": peer.psn}
                end.connect(index, **route, mtu=mtu_of(options.mtu), service_level=options.service_level)

        messages = MOST if options.shared else 1
        if server:
            theirs = yield from answer(channel, mine, prepare, messages)
        else:
            theirs = yield from ask(channel, mine, messages)
            prepare(theirs)
        stays = all(address.stays for address in theirs)
        if stays:
            end.channel = channel
        else:
            channel.close()
        for address in theirs:
            tell(_line("remote", address))
        if progress:
            ping.progress = _progress(context, options)
        outcome = yield from ping.run()
        if stays:
            with contextlib.suppress(ToolError):  # a peer that is gone has all that it needs
                yield from channel.send(DONE)
            # The peer may wait for an acknowledgement that was lost, and asks for it again after its timeout.
            yield from channel.finish(options.patience)
    for line in outcome.lines():
        tell(line)
    if (clock := clock_text(context)) is not None:
        tell(f"times: {clock}")
    return outcome


def _line(side, address):
    text = address.gid.hex(":", 2)
    who = f"{side} address:"
    return f"  {who:<16}LID {address.lid:#06x}, QPN {address.qpn:#08x}, PSN {address.psn:#08x}, GID {text}"


def server(context, options, listener, **arguments):
    """A server, a session: waits for a client on ``listener`` and plays with it; other arguments are :func:`play`'s."""
    channel = yield from listener.accept(context.advance, options.patience, lambda: is_cut(context))
    return (yield from play(context, options, channel, server=True, **arguments))


def client(context, options, host, port=PORT, **arguments):
    """A client, a session; other arguments are :func:`play`'s."""
    channel = yield from connect(host, port, context.advance, options.patience)
    return (yield from play(context, options, channel, server=False, **arguments))


def _parser(name):
    parser = Parser(
        prog=f"verbena-{name}-pingpong", description=f"``ibv_{name}_pingpong``: two ends send a message to and fro."
    )
    parser.add_argument("host", nargs="?", help="the server's address; without it this is the server")
    parser.add_argument("-p", "--port", type=port_number, default=PORT, help="TCP port of the server (%(default)s)")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    parser.add_argument("-i", "--ib-port", type=int, choices=(1,), default=1, help="there is only port 1")
    parser.add_argument(
        "-s", "--size", type=int, default=1024 if name == "ud" else 4096, help="bytes of a message (%(default)s)"
    )
    parser.add_argument("-m", "--mtu", type=int, default=1024, help="path MTU, 256 to 4096 bytes (%(default)s)")
    if name == "srq":
        parser.add_argument("-q", "--num-qp", type=int, default=16, help="queue pairs (%(default)s)")
    parser.add_argument("-r", "--rx-depth", type=int, default=500, help="receives that are posted (%(default)s)")
    parser.add_argument(
        "-n", "--iters", type=int, default=1000, help="messages of each side, of all queue pairs together (%(default)s)"
    )
    parser.add_argument("-l", "--sl", type=int, default=0, help="service level")
    parser.add_argument("-e", "--events", action="store_true", help="sleep until an event tells of completions")
    parser.add_argument("-g", "--gid-idx", type=int, default=0, help="index of the GID (%(default)s)")
    parser.add_argument("-c", "--chk", action="store_true", help="check what has been received last")
    parser.add_argument("-N", "--new_send", action="store_true", help="taken; there is only one way to post")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


@command_line
def uc(argv=None):
    """Command line of ``ibv_uc_pingpong``: a message that is lost ends it, as nobody sends it again."""
    return _main(argv, "uc", ibv_qp_type.IBV_QPT_UC)


@command_line
def ud(argv=None):
    """Command line of ``ibv_ud_pingpong``: a message is one packet, and one that is lost ends it."""
    return _main(argv, "ud", ibv_qp_type.IBV_QPT_UD)


@command_line
def srq(argv=None):
    """Command line of ``ibv_srq_pingpong``: several queue pairs, of RC, with one shared receive queue."""
    return _main(argv, "srq", ibv_qp_type.IBV_QPT_RC)


@command_line
def main(argv=None):
    """Command line of ``ibv_rc_pingpong``."""
    return _main(argv, "rc", ibv_qp_type.IBV_QPT_RC)


def _main(argv, name, qp_type):
    args = _parser(name).parse_intermixed_args(argv)
    options = Options(
        args.size,
        args.mtu,
        args.rx_depth,
        args.iters,
        args.gid_idx,
        args.chk,
        args.patience,
        service_level=args.sl,
        events=args.events,
        qp_type=qp_type,
        qps=args.num_qp if name == "srq" else 1,
        shared=name == "srq",
    )

    def play_all():
        options.validate()
        if args.host is not None and args.peer is None:
            run(client(open_device(args.ib_dev), options, args.host, args.port, progress=True))
        elif args.peer is None:
            # First, so that a client finds it who has waited for this device.
            with Listener(args.port) as listener:
                run(server(open_device(args.ib_dev), options, listener, progress=True))
        else:
            context = open_device(args.ib_dev)
            with Listener(0, "127.0.0.1") as listener, open_device(args.peer) as other:
                near = client(context, options, "127.0.0.1", listener.port, progress=True)
                run(server(other, options, listener, tell=lambda line: print(f"server: {line}")), near)

    return status_of(play_all)


if __name__ == "__main__":
    sys.exit(main())
