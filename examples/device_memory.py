"""From one adapter's own memory to the other's: no byte of it ever stands in host memory.

Run it: `verbena run examples/device_memory.py`

An adapter may have memory of its own (`max_dm_size` says how much), and so may an accelerator beside it. A region of
such memory is registered like any other, and named by its key; with ZERO_BASED its first byte has the address 0. The
program reaches the adapter's memory by copying only. An RDMA WRITE goes from the one memory to the other by itself.

It prints:

    each adapter has 1048576 bytes of its own
    near writes 300000 of them to far
    far has them: True
"""

from connection import LOCAL, WRITE, End, check, connect_all, open_both
from pyverbs.device import DM, AllocDmAttr
from pyverbs.libibverbs_enums import IBV_ACCESS_ZERO_BASED, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE
from pyverbs.mr import DMMR
from pyverbs.wr import SGE, SendWR

LENGTH = 300_000


def main():
    near, far = (End(context) for context in open_both())
    connect_all(near, far)
    size = {end.context.query_device_ex().max_dm_size for end in (near, far)}
    print(f"each adapter has {size.pop()} bytes of its own")
    memory = [DM(end.context, AllocDmAttr(LENGTH)) for end in (near, far)]
    source = DMMR(near.pd, LENGTH, IBV_ACCESS_ZERO_BASED, memory[0], 0)
    sink = DMMR(far.pd, LENGTH, LOCAL | WRITE | IBV_ACCESS_ZERO_BASED, memory[1], 0)
    content = bytes(number * number % 251 for number in range(LENGTH))
    memory[0].copy_to_dm(0, content, LENGTH)

    sge = SGE(0, LENGTH, source.lkey)
    wr = SendWR(opcode=IBV_WR_RDMA_WRITE, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED)
    wr.set_wr_rdma(sink.rkey, 0)
    near.qp.post_send(wr)
    check(near.poll()[0])
    print(f"near writes {LENGTH} of them to far")
    print(f"far has them: {memory[1].copy_from_dm(0, LENGTH) == content}")
    near.close()
    far.close()


if __name__ == "__main__":
    main()
