"""What tools over the connection manager have in common: sessions that wait for its events, and for completions."""

import errno
from dataclasses import replace

from ..cm.ip_header import address_text
from ..verbs import cm_enums as ce
from ..verbs.cmid import CMID, CMEvent, CMEventChannel
from ..verbs.pyverbs_error import PyverbsRDMAError
from .endpoint import is_cut, open_device
from .session import WORKED, Patience, ToolError, run

__all__ = ["IDLE", "PORT", "Disconnected", "Manner", "play_ends", "settle"]

IDLE = "nobody can come: no switch runs"
"""Words of a program whose wait can never end."""

PORT = 7174
"""Of all of rdmacm-utils' programs."""
SETTLE = 8
"""Quanta of time in which what is left over, such as a last DREP, goes out."""
WAITING = (ce.RDMA_CM_EVENT_TIMEWAIT_EXIT,)
"""Events that change nothing."""


def play_ends(args, options, server, client):
    """What the command lines of both programs over the connection manager do: the one end, or with ``--peer`` both.

    ``args`` has ``ib_dev`` and ``peer``, and ``options`` an ``address``, None with ``--peer`` for any. ``server``
    and ``client`` make sessions of the options and a context, None for the one with the address, with the end's
    arguments ``alone`` and ``tell``; one of them is None if this is the other end alone.
    """
    if args.peer is None:
        end = client if server is None else server
        run(end(options, None if args.ib_dev is None else open_device(args.ib_dev)))
        return
    with open_device(args.ib_dev) as near, open_device(args.peer) as far:
        options = replace(options, address=options.address or address_text(far._adapter.gids[0].gid))
        far_end = server(options, far, alone=False, tell=lambda line: print(f"server: {line}"))
        run(far_end, client(options, near, alone=False))


class Disconnected(Exception):
    """The peer has ended the connection."""


class Manner:
    """How a tool's end waits: a channel, and where its words go.

    Parameters
    ----------
    name : str
        What begins a line about an event that ends the tool.
    context : Context, optional
        Names the device, which otherwise follows from the addresses.
    alone : bool
        Nothing else of this process gives time: then a wait that can never end is told.
    patience : float, optional
        Seconds to wait for the peer; by default for ever.
    """

    def __init__(self, name, context=None, *, alone=True, patience=None):
        self.name = name
        self.context = context
        self.channel = CMEventChannel()
        self.channel.blocking = alone and patience is None
        self._patience = Patience(patience)

    def identifier(self, port_space=ce.RDMA_PS_TCP, pd=None):
        """A new CMID of the channel, with its QP on ``pd``."""
        return CMID(self.channel, pd=pd, port_space=port_space, context=self.context)

    def event(self):
        """A session: the next event that changes something, acknowledged but if it is a request."""
        self._patience.renew()
        while True:
            try:
                event = CMEvent(self.channel)
            except PyverbsRDMAError as error:
                if error.error_code != errno.EAGAIN:
                    raise
                self._patience.check("an event")
                yield WORKED
                continue
            if event.event_type not in WAITING:
                return event
            event.ack_cm_event()

    def expect(self, kind):
        """A session: the next event, which must be of this kind. :class:`.ToolError` otherwise. Who asks for a
        connection when none is expected is refused.
        """
        event = yield from self.event()
        while event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST != kind:
            event.ack_cm_event()
            event = yield from self.event()
        if event.event_type != kind:
            raise ToolError(f"{self.name} {event.event_str()}, error {event.status}")
        if kind != ce.RDMA_CM_EVENT_CONNECT_REQUEST:
            event.ack_cm_event()
        return event

    def resolve(self, cmid, info):
        """A session: address and route of the peer."""
        cmid.resolve_addr(info)
        yield from self.expect(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        cmid.resolve_route()
        yield from self.expect(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)

    def completion(self, cq):
        """A session: the next completion. :class:`Disconnected` if the peer ends the connection before, and
        :class:`.ToolError` if another event comes. Who else asks for a connection meanwhile is refused.
        """
        self._patience.renew()
        while True:
            if found := cq.poll(1)[1]:
                return found[0]
            if self.channel.pending:
                event = CMEvent(self.channel)
                name, kind = event.event_str(), event.event_type
                event.ack_cm_event()
                if kind == ce.RDMA_CM_EVENT_DISCONNECTED:
                    raise Disconnected
                if kind not in (ce.RDMA_CM_EVENT_ESTABLISHED, ce.RDMA_CM_EVENT_CONNECT_REQUEST, *WAITING):
                    raise ToolError(f"{self.name} {name}, error {event.status}")
            if is_cut(cq.context):
                raise ToolError("nothing can come: the network has ended")
            self._patience.check("a completion")
            yield WORKED

    def close(self):
        self.channel.close()


def settle(context):
    """A session in which the device sends what it still has to."""
    for _ in range(SETTLE):
        if not context.advance():
            break
        yield WORKED
