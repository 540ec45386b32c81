"""``mckey``: members of a multicast group, and who sends to it.

``verbena mckey -m GROUP`` receives, ``verbena mckey -m GROUP -s`` sends; the others in the group may be rdmacm-utils'
program on any machine. With ``--peer`` both run here, on two devices of one wire.
"""

import ipaddress
import sys
from dataclasses import dataclass

from ..verbs import cm_enums as ce
from ..verbs.addr import AH
from ..verbs.cmid import AddrInfo, UDParam
from ..verbs.libibverbs_enums import IBV_SEND_SIGNALED
from .cm_session import IDLE, Manner, settle
from .command import Parser, command_line, status_of
from .datagram_node import Node, check_numbers, wait_for_all
from .endpoint import open_device
from .session import WORKED, Patience, ToolError, run

__all__ = ["Options", "main", "member"]

NAME = "mckey"


@dataclass(frozen=True)
class Options:
    """``group`` is the address of a group, IPv4 or IPv6, ``source`` the own one. ``pause`` are the seconds after which
    a sender begins: switches must know who is in the group, and the others must be there.
    """

    group: str | None
    source: str | None = None
    connections: int = 1
    count: int = 10
    size: int = 100
    patience: float | None = None
    pause: float = 3.0

    def check(self):
        """:class:`.ToolError` if there can be no such run."""
        if self.group is None:
            raise ToolError("-m wants the address of a group; --help tells more")
        check_numbers(self)

    @property
    def messages(self):
        """Datagrams to each queue pair; none if they would be empty."""
        return self.count if self.size else 0


def member(options, context=None, *, sends=False, alone=True, tell=print):
    """One who receives, or who sends; a session. ``tell`` gets what it prints."""
    tell(f"{NAME}: starting {'client' if sends else 'server'}")
    manner = Manner(f"{NAME}: event:", context, alone=alone, patience=options.patience)
    group = AddrInfo(src=options.group, port_space=ce.RDMA_PS_UDP)
    nodes = []
    try:
        tell(f"{NAME}: joining")
        for _ in range(options.connections):
            cmid = manner.identifier(ce.RDMA_PS_UDP)
            cmid.resolve_addr(AddrInfo(options.source, options.group, port_space=ce.RDMA_PS_UDP))
            yield from manner.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
            nodes.append(Node(NAME, manner, cmid, options, receives=not sends))
            cmid.join_multicast(group)
            event = yield from manner.expect(ce.RDMA_CM_EVENT_MULTICAST_JOIN)
            peer = UDParam(event)
            way = peer.ah_attr
            tell(f"{NAME}: joined dgid: {_text(way.dgid)} mlid 0x{way.dlid:x} sl {way.sl}")
            nodes[-1].know(AH(cmid.pd, attr=way), peer.qp_num, peer.qkey)
        if options.messages:
            if sends:
                pause = Patience(options.pause)
                while not pause.over:
                    nodes[0].cmid.context.advance()
                    yield WORKED
            tell(f"{'initiating' if sends else 'receiving'} data transfers")
            for node in nodes if sends else ():
                node.send(IBV_SEND_SIGNALED)
            yield from wait_for_all(nodes)
            tell("data transfers complete")
        for node in nodes:
            node.cmid.leave_multicast(group)
        yield from settle(nodes[0].cmid.context)
    finally:
        for each in (*nodes, manner):
            each.close()
    tell("test complete")
    tell("return status 0")


def _text(gid):
    """As inet_ntop writes it."""
    address = ipaddress.IPv6Address(gid)
    return str(address) if address.ipv4_mapped is None else f"::ffff:{address.ipv4_mapped}"


def _parser():
    parser = Parser(prog=NAME, description="Datagrams to a multicast group that is joined by rdma_cm.")
    parser.add_argument("-m", "--group", metavar="ADDRESS", help="the group, IPv4 or IPv6")
    parser.add_argument("-s", "--sender", action="store_true", help="send; without it this receives")
    parser.add_argument("-b", "--bind", metavar="ADDRESS", help="the own address")
    parser.add_argument("-c", "--connections", type=int, default=1, help="queue pairs (%(default)s)")
    parser.add_argument("-C", "--count", type=int, default=10, help="datagrams of each (%(default)s)")
    parser.add_argument("-S", "--size", type=int, default=100, help="bytes of a datagram (%(default)s)")
    parser.add_argument("--ib-dev", metavar="DEVICE", help="default: the one with the address, or the first")
    parser.add_argument("--patience", type=float, help="seconds to wait for the others; default: for ever")
    parser.add_argument("--peer", metavar="DEVICE", help="run a receiver as well, on this device, and send")
    return parser


@command_line
def main(argv=None):
    """Command line."""
    args = _parser().parse_args(argv)
    pause = 0.0 if args.peer else Options.pause
    options = Options(args.group, args.bind, args.connections, args.count, args.size, args.patience, pause)

    def play():
        options.check()
        if args.peer is None:
            device = None if args.ib_dev is None else open_device(args.ib_dev)
            run(member(options, device, sends=args.sender))
            return
        with open_device(args.ib_dev) as near, open_device(args.peer) as far:
            receiver = member(options, far, alone=False, tell=lambda line: print(f"server: {line}"))
            run(receiver, member(options, near, sends=True, alone=False))

    return status_of(play, IDLE)


if __name__ == "__main__":
    sys.exit(main())
