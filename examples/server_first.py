"""A server thread that waits first: nothing is posted yet, and no client is there.

Run it: `verbena run examples/server_first.py`

The server's thread posts a receive and sleeps in `get_cq_event`. Nothing can happen on the wire before the client
sends; the thread waits nevertheless, as another one is alive that may bring something about. (If none was, the wait
would end with EDEADLK: in simulation the driver knows that nothing can come any more.) Any thread may use a queue pair
or a completion queue; here each thread has an end of its own.

The server turns each text round and sends it back, until it gets an empty message.

It prints:

    the server waits
    'level' comes back as 'level'
    'stressed' comes back as 'desserts'
    'a man a plan' comes back as 'nalp a nam a'
    the server has answered 3 times
"""

import queue
import threading

from connection import LOCAL, End, check, connect_all, open_both
from pyverbs.libibverbs_enums import IBV_WC_RECV, IBV_WC_SEND
from pyverbs.mr import MR
from pyverbs.wr import SGE, RecvWR, SendWR

SIZE = 64
TEXTS = ("level", "stressed", "a man a plan")


class Talker(End):
    """An end that sends from the second half of its region, and receives into the first."""

    def __init__(self, context):
        super().__init__(context, events=True)
        self.mr = MR(self.pd, 2 * SIZE, LOCAL)
        self.kept = {IBV_WC_SEND: 0, IBV_WC_RECV: 0}  # completions that nobody has asked for yet
        self.length = 0

    def post_receive(self):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[SGE(self.mr.buf, SIZE, self.mr.lkey)]))

    def send(self, text):
        self.mr.write(text, len(text), SIZE)
        self.qp.post_send(SendWR(num_sge=1, sg=[SGE(self.mr.buf + SIZE, len(text), self.mr.lkey)]))

    def sleep_until(self, opcode):
        """Sleeps until a completion of this kind has come; others are kept for later."""
        while not self.kept[opcode]:
            wc = check(self.wait())
            self.kept[wc.opcode] += 1
            if wc.opcode == IBV_WC_RECV:
                self.length = wc.byte_len
        self.kept[opcode] -= 1

    def receive(self):
        self.sleep_until(IBV_WC_RECV)
        return self.mr.read(self.length, 0).decode()


def serve(end, said):
    end.post_receive()
    said.put("the server waits")
    count = 0
    while text := end.receive():
        end.post_receive()  # before the answer: the client may send again as soon as it has that
        end.send(text[::-1])
        end.sleep_until(IBV_WC_SEND)  # before it is complete, the text must stay as it is
        count += 1
    said.put(f"the server has answered {count} times")


def main():
    client, server = (Talker(context) for context in open_both())
    connect_all(client, server)
    said = queue.Queue()
    thread = threading.Thread(target=serve, args=(server, said))
    thread.start()
    print(said.get())

    for text in TEXTS:
        client.post_receive()
        client.send(text)
        client.sleep_until(IBV_WC_SEND)
        print(f"{text!r} comes back as {client.receive()!r}")
    client.send("")
    client.sleep_until(IBV_WC_SEND)
    thread.join()
    print(said.get())
    client.close()
    server.close()


if __name__ == "__main__":
    main()
