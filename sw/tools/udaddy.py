"""``udaddy``: a client finds the QP of a service by the connection manager, and sends it datagrams; the server answers
with as many.

``verbena udaddy`` is a server, ``verbena udaddy -s ADDRESS`` its client; the peer may be rdmacm-utils' program on any
machine. With ``--peer`` both ends run here, on two devices of one wire.
"""

import sys
from dataclasses import dataclass, replace

from ..verbs import cm_enums as ce
from ..verbs.addr import AH
from ..verbs.cmid import CMID, AddrInfo, ConnParam, UDParam
from ..verbs.libibverbs_enums import IBV_SEND_SIGNALED
from .cm_session import IDLE, PORT, Manner, play_ends, settle
from .command import Parser, command_line, status_of, whole_number
from .datagram_node import Node, check_numbers, wait_for_all
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
        check_numbers(self, tos=(0, 255))

    @property
    def messages(self):
        """Datagrams of each side; none if they would be empty."""
        return self.count if self.size else 0


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
            nodes.append(Node(NAME, manner, cmid, options))
            cmid.accept(ConnParam(qp_num=cmid.qpn))
        if options.messages:
            tell("receiving data transfers")
            yield from wait_for_all(nodes)
            tell("sending replies")
            for node in nodes:
                node.send(IBV_SEND_SIGNALED)
            yield from wait_for_all(nodes)
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
            nodes.append(Node(NAME, manner, cmid, options))
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
            yield from wait_for_all(nodes)
            tell("data transfers complete")
    finally:
        _end(manner, nodes)
    _tell_end(tell)


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
    parser.add_argument("-t", "--tos", type=whole_number, default=0, help="type of service of a client's (%(default)s)")
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
    if args.server is None and args.peer is None:
        options = replace(options, address=args.bind, source=None)

    def play():
        options.check()
        play_ends(args, options, server if serves else None, client)

    return status_of(play, IDLE)


if __name__ == "__main__":
    sys.exit(main())
