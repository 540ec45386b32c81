"""A key-value store that its server takes no part in: clients read with RDMA READ, and write with compare-and-swap.

Run it: `verbena run examples/key_value.py`

The server registers a table, and tells where it is; from then on its program does nothing. A slot of the table:

    version   8 bytes   even: the slot is at rest; odd: someone is writing it
    key      24 bytes   zeros: the slot is free
    value    32 bytes

GET is one READ of the slot, and one of the version alone: if that is still the same, and even, nobody wrote meanwhile.
(A READ is no atomic operation: a writer may change the second half of what a READ has taken the first half of.)

PUT takes the slot: compare-and-swap changes the version from what was read to the next odd number, if it still is what
was read. The adapter that has the memory does that in one piece, so of two writers one wins, and the other sees what
stood there instead. Then it WRITEs key and value, and frees the slot by a second compare-and-swap.

It prints:

    Bob gets colour: green, shape: round, size: None
    Ann takes version 2 of colour: True
    Bob takes version 2 of colour: False
    Bob gets colour: red
    Ann gets colour: blue, version 6
    2 of 16 slots are in use; the server has seen 0 completions
"""

import struct
import zlib

from connection import ATOMIC, LOCAL, READ, WRITE, End, check, connect_all, open_both
from pyverbs.libibverbs_enums import (
    IBV_SEND_SIGNALED,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from pyverbs.mr import MR
from pyverbs.wr import SGE, SendWR

SLOT = struct.Struct("<Q24s32s")
SLOTS = 16
VERSION = 8  # bytes


class Client:
    """One client, on queue pair `index` of an end. `table` is address and rkey of the server's table."""

    def __init__(self, name, end, index, table):
        self.name, self.end, self.qp = name, end, end.qps[index]
        self.address, self.rkey = table
        self.mr = MR(end.pd, SLOT.size, LOCAL)

    def _run(self, wr):
        """Posts one request, and waits until it is complete."""
        self.qp.post_send(wr)
        check(self.end.poll()[0])

    def _rdma(self, opcode, at, length, offset=0):
        sge = SGE(self.mr.buf + offset, length, self.mr.lkey)
        wr = SendWR(opcode=opcode, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED)
        wr.set_wr_rdma(self.rkey, at)
        self._run(wr)

    def _swap(self, at, old, new):
        """Compare-and-swap of a version; whether it was `old`."""
        sge = SGE(self.mr.buf, VERSION, self.mr.lkey)
        wr = SendWR(opcode=IBV_WR_ATOMIC_CMP_AND_SWP, num_sge=1, sg=[sge], send_flags=IBV_SEND_SIGNALED)
        wr.set_wr_atomic(self.rkey, at, old, new)
        self._run(wr)
        # What stood there comes back, whether it was swapped or not.
        return int.from_bytes(self.mr.read(VERSION, 0), "little") == old

    def _read(self, at):
        """Version, key and value of a slot, as they were at one time; reads again until that is so."""
        while True:
            self._rdma(IBV_WR_RDMA_READ, at, SLOT.size)
            version, key, value = SLOT.unpack(self.mr.read(SLOT.size, 0))
            self._rdma(IBV_WR_RDMA_READ, at, VERSION)
            if version % 2 == 0 and version == int.from_bytes(self.mr.read(VERSION, 0), "little"):
                return version, key.rstrip(b"\0").decode(), value.rstrip(b"\0").decode()

    def find(self, key):
        """Where the key stands, or where it would: address, version, and value (None if it is not there)."""
        first = zlib.crc32(key.encode())
        for step in range(SLOTS):
            at = self.address + (first + step) % SLOTS * SLOT.size
            version, there, value = self._read(at)
            if there == key:
                return at, version, value
            if not there:
                return at, version, None
        raise MemoryError("the table is full")

    def get(self, key):
        return self.find(key)[2]

    def take(self, at, version):
        """Takes a slot that was found; False if somebody else was quicker."""
        return self._swap(at, version, version + 1)

    def fill(self, at, version, key, value):
        """Writes a slot that was taken, and frees it."""
        self.mr.write(SLOT.pack(0, key.encode(), value.encode()), SLOT.size)
        self._rdma(IBV_WR_RDMA_WRITE, at + VERSION, SLOT.size - VERSION, offset=VERSION)
        if not self._swap(at, version + 1, version + 2):
            raise RuntimeError("somebody wrote to a slot that was taken")

    def put(self, key, value):
        while True:
            at, version, _ = self.find(key)
            if self.take(at, version):
                return self.fill(at, version, key, value)


def main():
    clients, server = (End(context, qps=2) for context in open_both())
    table = MR(server.pd, SLOTS * SLOT.size, LOCAL | READ | WRITE | ATOMIC)
    connect_all(clients, server)
    # From here on the server's program does nothing.
    ann, bob = (Client(name, clients, index, (table.buf, table.rkey)) for index, name in enumerate(("Ann", "Bob")))

    ann.put("colour", "green")
    ann.put("shape", "round")
    print(f"Bob gets colour: {bob.get('colour')}, shape: {bob.get('shape')}, size: {bob.get('size')}")

    # Both want to change the colour, and have read the same version of it.
    for_ann, for_bob = ann.find("colour"), bob.find("colour")
    print(f"Ann takes version {for_ann[1]} of colour: {ann.take(*for_ann[:2])}")
    print(f"Bob takes version {for_bob[1]} of colour: {bob.take(*for_bob[:2])}")
    ann.fill(*for_ann[:2], "colour", "red")
    print(f"Bob gets colour: {bob.get('colour')}")
    bob.put("colour", "blue")
    print(f"Ann gets colour: {ann.get('colour')}, version {ann.find('colour')[1]}")

    used = sum(bool(SLOT.unpack(table.read(SLOT.size, i * SLOT.size))[1].rstrip(b"\0")) for i in range(SLOTS))
    print(f"{used} of {SLOTS} slots are in use; the server has seen {len(server.cq.poll()[1])} completions")
    clients.close()
    server.close()


if __name__ == "__main__":
    main()
