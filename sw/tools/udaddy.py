"""``udaddy``: a client finds the QP of a service by the connection manager, and sends it datagrams; the server answers
with as many.

``verbena udaddy`` is a server, ``verbena udaddy -s ADDRESS`` its client; the peer may be rdmacm-utils' program on any
machine. With ``--peer`` both ends run here, on two devices of one wire.
"""

import socket
import sys
from dataclasses import dataclass, replace

from ..verbs import cm_enums as ce
from ..verbs.addr import AH
from ..verbs.cmid import CMID, AddrInfo, ConnParam, UDParam
from ..verbs.cq import CQ
from ..verbs.datagram import GRH_BYTES
from ..verbs.libibverbs_enums import IBV_SEND_SIGNALED, IBV_WC_RECV, IBV_WR_SEND_WITH_IMM, ibv_qp_type, ibv_wc_status
from ..verbs.limits import MAX_QP_WR
from ..verbs.qp import QPCap, QPInitAttr
from ..verbs.wr import SGE, SendWR
from .cm_session import IDLE, PORT, Manner, play_ends, settle
from .command import Parser, command_line, status_of
from .session import ToolError

__all__ = ["Options", "client", "main", "server"]

NAME = "udaddy"


@dataclass(frozen=True)
class Options:
    """``address`` is the server's, None of a server at any address; datagrams have ``size`` bytes. ``tos`` is the type
    of service of a client's.
    """

    address: str | None = None
    source: str | None = None
    connections: int = 1
    count: int = 10
    size: int = 100
    tos: int = 0
    patience: float | None = None

    def check(self):
        """:class:`.ToolError` if there can be no such run."""
        limits = (("connections", 1, 64), ("count", 0, MAX_QP_WR), ("size", 0, 4096), ("tos", 0, 255))
        for name, least, most in limits:
            value = getattr(self, name)
            if not least <= value <= most:
                raise ToolError(f"{name} must be between {least} and {most}, not {value}")

    @property
    def messages(self):
        """Datagrams of each side; none if they would be empty."""
        return self.count if self.size else 0


class _Node:
    """One end: a CMID with a QP, its CQ, and memory for a datagram, which serves all of them."""

    def __init__(self, manner, cmid, options):
        self.manner, self.cmid, self.options = manner, cmid, options
        depth = max(1, options.messages)
        self.cq = CQ(cmid.context, depth * 2)
        init = QPInitAttr(ibv_qp_type.IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap(depth, depth), sq_sig_all=0)
        cmid.create_qp(init)
        self.mr = cmid.reg_msgs(options.size + GRH_BYTES)
        self.handle = self.remote_qpn = self.remote_qkey = None
        for _ in range(options.messages):
            cmid.post_recv(self.mr)

    def know(self, handle, qpn, qkey):
        """Where the peer is."""
        self.handle, self.remote_qpn, self.remote_qkey = handle, qpn, qkey

    def send(self, flags):
        """Sends all datagrams; each tells the own QP number as its immediate data."""
        for _ in range(self.options.messages):
            sge = SGE(self.mr.buf, self.options.size, self.mr.lkey)
            wr = SendWR(0, IBV_WR_SEND_WITH_IMM, 1, socket.htonl(self.cmid.qpn), [sge], flags)
            wr.set_wr_ud(self.handle, self.remote_qpn, self.remote_qkey)
            self.cmid.qp.post_send(wr)

    def wait(self):
        """A session: until as many completions have come as there are datagrams. The first one tells where the peer is,
        if that is not known.
        """
        for _ in range(self.options.messages):
            wc = yield from self.manner.completion(self.cq)
            if wc.status:
                raise ToolError(f"{NAME}: completion with status {wc.status} ({ibv_wc_status(wc.status).name})")
            if self.handle is None and wc.opcode == IBV_WC_RECV:
                handle = AH(self.cmid.pd, wc=wc, grh=self.mr.buf, port_num=1)
                self.know(handle, socket.ntohl(wc.imm_data), self.cmid.query_qp(0)[0].qkey)

    def close(self):
        self.cmid.close()
        self.cq.close()


def server(options, context=None, *, alone=True, tell=print):
    """A server, a session; ``tell`` gets what it prints."""
    tell(f"{NAME}: starting server")
    manner = Manner(f"{NAME}: event:", context, alone=alone, patience=options.patience)
    listener, nodes = manner.identifier(ce.RDMA_PS_UDP), []
    try:
        info = AddrInfo(options.address, None, str(PORT), port_space=ce.RDMA_PS_UDP, flags=ce.RAI_PASSIVE)
        listener.bind_addr(info)
        listener.listen()
        while len(nodes) < options.connections:
            request = yield from manner.expect(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
            cmid = CMID(request, listen_id=listener)
            request.ack_cm_event()
            nodes.append(_Node(manner, cmid, options))
            cmid.accept(ConnParam(qp_num=cmid.qpn))
        if options.messages:
            tell("receiving data transfers")
            yield from _all(nodes)
            tell("sending replies")
            for node in nodes:
                node.send(IBV_SEND_SIGNALED)
            yield from _all(nodes)
            tell("data transfers complete")
        yield from settle(listener.context)
    finally:
        _end(manner, nodes, listener)
    _tell_end(tell)


def client(options, context=None, *, alone=True, tell=print):
    """A client, a session; the other arguments are :func:`server`'s."""
    tell(f"{NAME}: starting client")
    manner = Manner(f"{NAME}: event:", context, alone=alone, patience=options.patience)
    nodes = []
    try:
        tell(f"{NAME}: connecting")
        for _ in range(options.connections):
            cmid = manner.identifier(ce.RDMA_PS_UDP)
            info = AddrInfo(options.source, options.address, dst_service=str(PORT), port_space=ce.RDMA_PS_UDP)
            yield from manner.resolve(cmid, info)
            cmid.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_TOS, options.tos, 1)
            nodes.append(_Node(manner, cmid, options))
            cmid.connect(ConnParam())
            event = yield from manner.event()
            if event.event_type != ce.RDMA_CM_EVENT_ESTABLISHED:
                raise ToolError(f"{NAME}: event: {event.event_str()}, error: {event.status}")
            peer = UDParam(event)
            event.ack_cm_event()
            nodes[-1].know(AH(cmid.pd, attr=peer.ah_attr), peer.qp_num, peer.qkey)
        if options.messages:
            tell("initiating data transfers")
            for node in nodes:
                node.send(0)
            tell("receiving data transfers")
            yield from _all(nodes)
            tell("data transfers complete")
    finally:
        _end(manner, nodes)
    _tell_end(tell)


def _all(nodes):
    for node in nodes:
        yield from node.wait()


def _end(manner, nodes, *others):
    for each in (*nodes, *others, manner):
        each.close()


def _tell_end(tell):
    tell("test complete")
    tell("return status 0")


def _parser():
    parser = Parser(prog=NAME, description="Datagrams to a service that is found by rdma_cm, and their answers.")
    parser.add_argument("-s", "--server", metavar="ADDRESS", help="the server's address; without it this is the server")
    parser.add_argument("-b", "--bind", metavar="ADDRESS", help="the own address")
    parser.add_argument("-c", "--connections", type=int, default=1, help="queue pairs of each side (%(default)s)")
    parser.add_argument("-C", "--count", type=int, default=10, help="datagrams of each (%(default)s)")
    parser.add_argument("-S", "--size", type=int, default=100, help="bytes of a datagram (%(default)s)")
    parser.add_argument(
        "-t", "--tos", type=lambda text: int(text, 0), default=0, help="type of service of a client's (%(default)s)"
    )
    parser.add_argument("--ib-dev", metavar="DEVICE", help="default: the one with the address, or the first")
    parser.add_argument("--patience", type=float, help="seconds to wait for the peer; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run the server as well, on this device")
    return parser


@command_line
def main(argv=None):
    """Command line."""
    args = _parser().parse_args(argv)
    options = Options(args.server, args.bind, args.connections, args.count, args.size, args.tos, args.patience)
    serves = args.server is None or args.peer is not None
    if serves:
        options = replace(options, address=args.bind, source=None)

    def play():
        options.check()
        play_ends(args, options, server if serves else None, client)

    return status_of(play, IDLE)


if __name__ == "__main__":
    sys.exit(main())
