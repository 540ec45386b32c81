"""What `rdma_server.py` and `rdma_client.py` have in common: the conversation, which is the same on both sides.

Each side has four regions: two of 1024 bytes, one with a message of its own and one for the peer's, and two small ones
for what is SENT. With `write`, each side writes its message into the peer's region; with `read`, each side reads the
peer's. Nobody can do that before it knows the peer's region (address, length, key), so:

* Each side sends MSG_MR, which tells of the region that the peer is to work on.
* Who has sent its own and received the peer's posts the RDMA operation, and right behind it a SEND of MSG_DONE. A QP
  carries out its requests in order: when MSG_DONE arrives, what was written before it is in memory.
* Who has sent and received MSG_DONE is done.

How the two find each other does not matter: over a TCP socket (`OverTcp`), or by the connection manager (`ByCm`).
"""

import os
import select
import socket
import struct
import sys
import threading
from types import SimpleNamespace

from connection import LOCAL, READ, WRITE, Address, End, check, exchange
from pyverbs.cm_enums import RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED
from pyverbs.cmid import CMEvent, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.libibverbs_enums import IBV_QPT_RC, ibv_wc_opcode, ibv_wr_opcode
from pyverbs.mr import MR
from pyverbs.qp import QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

REGION = 1024
DEPTH = 10
MSG_MR, MSG_DONE = 0, 1
MESSAGE = struct.Struct("<IQII")  # kind; address, length and rkey of a region


class OverTcp:
    """The way to the peer: addresses are exchanged over a TCP socket. It stays open, and tells of a peer that is gone:
    RDMA itself does not, unless something is sent to it.
    """

    def __init__(self, sock, context):
        self.fd = self.sock = sock
        self.end = End(context, depth=DEPTH, events=True)

    def connect(self):
        peer = exchange(self.sock, self.end.context, self.end.address())
        self.end.connect(Address(*peer))

    def hung_up(self):
        """Asked when there is something to be read."""
        return not self.sock.recv(1, socket.MSG_PEEK)

    def disconnect(self):
        """Waits until the peer is done, too: what we have of it must be acknowledged before our QP goes."""
        exchange(self.sock, self.end.context, "disconnect")


class ByCm:
    """The same by the connection manager, which brings the queue pair up, and tells when the peer ends it."""

    def __init__(self, cmid, asks):
        self.cmid, self.asks = cmid, asks
        self.fd = cmid.event_channel.fd
        channel = CompChannel(cmid.context)
        cq = CQ(cmid.context, 2 * DEPTH, None, channel)
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        cmid.create_qp(QPInitAttr(IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=0))
        self.end = SimpleNamespace(context=cmid.context, pd=cmid.pd, qp=cmid.qp, cq=cq, channel=channel)

    def connect(self):
        param = ConnParam(retry=7, rnr_retry=7)
        self.cmid.connect(param) if self.asks else self.cmid.accept(param)
        expect(self.cmid.event_channel, RDMA_CM_EVENT_ESTABLISHED)

    def hung_up(self):
        """Any event is the last one."""
        return True

    def disconnect(self):
        """Who has asked for the connection ends it, and the other one agrees."""
        if self.asks:
            self.cmid.disconnect()
        expect(self.cmid.event_channel, RDMA_CM_EVENT_DISCONNECTED)
        if not self.asks:
            self.cmid.disconnect()
        self.cmid.close()


def expect(channel, kind):
    """The next event of the connection manager, which must be of this kind. It is acknowledged, unless it is kept."""
    event = CMEvent(channel)
    if event.event_type != kind:
        raise ConnectionError(f"{event.event_str()}, status {event.status}")
    return event


class Conversation:
    """One side. `link` leads to the peer; `say` prints; `role` is "active/client" or "passive/server"."""

    def __init__(self, link, mode, role, say):
        self.say = say
        self.writes = mode == "write"
        self.link, self.end = link, link.end
        pd = self.end.pd
        # Each region lets be done what must be done, and no more: what is written to a peer is only read here.
        self.local = MR(pd, REGION, 0 if self.writes else LOCAL)
        self.remote = MR(pd, REGION, LOCAL | WRITE if self.writes else READ)
        self.outgoing = MR(pd, MESSAGE.size, 0)
        self.incoming = MR(pd, MESSAGE.size, LOCAL)
        self.ours = self.local if self.writes else self.remote
        self.theirs = self.remote if self.writes else self.local
        text = f"message from {role} side with pid {os.getpid()}"
        self.ours.write(text, len(text))
        self.sent = self.received = 0  # completions: MR sent, RDMA done, DONE sent; MR received, DONE received
        self.region_sent = False
        self.peer = None  # address, length and rkey
        self._post_receive()

    def connect(self):
        """The receive is posted already: nothing comes too early."""
        self.link.connect()

    def run(self):
        """From MSG_MR to the end; one completion after the other."""
        done = False
        while not done:
            wc = check(self._wait())
            if wc.opcode == ibv_wc_opcode.IBV_WC_RECV:
                self._receive()
            else:
                self.say("send completed successfully.")
                self.sent += 1
            if (self.sent, self.received) == (1, 1):
                what = "writing message to" if self.writes else "reading message from"
                self.say(f"received MSG_MR. {what} remote memory...")
                self._work()
            done = (self.sent, self.received) == (3, 2)
        self.say(f"remote buffer: {self.theirs.read(REGION, 0).rstrip(bytes(1)).decode()}")

    def _wait(self):
        """The next completion, as `End.wait` does it, but not from a peer that is gone."""
        cq, channel = self.end.cq, self.end.channel
        while True:
            if found := cq.poll()[1]:
                return found[0]
            cq.req_notify()
            if found := cq.poll()[1]:
                return found[0]
            while not (ready := select.select([channel.fd, self.link.fd], [], [], 0.001)[0]):
                self.end.context.advance()  # as in `exchange`
            if channel.fd in ready:
                channel.get_cq_event(cq)
                cq.ack_events(1)
            elif self.link.hung_up():
                if found := cq.poll()[1]:  # what came before
                    return found[0]
                raise ConnectionError("the peer has hung up")

    def send_region(self):
        """MSG_MR. The client begins, and the server answers."""
        self.region_sent = True
        self._send(MSG_MR, self.remote.buf, REGION, self.remote.rkey)

    def _send(self, kind, address=0, length=0, rkey=0, before=None):
        """A SEND; with `before`, another request is posted with it, just ahead."""
        self.outgoing.write(MESSAGE.pack(kind, address, length, rkey), MESSAGE.size)
        wr = SendWR(num_sge=1, sg=[SGE(self.outgoing.buf, MESSAGE.size, self.outgoing.lkey)])
        if before is not None:
            before.next_wr = wr
        self.end.qp.post_send(before or wr)

    def _post_receive(self):
        # A peer that sends when nothing is posted is told so (RNR NAK), and tries again: for ever, as rnr_retry is 7.
        self.end.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.incoming.buf, MESSAGE.size, self.incoming.lkey)]))

    def _receive(self):
        kind, *region = MESSAGE.unpack(self.incoming.read(MESSAGE.size, 0))
        self.received += 1
        if kind == MSG_MR:
            self.peer = region
            self._post_receive()
            if not self.region_sent:
                self.send_region()

    def _work(self):
        """The RDMA operation, and MSG_DONE right behind it."""
        address, length, rkey = self.peer
        opcode = ibv_wr_opcode.IBV_WR_RDMA_WRITE if self.writes else ibv_wr_opcode.IBV_WR_RDMA_READ
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(self.local.buf, length, self.local.lkey)])
        wr.set_wr_rdma(rkey, address)
        self._send(MSG_DONE, before=wr)


def speaker(name, both):
    """What prints a line; in a process with both sides it says which of them speaks."""

    def say(text):
        sys.stdout.write(f"{name}: {text}\n" if both else f"{text}\n")
        sys.stdout.flush()

    return say


def in_thread(function, *arguments):
    """Starts a thread, which ends the process if it fails."""

    def work():
        try:
            function(*arguments)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    thread = threading.Thread(target=work)
    thread.start()
    return thread
