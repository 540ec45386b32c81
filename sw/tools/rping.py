"""``rping``: a client and a server of the connection manager; the server READs what the client shows it, and WRITEs it
back.

``verbena rping -s`` is a server, ``verbena rping -c -a ADDRESS`` its client; the peer may be rdmacm-utils' program on
any machine. With ``--peer`` both ends run here, on two devices of one wire.
"""

import contextlib
import struct
import sys
from dataclasses import dataclass
from functools import partial

from ..verbs import cm_enums as ce
from ..verbs.cmid import CMID, AddrInfo, ConnParam
from ..verbs.cq import CQ
from ..verbs.libibverbs_enums import (
    IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE,
    IBV_WC_RECV,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
    IBV_WR_SEND,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_status,
)
from ..verbs.pyverbs_error import PyverbsRDMAError
from ..verbs.qp import QP, QPCap, QPInitAttr
from ..verbs.wr import SGE, RecvWR, SendWR
from .cm_session import IDLE, PORT, Disconnected, Manner, play_ends, settle
from .command import Parser, command_line, port_number, status_of
from .session import ToolError

__all__ = ["Options", "client", "main", "server"]

SQ_DEPTH, RQ_DEPTH = 16, 2
ADVERTISEMENT = struct.Struct(">QII")
"""Address, rkey and size of a buffer."""
SMALLEST, LARGEST = 26, 65535
"""Bytes of a ping: the text that it begins with has room."""
LETTERS = bytes(range(65, 123))


@dataclass(frozen=True)
class Options:
    """``address`` is the server's, None of a server at any address; ``count`` 0 is for ever. With ``own_qp`` the queue
    pair is made by verbs and brought up by hand, as the connection manager tells.
    """

    address: str | None = None
    port: int = PORT
    source: str | None = None
    count: int = 0
    size: int = 64
    verbose: bool = False
    validate: bool = False
    own_qp: bool = False
    patience: float | None = None

    def check(self):
        """:class:`.ToolError` if there can be no such run."""
        if not SMALLEST <= self.size <= LARGEST:
            raise ToolError(f"Invalid size {self.size} (valid range is {SMALLEST} to {LARGEST})")
        if self.count < 0:
            raise ToolError(f"Invalid count {self.count}")


def ping(number, size):
    """The text of a ping: its number, and letters, which begin one further each time; a zero at the end."""
    head = f"rdma-ping-{number}: ".encode()
    start = number % len(LETTERS)
    letters = LETTERS[start:] + LETTERS * (size // len(LETTERS) + 1)
    return (head + letters)[: size - 1] + b"\0"


class _End:
    """What one end has on its connection ``cmid``: QP, CQ, and buffers for advertisements and for pings."""

    def __init__(self, manner, cmid, options):
        self.manner, self.cmid, self.size = manner, cmid, options.size
        self.cq = CQ(cmid.context, SQ_DEPTH * 2)
        cap = QPCap(SQ_DEPTH, RQ_DEPTH)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self._own = QP(cmid.pd, init) if options.own_qp else None
        if self._own is None:
            cmid.create_qp(init)
        self.qp = cmid.qp if self._own is None else self._own
        self._to(ibv_qp_state.IBV_QPS_INIT)
        self.received = cmid.reg_msgs(ADVERTISEMENT.size)
        self.sent = cmid.reg_msgs(ADVERTISEMENT.size)
        self._post_receive()

    def _post_receive(self):
        self.qp.post_recv(RecvWR(0, 1, [self._part(self.received, self.received.length)]))

    def _to(self, *states):
        """Brings a queue pair of its own to these states, one after the other."""
        for state in states if self._own is not None else ():
            self._own.modify(*self.cmid.init_qp_attr(state))

    def parameters(self):
        """What the end asks for, or agrees to."""
        number = 0 if self._own is None else self._own.qp_num
        return ConnParam(resources=1, depth=1, retry=7, rnr_retry=7, qp_num=number)

    def bring_up(self):
        """The peer is known, and so is what it may do: INIT once more."""
        self._to(ibv_qp_state.IBV_QPS_INIT, ibv_qp_state.IBV_QPS_RTR, ibv_qp_state.IBV_QPS_RTS)

    def established(self):
        """A session of a client, until both ends are ready."""
        if self._own is not None:
            yield from self.manner.expect(ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
            self.bring_up()
            self.cmid.establish()
        else:
            yield from self.manner.expect(ce.RDMA_CM_EVENT_ESTABLISHED)

    def advertise(self, mr):
        """Sends where a buffer is."""
        self.sent.write(ADVERTISEMENT.pack(mr.buf, mr.rkey, self.size), ADVERTISEMENT.size)
        self.go_ahead()

    def go_ahead(self):
        """Sends whatever stands in the buffer: that it comes is what counts."""
        self._post(SendWR(0, IBV_WR_SEND, 1, 0, [self._part(self.sent, self.sent.length)]))

    def move(self, opcode, mr, length, address, key):
        """READs into the beginning of a region, or WRITEs it."""
        wr = SendWR(0, opcode, 1, 0, [self._part(mr, length)])
        wr.set_wr_rdma(key, address)
        self._post(wr)

    def _post(self, wr):
        self.qp.post_send(wr)

    @staticmethod
    def _part(mr, length):
        return SGE(mr.buf, length, mr.lkey)

    def wait(self, *opcodes):
        """A session: until something of these kinds completes; of a receive its advertisement."""
        while True:
            wc = yield from self.manner.completion(self.cq)
            if wc.status:
                raise ToolError(f"cq completion failed status {wc.status} ({ibv_wc_status(wc.status).name})")
            if wc.opcode not in opcodes:
                continue
            if wc.opcode != IBV_WC_RECV:
                return None
            if wc.byte_len != ADVERTISEMENT.size:
                raise ToolError(f"Received bogus data, size {wc.byte_len}")
            told = ADVERTISEMENT.unpack(self.received.read(ADVERTISEMENT.size, 0))
            self._post_receive()
            return told

    def disconnect(self):
        """A session: ends the connection, and lets the peer know."""
        with contextlib.suppress(PyverbsRDMAError):
            self.cmid.disconnect()
        yield from settle(self.cmid.context)

    def close(self):
        if self._own is not None:
            self._own.close()
        self.cmid.close()
        self.cq.close()


def _text(data):
    return data.partition(b"\0")[0].decode("latin-1")


def _warn(line):
    print(line, file=sys.stderr)


def server(options, context=None, *, alone=True, persistent=False, tell=print, warn=_warn):
    """A server, a session. ``tell`` gets what it prints, and ``warn`` what goes to stderr."""
    manner = Manner("cma event", context, alone=alone, patience=options.patience)
    listener = manner.identifier()
    try:
        listener.bind_addr(AddrInfo(src=options.address, src_service=str(options.port), flags=ce.RAI_PASSIVE))
        listener.listen(3)
        while True:
            request = yield from manner.expect(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
            cmid = CMID(request, listen_id=listener)
            request.ack_cm_event()
            end = _End(manner, cmid, options)
            try:
                yield from _serve(end, options, tell, warn)
            finally:
                end.close()
            if not persistent:
                return
    finally:
        listener.close()
        manner.close()


def _serve(end, options, tell, warn):
    cmid, mr = end.cmid, end.cmid.reg_write(LARGEST)
    end.bring_up()
    cmid.accept(end.parameters())
    try:
        # The first message may come before the event that the peer is ready, and is as good.
        while True:
            address, key, length = yield from end.wait(IBV_WC_RECV)
            if length > LARGEST:
                raise ToolError(f"the client's buffer has {length} bytes, more than {LARGEST}")
            end.move(IBV_WR_RDMA_READ, mr, length, address, key)
            yield from end.wait(IBV_WC_RDMA_READ)
            text = _text(mr.read(length, 0))
            if options.verbose:
                tell(f"server ping data: {text}")
            end.go_ahead()
            address, key, _ = yield from end.wait(IBV_WC_RECV)
            end.move(IBV_WR_RDMA_WRITE, mr, min(length, len(text) + 1), address, key)
            yield from end.wait(IBV_WC_RDMA_WRITE)
            end.go_ahead()
    except Disconnected:
        warn("server DISCONNECT EVENT...")
    yield from end.disconnect()


def client(options, context=None, *, alone=True, tell=print, warn=_warn):
    """A client, a session; the other arguments are :func:`server`'s."""
    manner = Manner("cma event", context, alone=alone, patience=options.patience)
    cmid, end = manner.identifier(), None
    try:
        yield from manner.resolve(cmid, AddrInfo(options.source, options.address, dst_service=str(options.port)))
        end = _End(manner, cmid, options)
        start, sink = cmid.reg_read(options.size), cmid.reg_write(options.size)
        cmid.connect(end.parameters())
        yield from end.established()
        try:
            number = 0
            while not options.count or number < options.count:
                data = ping(number, options.size)
                start.write(data, options.size)
                end.advertise(start)
                yield from end.wait(IBV_WC_RECV)
                end.advertise(sink)
                yield from end.wait(IBV_WC_RECV)
                came = sink.read(options.size, 0)
                if options.validate and came != data:
                    raise ToolError("data mismatch!")
                if options.verbose:
                    tell(f"ping data: {_text(came)}")
                number += 1
            cmid.disconnect()
            yield from manner.expect(ce.RDMA_CM_EVENT_DISCONNECTED)
            warn("client DISCONNECT EVENT...")
        except Disconnected:
            warn("client DISCONNECT EVENT...")
            yield from end.disconnect()
            raise ToolError("the server has ended the connection") from None
        yield from settle(cmid.context)
    finally:
        if end is not None:
            end.close()
        cmid.close()
        manner.close()


def _parser():
    parser = Parser(
        prog="rping", description="A server reads what its client shows it, and writes it back, over rdma_cm."
    )
    parser.add_argument("-s", "--server", action="store_true", help="the server")
    parser.add_argument("-c", "--client", action="store_true", help="the client")
    parser.add_argument(
        "-a", "--address", help="the server's address or name, IPv4 or IPv6; of a server: where it listens"
    )
    parser.add_argument("-p", "--port", type=port_number, default=PORT, help="the server's port (%(default)s)")
    parser.add_argument("-I", "--source", metavar="ADDRESS", help="the client's own address")
    parser.add_argument("-C", "--count", type=int, default=0, help="pings; default: until somebody ends it")
    parser.add_argument("-S", "--size", type=int, default=64, help="bytes of a ping, 26 to 65535 (%(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what comes")
    parser.add_argument("-V", "--validate", action="store_true", help="check what comes back")
    parser.add_argument("-d", "--debug", action="store_true", help="taken; there is nothing more to tell")
    parser.add_argument("-P", "--persistent", action="store_true", help="serve one client after the other")
    parser.add_argument("-q", "--own-qp", action="store_true", help="bring up a queue pair made by verbs, by hand")
    parser.add_argument("--ib-dev", metavar="DEVICE", help="default: the one with the address, or the first")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


@command_line
def main(argv=None):
    """Command line."""
    args = _parser().parse_args(argv)
    options = Options(
        args.address,
        args.port,
        args.source,
        args.count,
        args.size,
        args.verbose,
        args.validate,
        args.own_qp,
        args.patience,
    )

    def play():
        options.check()
        if args.peer is None and args.server == args.client:
            raise ToolError("either -s or -c; --help tells more")
        if args.peer is None and args.client and options.address is None:
            raise ToolError("-c wants -a, the server's address")
        serving = server if args.peer is not None else partial(server, persistent=args.persistent)
        play_ends(args, options, serving if args.server or args.peer is not None else None, client)

    return status_of(play, IDLE)


if __name__ == "__main__":
    sys.exit(main())
