"""Many queue pairs on one completion queue: how a server waits for all its clients at once.

Run it: `verbena run examples/many_qps.py`

A queue pair has one peer, so a server has one for each client. If they share a completion queue, one poll sees what
happens on any of them, and the completion's `qp_num` says on which. The queue must hold what all of them can have under
way: a completion queue that overflows is lost, and all its queue pairs with it.

It prints:

    client 0: 1 received, the last one is 'message 0 of client 0'
    client 1: 2 received, the last one is 'message 1 of client 1'
    client 2: 3 received, the last one is 'message 2 of client 2'
    client 3: 4 received, the last one is 'message 3 of client 3'
    client 4: 5 received, the last one is 'message 4 of client 4'
    client 5: 6 received, the last one is 'message 5 of client 5'
    client 6: 7 received, the last one is 'message 6 of client 6'
    client 7: 8 received, the last one is 'message 7 of client 7'
    36 completions of 8 queue pairs, from one queue
"""

from connection import LOCAL, End, check, connect_all, open_both
from pyverbs.libibverbs_enums import IBV_WC_RECV
from pyverbs.mr import MR
from pyverbs.wr import SGE, RecvWR, SendWR

CLIENTS = 8
SIZE = 64


def post_receive(server, index):
    """Each client has a place of its own in the server's region."""
    server.qps[index].post_recv(
        RecvWR(wr_id=index, num_sge=1, sg=[SGE(server.mr.buf + index * SIZE, SIZE, server.mr.lkey)])
    )


def send(end, index, text):
    end.mr.write(text, len(text), index * SIZE)
    end.qps[index].post_send(
        SendWR(wr_id=index, num_sge=1, sg=[SGE(end.mr.buf + index * SIZE, len(text), end.mr.lkey)])
    )


def main():
    # All clients live on one adapter here, each with its own queue pair.
    clients, server = (End(context, qps=CLIENTS) for context in open_both())
    for end in (clients, server):
        end.mr = MR(end.pd, CLIENTS * SIZE, LOCAL)
    connect_all(clients, server)
    client_of = {qp.qp_num: index for index, qp in enumerate(server.qps)}

    messages = [index + 1 for index in range(CLIENTS)]  # client 0 sends one message, client 7 eight
    total = sum(messages)
    left = list(messages)
    for index in range(CLIENTS):
        post_receive(server, index)
        send(clients, index, f"message {messages[index] - left[index]} of client {index}")

    counts = [0] * CLIENTS
    last = [""] * CLIENTS
    while sum(counts) < total:
        for wc in server.cq.poll(CLIENTS)[1]:
            if check(wc).opcode != IBV_WC_RECV:
                continue
            index = client_of[wc.qp_num]
            counts[index] += 1
            last[index] = server.mr.read(wc.byte_len, index * SIZE).decode()
            post_receive(server, index)
        for wc in clients.cq.poll(CLIENTS)[1]:
            # The message is acknowledged: the client may change its buffer, and send the next one.
            index = check(wc).wr_id
            left[index] -= 1
            if left[index]:
                send(clients, index, f"message {messages[index] - left[index]} of client {index}")
    for index in range(CLIENTS):
        print(f"client {index}: {counts[index]} received, the last one is {last[index]!r}")
    print(f"{total} completions of {CLIENTS} queue pairs, from one queue")
    clients.close()
    server.close()


if __name__ == "__main__":
    main()
