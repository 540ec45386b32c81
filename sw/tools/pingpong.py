"""``ibv_rc_pingpong``: two ends send a message to and fro.

``python -m verbena.sw.tools.pingpong [options] [host]`` is a server, or with a host the client of one; its peer may be
rdma-core's program on any machine. With ``--peer`` both ends run here, on two devices of one wire.
"""

import contextlib
import sys
from dataclasses import dataclass

from ..verbs.libibverbs_enums import ibv_send_flags, ibv_wc_opcode, ibv_wr_opcode
from ..verbs.limits import MAX_QP_WR
from ..verbs.pyverbs_error import PyverbsError
from ..verbs.wr import RecvWR, SendWR
from .command import Parser, command_line, plain, port_number
from .endpoint import Endpoint, chain, clock_text, mtu_of, open_device
from .exchange.channel import Listener, connect
from .exchange.pingpong import DONE, Address, answer, ask
from .session import WORKED, Patience, ToolError, run

__all__ = ["Options", "Outcome", "client", "main", "play", "server"]

PORT = 18515
RECV, SEND = 1, 2
"""wr_id of receives and sends."""

PAGE = 4096
LAST_MESSAGES = 1.0
"""Seconds of the wall's clock in which what a peer has sent before its end arrives."""

SILENCE = 120.0
"""Seconds after which a peer that has not stayed connected counts as gone, if nothing happens meanwhile."""

FILL = 0x7B
"""The client fills its buffer with this, the server with the next; with ``check``, pages begin with a 0."""


@dataclass(frozen=True)
class Options:
    """What both ends must agree on is ``size`` and ``iterations``; names and defaults are the program's."""

    size: int = 4096
    mtu: int = 1024
    rx_depth: int = 500
    iterations: int = 1000
    gid_index: int = 0
    check: bool = False
    patience: float | None = None
    service_level: int = 0
    events: bool = False

    def validate(self):
        """:class:`.ToolError` if there can be no such test."""
        mtu_of(self.mtu)
        for name, least, most in (
            ("size", 0, 1 << 31),
            ("rx_depth", 1, MAX_QP_WR),
            ("iterations", 1, 100_000_000),
            ("service_level", 0, 7),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ToolError(f"{name} must be between {least} and {most}, not {value}")


@dataclass(frozen=True)
class Outcome:
    """``bytes`` in both directions, and the device's time that they took."""

    bytes: int
    iterations: int
    nanoseconds: int

    def lines(self):
        seconds = max(1, self.nanoseconds) / 1e9
        yield f"{self.bytes} bytes in {seconds:.6f} seconds = {self.bytes * 8 / 1e6 / seconds:.2f} Mbit/sec"
        yield f"{self.iterations} iters in {seconds:.6f} seconds = {seconds * 1e6 / self.iterations:.2f} usec/iter"


class Ping:
    """The messages of one end: a message goes when the one before has gone and the peer's has come."""

    def __init__(self, end, options, *, server):
        self._end = end
        self._options = options
        self._server = server
        self._posted = 0
        self._last = None
        self._sge = end.sge(0, options.size)
        content = bytes([FILL + 1]) * options.size if server else self._clients()
        end.mr.write(content, options.size)
        self._receive()

    def _clients(self):
        """What the client fills its message with. Each end sends what it has received, so all are like that."""
        content = bytearray([FILL]) * self._options.size
        if self._options.check:
            content[::PAGE] = bytes(len(content[::PAGE]))
        return bytes(content)

    def _receive(self):
        """Posts receives until there are ``rx_depth``."""
        missing = self._options.rx_depth - self._posted
        self._end.qps[0].post_recv(chain(RecvWR(RECV, 1, [self._sge]) for _ in range(missing)))
        self._posted += missing

    def _send(self):
        flags = ibv_send_flags.IBV_SEND_SIGNALED
        if self._options.size <= self._end.inline:
            flags |= ibv_send_flags.IBV_SEND_INLINE
        wr = SendWR(SEND, ibv_wr_opcode.IBV_WR_SEND, num_sge=1, sg=[self._sge], send_flags=flags)
        self._end.qps[0].post_send(wr)

    def run(self):
        """Runs to the end and returns the :class:`Outcome`."""
        end, options = self._end, self._options
        start = end.context.time_ns()
        pending = {RECV}
        if not self._server:
            self._send()
            pending.add(SEND)
        done = {RECV: 0, SEND: 0}
        while min(done.values()) < options.iterations:
            found = end.poll()
            for wc in found:
                self._take(wc)
                done[wc.wr_id] += 1
                pending.discard(wc.wr_id)
                if not pending and done[SEND] < options.iterations:
                    self._send()
                    pending = {RECV, SEND}
            if not found:
                self._check(done[RECV])
            yield WORKED
        passed = end.context.time_ns() - start
        if options.check:
            self._compare()
        yield from end.settle()
        return Outcome(2 * options.size * options.iterations, options.iterations, passed)

    def _take(self, wc):
        if wc.wr_id != RECV:
            return
        if wc.opcode != ibv_wc_opcode.IBV_WC_RECV or wc.byte_len != self._options.size:
            raise ToolError(f"a message of {wc.byte_len} bytes came where {self._options.size} should: {wc!r}")
        self._posted -= 1
        if self._posted <= 1:
            self._receive()

    def _check(self, received):
        """Raises if the peer has ended its test, and nothing that it has sent before can be on its way any more."""
        if self._end.channel is None or not self._end.channel.speaks():
            return
        if self._last is None:
            self._last = Patience(LAST_MESSAGES)
        if self._last.over and not self._end.context.advance():
            raise ToolError(f"the peer has ended after {received} messages: -n must be the same on both sides")

    def _compare(self):
        found, expected = self._end.mr.read(self._options.size, 0), self._clients()
        for at, (there, wanted) in enumerate(zip(found, expected, strict=True)):
            if there != wanted:
                raise ToolError(f"invalid data: byte {at} is {there:#04x}, not {wanted:#04x}")


def play(context, options, channel, *, server, tell=print):
    """One end, a session: ``channel`` leads to the other one's. Returns the :class:`Outcome`."""
    depth = options.rx_depth
    end = Endpoint(
        context,
        max(1, options.size),
        recv_depth=depth,
        gid_index=options.gid_index,
        patience=options.patience,
        silence=SILENCE,
        events=options.events,
    )
    with end, channel:
        ping = Ping(end, options, server=server)
        mine = Address(0, end.qps[0].qp_num, end.psns[0], end.gid, stays=True)
        tell(_line("local", mine))

        def prepare(theirs):
            route = {"gid": theirs.gid, "qpn": theirs.qpn, "psn": theirs.psn}
            end.connect(0, **route, mtu=mtu_of(options.mtu), service_level=options.service_level)

        if server:
            theirs = yield from answer(channel, mine, prepare)
        else:
            theirs = yield from ask(channel, mine)
            prepare(theirs)
        if theirs.stays:
            end.channel = channel
        else:
            channel.close()
        tell(_line("remote", theirs))
        outcome = yield from ping.run()
        if theirs.stays:
            with contextlib.suppress(ToolError):  # a peer that is gone has all that it needs
                yield from channel.send(DONE)
            yield from channel.finish()
    for line in outcome.lines():
        tell(line)
    if (clock := clock_text(context)) is not None:
        tell(f"times: {clock}")
    return outcome


def _line(side, address):
    text = address.gid.hex(":", 2)
    who = f"{side} address:"
    return f"  {who:<16}LID {address.lid:#06x}, QPN {address.qpn:#08x}, PSN {address.psn:#08x}, GID {text}"


def server(context, options, listener, *, tell=print):
    """A server, a session: waits for a client on ``listener`` and plays with it."""
    channel = yield from listener.accept(context.advance, options.patience)
    return (yield from play(context, options, channel, server=True, tell=tell))


def client(context, options, host, port=PORT, *, tell=print):
    """A client, a session."""
    channel = yield from connect(host, port, context.advance, options.patience)
    return (yield from play(context, options, channel, server=False, tell=tell))


def _parser():
    parser = Parser(prog="verbena-rc-pingpong", description=__doc__.splitlines()[0])
    parser.add_argument("host", nargs="?", help="the server's address; without it this is the server")
    parser.add_argument("-p", "--port", type=port_number, default=PORT, help="TCP port of the server (%(default)s)")
    parser.add_argument("-d", "--ib-dev", metavar="DEVICE", help="default: the first")
    parser.add_argument("-i", "--ib-port", type=int, choices=(1,), default=1, help="there is only port 1")
    parser.add_argument("-s", "--size", type=int, default=4096, help="bytes of a message (%(default)s)")
    parser.add_argument("-m", "--mtu", type=int, default=1024, help="path MTU, 256 to 4096 bytes (%(default)s)")
    parser.add_argument("-r", "--rx-depth", type=int, default=500, help="receives that are posted (%(default)s)")
    parser.add_argument("-n", "--iters", type=int, default=1000, help="messages of each side (%(default)s)")
    parser.add_argument("-l", "--sl", type=int, default=0, help="service level")
    parser.add_argument("-e", "--events", action="store_true", help="sleep until an event tells of completions")
    parser.add_argument("-g", "--gid-idx", type=int, default=0, help="index of the GID (%(default)s)")
    parser.add_argument("-c", "--chk", action="store_true", help="check what has been received last")
    parser.add_argument("-N", "--new_send", action="store_true", help="taken; there is only one way to post")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


@command_line
def main(argv=None):
    args = _parser().parse_intermixed_args(argv)
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
    )
    try:
        options.validate()
        if args.host is not None and args.peer is None:
            run(client(open_device(args.ib_dev), options, args.host, args.port))
        elif args.peer is None:
            # First, so that a client finds it who has waited for this device.
            with Listener(args.port) as listener:
                run(server(open_device(args.ib_dev), options, listener))
        else:
            context = open_device(args.ib_dev)
            with Listener(0, "127.0.0.1") as listener, open_device(args.peer) as other:
                near = client(context, options, "127.0.0.1", listener.port)
                run(server(other, options, listener, tell=lambda line: print(f"server: {line}")), near)
    except BrokenPipeError:  # of what is printed
        raise
    except (ToolError, PyverbsError, OSError) as error:
        print(plain(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
