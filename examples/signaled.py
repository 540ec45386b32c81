"""Completions only now and then: one request in eight is signaled, and its completion stands for all before it.

Run it: `verbena run examples/signaled.py`

A completion costs both sides something: the adapter writes it, the program reads it. A QP carries out its requests in
order, so it is enough to be told of every K-th. But the send queue is a ring, and a request keeps its place until the
program has polled a completion of it or of a later one. Who signals nothing gets stuck when the ring is full.

It prints:

    64 requests, 8 completions, of requests 7, 15, 23, 31, 39, 47, 55, 63
    the data is there
    and if nothing is signaled:
    request 16 is refused: ENOMEM, and no completion will ever free a place
"""

import errno

from connection import LOCAL, WRITE, End, check, connect_all, open_both
from pyverbs.libibverbs_enums import IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE, SendWR

DEPTH = 16  # places in the send queue
EVERY = 8  # must be less than DEPTH, so that there is room while a completion is on its way
COUNT = 64
SIZE = 32


def write(number, near, far, signaled):
    """Posts the RDMA WRITE of piece `number`."""
    at = number * SIZE
    wr = SendWR(
        wr_id=number,
        opcode=IBV_WR_RDMA_WRITE,
        num_sge=1,
        sg=[SGE(near.mr.buf + at, SIZE, near.mr.lkey)],
        send_flags=IBV_SEND_SIGNALED if signaled else 0,
    )
    wr.set_wr_rdma(far.mr.rkey, far.mr.buf + at)
    near.qp.post_send(wr)


def main():
    near, far = (End(context, depth=DEPTH) for context in open_both())
    near.mr = MR(near.pd, COUNT * SIZE, LOCAL)
    far.mr = MR(far.pd, COUNT * SIZE, LOCAL | WRITE)
    connect_all(near, far)
    data = bytes(i % 251 for i in range(COUNT * SIZE))
    near.mr.write(data, len(data))

    free = DEPTH
    told = []
    for number in range(COUNT):
        if not free:
            told.append(check(near.poll()[0]).wr_id)
            free += EVERY
        write(number, near, far, signaled=number % EVERY == EVERY - 1)
        free -= 1
    while free < DEPTH:
        told.append(check(near.poll()[0]).wr_id)
        free += EVERY
    print(f"{COUNT} requests, {len(told)} completions, of requests {', '.join(map(str, told))}")
    print(f"the data is {'there' if far.mr.read(len(data), 0) == data else 'NOT there'}")

    print("and if nothing is signaled:")
    try:
        for number in range(COUNT):
            write(number, near, far, signaled=False)
    except PyverbsRDMAError as error:
        why = errno.errorcode[error.error_code]
        print(f"request {number} is refused: {why}, and no completion will ever free a place")
    near.close()
    far.close()


if __name__ == "__main__":
    main()
