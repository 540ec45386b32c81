"""Connections by address and port: what `connection.py` does by hand, the connection manager does.

Run it: `verbena run examples/rdma_cm.py`

Two queue pairs that want to talk must know each other's address, number and PSN. rdma_cm lets the adapters tell each
other, by messages between their queue pairs with number 1, so that a server listens at a port and a client connects to
it, as over TCP. It brings the queue pairs up, too.

An identifier (CMID) that is made of an address is synchronous: its calls return when all is done. The client is so. One
that is made of a channel hears of each step by an event. The server is so: it wants to see what the client says when
it asks, before it accepts or refuses.

It prints:

    server: listening at 10.0.0.2, port 7471
    server: somebody asks, and says "open, please"
    server: heard "hello from the client"
    client: heard "hello from the server"
    server: the client has ended it
    client: ended
    server: somebody asks, and says "let me in"
    client: refused (Connection refused)
"""

import os
import threading

from connection import open_both
from pyverbs.cm_enums import (
    RAI_PASSIVE,
    RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED,
)
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.libibverbs_enums import IBV_QPT_RC
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPCap, QPInitAttr

CLIENT, SERVER, PORT = "10.0.0.1", "10.0.0.2", "7471"
PASSWORD = "open, please"
SIZE = 64


def queue_pair():
    """Of the client and of the server: rdma_cm makes the completion queues for it."""
    return QPInitAttr(IBV_QPT_RC, cap=QPCap(max_send_wr=4, max_recv_wr=4), sq_sig_all=1)


def send(cmid, mr, text):
    mr.write(text, len(text))
    cmid.post_send(mr, length=len(text))
    cmid.get_send_comp()


def receive(cmid, mr):
    return mr.read(cmid.get_recv_comp().byte_len, 0).decode()


class Server:
    def __init__(self):
        self.channel = CMEventChannel()
        self.listener = CMID(self.channel)
        self.listener.bind_addr(AddrInfo(src=SERVER, src_service=PORT, flags=RAI_PASSIVE))
        self.listener.listen()
        print(f"server: listening at {SERVER}, port {PORT}")

    def event(self, kind):
        event = CMEvent(self.channel)
        if event.event_type != kind:
            raise RuntimeError(f"{event.event_str()}, status {event.status}")
        return event

    def run(self):
        """Serves whoever knows the password, and ends when somebody does not."""
        while True:
            request = self.event(RDMA_CM_EVENT_CONNECT_REQUEST)
            said = request.private_data.rstrip(b"\0").decode()
            print(f'server: somebody asks, and says "{said}"')
            cmid = CMID(request, listen_id=self.listener)
            request.ack_cm_event()
            if said != PASSWORD:
                cmid.reject(b"no")
                return
            self.serve(cmid)

    def serve(self, cmid):
        cmid.create_qp(queue_pair())
        mr = cmid.reg_msgs(SIZE)
        cmid.post_recv(mr)  # before the client can send
        cmid.accept()
        self.event(RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
        print(f'server: heard "{receive(cmid, mr)}"')
        send(cmid, mr, "hello from the server")
        self.event(RDMA_CM_EVENT_DISCONNECTED).ack_cm_event()
        print("server: the client has ended it")
        cmid.disconnect()
        cmid.close()


def ask(password):
    """A connection, or the reason why there is none."""
    cmid = CMID(AddrInfo(src=CLIENT, dst=SERVER, dst_service=PORT), qp_init_attr=queue_pair())
    param = ConnParam()
    param.private_data = password.encode()
    incoming, outgoing = cmid.reg_msgs(SIZE), cmid.reg_msgs(SIZE)
    cmid.post_recv(incoming)
    try:
        cmid.connect(param)
    except PyverbsRDMAError as error:
        print(f"client: refused ({os.strerror(error.error_code)})")
        return
    send(cmid, outgoing, "hello from the client")
    print(f'client: heard "{receive(cmid, incoming)}"')
    cmid.disconnect()
    print("client: ended")


def main():
    near, far = open_both()
    server = Server()
    thread = threading.Thread(target=server.run)
    thread.start()
    ask(PASSWORD)
    ask("let me in")
    thread.join()
    near.close()
    far.close()


if __name__ == "__main__":
    main()
