"""Tests whose queue pairs the connection manager connects (-R), as perftest has them.

The sides talk over a connection of their own, to the same port. When they know each other, the client asks for the
connections of the queue pairs, one after the other. A server of datagrams that answers hears by a first datagram, whose
immediate data are the number of the client's queue pair, where that is.
"""

import socket

from ...verbs import cm_enums as ce
from ...verbs.addr import AH
from ...verbs.cmid import CMID, AddrInfo, ConnParam, UDParam
from ...verbs.libibverbs_enums import IBV_WC_RECV, IBV_WR_SEND_WITH_IMM
from ...verbs.wr import RecvWR, SendWR
from ..cm_session import Manner
from ..exchange.cm_channel import CmChannel
from ..exchange.perftest import ManagedExchange
from ..session import WORKED, Patience, ToolError

__all__ = ["Managed"]

RETRY = 7
"""Of requests, and where there is no receive: for ever."""
TRIES, PAUSE = 10, 0.1
"""How often a client asks for a connection that is refused, and seconds between: the server may not listen yet."""
NUMBER = 4
"""Bytes of a datagram that tells where the client is."""
GOODBYE = 10.0
"""Seconds in which a peer agrees that the connections end."""


class Managed:
    """One side's connections by the connection manager: the first one to talk, then those of the test.

    Parameters
    ----------
    context : Context
    port : int
        Of the server.
    address : str, optional
        Of the server; without it this is the server.
    patience : float, optional
        Seconds to wait for the peer.
    """

    def __init__(self, context, port, address=None, patience=None):
        self._context, self._port, self._address, self._patience = context, port, address, patience
        self._manner = self._channel = None
        self._cmids = []  # of the test's connections
        self._datagrams = False

    @property
    def server(self):
        return self._address is None

    # To talk

    def talk(self):
        """A session that returns the channel to the peer."""
        self._manner = Manner("RDMA CM event error:", self._context, alone=False, patience=self._patience)
        try:
            self._channel = yield from (self._accept_talk() if self.server else self._ask_to_talk())
        except BaseException:
            self._manner.close()
            raise
        return self._channel

    def exchange(self, channel):
        """The conversation over it."""
        return ManagedExchange(channel, server=self.server, leave=self.disconnect)

    def _accept_talk(self):
        listener = self._listen(ce.RDMA_PS_TCP)
        try:
            cmid = yield from self._request(listener)
            channel = CmChannel(self._manner, cmid, self._patience)
            cmid.accept(ConnParam(0, 0, retry=RETRY, rnr_retry=RETRY))
        finally:
            listener.close()
        return channel

    def _ask_to_talk(self):
        cmid = yield from self._resolve(ce.RDMA_PS_TCP)
        channel = CmChannel(self._manner, cmid, self._patience)
        try:
            cmid.connect(ConnParam(0, 0, retry=RETRY, rnr_retry=RETRY))
            yield from self._manner.expect(ce.RDMA_CM_EVENT_ESTABLISHED)
        except BaseException:
            channel.close()
            raise
        return channel

    # The test's connections

    def connect(self, end, exchange, kind, options):
        """A session in which the endpoint gets its queue pairs, connected."""
        self._datagrams = options.connection == "UD"
        space = ce.RDMA_PS_UDP if self._datagrams else ce.RDMA_PS_TCP
        reads = options.outstanding if kind.reading else 0
        given = ConnParam(reads, reads, retry=RETRY, rnr_retry=RETRY)
        told = self._datagrams and (kind.latency or options.bidirectional)
        if self.server:
            # Before the client hears that it may ask.
            listener = self._listen(space, end.pd)
            try:
                yield from exchange.barrier()
                for index in range(options.qps):
                    yield from self._accept(listener, end, index, given, told)
            finally:
                listener.close()
        else:
            yield from exchange.barrier()
            for index in range(options.qps):
                yield from self._ask(space, end, index, given, told, options.traffic_class)
        yield from exchange.barrier()

    def _accept(self, listener, end, index, given, told):
        cmid = yield from self._request(listener)
        self._adopt(cmid, end)
        if told:
            end.receives[-1].post_recv(RecvWR(0, 1, [end.sge(0, end.header + NUMBER)]))
        given.qpn = cmid.qpn
        cmid.accept(given)
        if told:
            while not (found := end.poll(1)):
                yield WORKED
            (wc,) = found
            if wc.opcode != IBV_WC_RECV:
                raise ToolError(f"the client should tell where it is: {wc!r}")
            handle = AH(end.pd, wc=wc, grh=end.mr.buf, port_num=1)
            end.reach(index, handle, socket.ntohl(wc.imm_data), cmid.query_qp(0)[0].qkey)

    def _ask(self, space, end, index, given, told, traffic_class):
        for attempt in range(TRIES):
            cmid = yield from self._resolve(space, end.pd)
            cmid.set_option(ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_TOS, traffic_class, 1)
            cmid.create_qp(end.init)
            cmid.connect(given)
            event = yield from self._manner.event()
            if event.event_type == ce.RDMA_CM_EVENT_ESTABLISHED:
                break
            words = f"{self._manner.name} {event.event_str()}, error {event.status}"
            event.ack_cm_event()
            cmid.close()
            if attempt == TRIES - 1 or event.event_type not in (
                ce.RDMA_CM_EVENT_REJECTED,
                ce.RDMA_CM_EVENT_UNREACHABLE,
            ):
                raise ToolError(words)
            pause = Patience(PAUSE)
            while not pause.over:
                self._context.advance()
                yield WORKED
        self._cmids.append(cmid)
        end.adopt(cmid.qp)
        if self._datagrams:
            peer = UDParam(event)
            end.reach(index, AH(end.pd, attr=peer.ah_attr), peer.qp_num, peer.qkey)
        event.ack_cm_event()
        if told:
            number = socket.htonl(cmid.qpn)
            wr = SendWR(0, IBV_WR_SEND_WITH_IMM, 1, number, [end.sge(0, NUMBER)])
            cmid.qp.post_send(end.addressed(wr, index))
            while not end.poll(1):
                yield WORKED

    def _adopt(self, cmid, end):
        self._cmids.append(cmid)
        cmid.create_qp(end.init)
        end.adopt(cmid.qp)

    def disconnect(self):
        """A session that ends the test's connections, and ends when the peer knows."""
        if not self._datagrams:
            yield from self._channel.end(self._cmids, GOODBYE)

    def close(self):
        """Closes the test's connections, not the channel."""
        for cmid in self._cmids:
            cmid.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # Both

    def _listen(self, space, pd=None):
        listener = self._manner.identifier(space, pd)
        try:
            listener.bind_addr(AddrInfo(src_service=str(self._port), port_space=space, flags=ce.RAI_PASSIVE))
            listener.listen()
        except BaseException:
            listener.close()
            raise
        return listener

    def _request(self, listener):
        """A session that returns the CMID of the next request."""
        while True:
            event = yield from self._manner.event()
            if event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
                cmid = CMID(event, listen_id=listener)
                event.ack_cm_event()
                return cmid
            words = f"{self._manner.name} {event.event_str()}, error {event.status}"
            event.ack_cm_event()
            if event.event_type != ce.RDMA_CM_EVENT_ESTABLISHED:  # of the connection before
                raise ToolError(words)

    def _resolve(self, space, pd=None):
        """A session that returns a CMID that knows the way to the server."""
        cmid = self._manner.identifier(space, pd)
        try:
            info = AddrInfo(dst=self._address, dst_service=str(self._port), port_space=space)
            yield from self._manner.resolve(cmid, info)
        except BaseException:
            cmid.close()
            raise
        return cmid
