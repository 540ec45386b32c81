"""Datagrams: one UD queue pair hears from whoever knows its number, and answers each of them.

Run it: `verbena run examples/datagrams.py`

A connected QP has one peer. A UD QP has none: each request says where it goes, by an address handle (the adapter),
a QP number, and a Q_Key that the receiver must have. Nobody acknowledges, and a message is one packet at most. In front
of each message 40 bytes of the receive buffer hold the sender's addresses; they and the number in the completion
are all that it takes to answer.

It prints:

    server: "hello from QP A" of 15 bytes, and 40 in front
    server: "hello from QP B" of 15 bytes, and 40 in front
    server: each message names the QP that it came from
    QP A: "I heard: hello from QP A"
    QP B: "I heard: hello from QP B"
    with another Q_Key: sent with success, and nobody hears it
"""

from connection import LOCAL, PORT, check, open_both
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.libibverbs_enums import IBV_QPT_UD, IBV_SEND_SIGNALED, IBV_WC_RECV, IBV_WR_SEND
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

QKEY = 0x1234
GRH = 40  # bytes in front of each message
SIZE = 256


class Mailbox:
    """A UD queue pair with places for messages, each on a page of its own: the first is for what it sends."""

    def __init__(self, context, places=4):
        self.pd = PD(context)
        self.cq = CQ(context, 16)
        init = QPInitAttr(IBV_QPT_UD, scq=self.cq, rcq=self.cq, cap=QPCap(8, 8), sq_sig_all=0)
        attr = QPAttr(port_num=PORT)
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr)  # with attributes it starts in RTS: there is no peer to wait for
        self.mr = MR(self.pd, (1 + places) * SIZE, LOCAL)
        for place in range(1, 1 + places):
            self.qp.post_recv(RecvWR(place, 1, [SGE(self.mr.buf + place * SIZE, SIZE, self.mr.lkey)]))

    def send(self, text, way, qpn, qkey=QKEY):
        data = text.encode()
        self.mr.write(data, len(data))
        sge = SGE(self.mr.buf, len(data), self.mr.lkey)
        wr = SendWR(opcode=IBV_WR_SEND, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED)
        wr.set_wr_ud(way, qpn, qkey)
        self.qp.post_send(wr)
        while not self.completions():
            pass

    def completions(self):
        return [check(wc) for wc in self.cq.poll(8)[1]]

    def receive(self):
        """The next message: its completion and its text."""
        while True:
            for wc in self.completions():
                if wc.opcode & IBV_WC_RECV:
                    return wc, self.mr.read(wc.byte_len - GRH, wc.wr_id * SIZE + GRH).decode()


def main():
    near, far = open_both()
    server = Mailbox(far)
    clients = {"A": Mailbox(near), "B": Mailbox(near)}
    route = GlobalRoute(dgid=far.query_gid(PORT, 0), hop_limit=64)
    way = {name: AH(client.pd, attr=AHAttr(port_num=PORT, is_global=1, gr=route)) for name, client in clients.items()}
    for name, client in clients.items():
        client.send(f"hello from QP {name}", way[name], server.qp.qp_num)
    heard = [server.receive() for _ in clients]
    for wc, text in heard:
        print(f'server: "{text}" of {wc.byte_len - GRH} bytes, and {GRH} in front')
    for wc, text in heard:
        back = AH(server.pd, wc=wc, grh=server.mr.buf + wc.wr_id * SIZE, port_num=PORT)
        server.send(f"I heard: {text}", back, wc.src_qp)
    numbers = [client.qp.qp_num for client in clients.values()]
    told = [wc.src_qp for wc, _ in heard] == numbers
    print(f"server: each message names {'the' if told else 'not the'} QP that it came from")
    for name, client in clients.items():
        print(f'QP {name}: "{client.receive()[1]}"')
    clients["A"].send("psst", way["A"], server.qp.qp_num, qkey=QKEY + 1)
    far.advance(10_000)
    print(f"with another Q_Key: sent with success, and {'somebody' if server.completions() else 'nobody'} hears it")
    near.close()
    far.close()


if __name__ == "__main__":
    main()
