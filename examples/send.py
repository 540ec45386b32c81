"""A SEND in four steps, with all that an adapter sees: each WQE, packet and CQE, field by field.

Run it: `verbena run examples/send.py`

1. Create: memory that the adapters may use, completion queues, a queue pair on each side.
2. Post: the receiver says where a message may go, the sender what to send. Each writes a work queue entry (WQE) into a
   ring in its memory, and rings a doorbell.
3. Stream: the sender's adapter reads the message, and cuts it into packets.
4. Complete: the receiver's adapter acknowledges, and each side finds a completion queue entry (CQE).

At the end the same with a receive that is too short.

It prints:

    1. create
      sender's queue pair: state IBV_QPS_RTS, first_psn 100
      receiver's queue pair: state IBV_QPS_RTS, first_psn 5000
    2. post
      receiver's receive WQE: sge0 [buffer+0, 1024 bytes, lkey 0x2d40bf]
      sender's send WQE: opcode SEND, flags SIGNALED, length 600, sge_count 1, sge0 [buffer+0, 600 bytes, lkey 0x3acde9]
    3. stream, and 4. complete
      packet from adapter0: SEND_FIRST: psn 100, payload 256
      packet from adapter0: SEND_MIDDLE: psn 101, payload 256
      packet from adapter0: SEND_LAST: psn 102, payload 88, ack_request 1
      packet from adapter1: ACKNOWLEDGE: psn 102, payload 0, msn 1
      receiver's CQE: status SUCCESS, opcode RECV, wqe_index 0, byte_length 600
      sender's CQE: status SUCCESS, opcode SEND, wqe_index 0
      receiver polls: wr_id 1, status IBV_WC_SUCCESS
      sender polls: wr_id 2, status IBV_WC_SUCCESS
      the message is there
    an error: the receive is too short
      receiver's receive WQE: sge0 [buffer+0, 300 bytes, lkey 0x2d40bf]
      sender's send WQE: opcode SEND, flags SIGNALED, length 600, sge_count 1, sge0 [buffer+0, 600 bytes, lkey 0x3acde9]
      packet from adapter0: SEND_FIRST: psn 103, payload 256, ack_request 1
      packet from adapter0: SEND_MIDDLE: psn 104, payload 256
      packet from adapter0: SEND_LAST: psn 105, payload 88, ack_request 1
      packet from adapter1: ACKNOWLEDGE: psn 103, payload 0, msn 1
      packet from adapter1: NAK invalid request: psn 104, payload 0, msn 1
      receiver's CQE: status LOC_LEN_ERR, wqe_index 1, syndrome RECV_TOO_SHORT
      sender's CQE: status REM_INV_REQ_ERR, wqe_index 1, syndrome REMOTE_NAK
      receiver polls: wr_id 3, status IBV_WC_LOC_LEN_ERR
      receiver's queue pair: state IBV_QPS_ERR
      sender polls: wr_id 4, status IBV_WC_REM_INV_REQ_ERR
      sender's queue pair: state IBV_QPS_ERR
"""

import tempfile
from pathlib import Path

from connection import LOCAL, End
from pyverbs.libibverbs_enums import IBV_MTU_256, ibv_wc_status
from pyverbs.mr import MR
from pyverbs.wr import SGE, RecvWR, SendWR

# Programs need none of this: we look into the rings, and at the wire.
from verbena.hdl.abi import cqe, wqe
from verbena.sim.trace.capture_file import read_capture
from verbena.sim.trace.packets import dissect
from verbena.sim.world import World

MESSAGE = b"Everything is a queue. " * 26 + b"!!"  # 600 bytes: at an MTU of 256, three packets


def show(title, **fields):
    print(f"  {title}: " + ", ".join(f"{name} {value}" for name, value in fields.items()))


class Side(End):
    """An end with a region, that shows what stands in its rings."""

    def __init__(self, world, number, name):
        super().__init__(world.context(f"sim{number}"))
        self.name = name
        self.mr = MR(self.pd, 1024, LOCAL)
        self.seen = 0  # CQEs that have been shown

    def sge(self, length):
        return SGE(self.mr.buf, length, self.mr.lkey)

    def _entry(self, data):
        """A scatter/gather entry, with its address as a place in our region."""
        sge = wqe.SGE.unpack(data)
        return f"[buffer+{sge['address'] - self.mr.buf}, {sge['length']} bytes, lkey {sge['lkey']:#x}]"

    def show_send_wqe(self):
        """The WQE that was posted last."""
        data = self.qp._sq.entry(self.qp._sq.producer - 1)
        fields = wqe.SEND_WQE.unpack(data[: wqe.SEND_WQE.size])
        show(
            f"{self.name}'s send WQE",
            opcode=wqe.SendOpcode(fields["opcode"]).name,
            flags=wqe.SendFlag(fields["flags"]).name,
            length=fields["length"],
            sge_count=fields["sge_count"],
            sge0=self._entry(data[wqe.SGE_OFFSET :][: wqe.SGE.size]),
        )

    def show_receive_wqe(self):
        data = self.qp._rq.entry(self.qp._rq.producer - 1)
        show(f"{self.name}'s receive WQE", sge0=self._entry(data[: wqe.SGE.size]))

    def show_new_cqe(self):
        """The next CQE, if the adapter has written it."""
        at = self.cq._ring + cqe.CQE.size * self.seen
        fields = cqe.CQE.unpack(self.context._adapter.memory.read(at, cqe.CQE.size))
        if not fields["phase"]:
            return
        self.seen += 1
        good = fields["status"] == cqe.WcStatus.SUCCESS
        show(
            f"{self.name}'s CQE",
            status=cqe.WcStatus(fields["status"]).name,
            **({"opcode": cqe.WcOpcode(fields["opcode"]).name} if good else {}),
            wqe_index=fields["wqe_index"],
            **({"byte_length": fields["byte_length"]} if good and fields["opcode"] == cqe.WcOpcode.RECV else {}),
            **({} if good else {"syndrome": cqe.Syndrome(fields["syndrome"]).name}),
        )


class Wire:
    """The frames on the wire, by way of a capture file."""

    def __init__(self, world, path):
        self.world, self.path = world, path
        self.seen = 0
        world.capture(path)

    def show_new_frames(self):
        self.world.flush()
        frames = read_capture(self.path).frames
        for frame in frames[self.seen :]:
            packet = dissect(frame.data)
            fields = {"psn": packet.psn, "payload": packet.payload}
            if packet.fields["bth.ack_request"]:
                fields["ack_request"] = 1
            if packet.syndrome is not None:
                fields["msn"] = packet.fields["aeth.msn"]
            show(f"packet from {frame.port}: {packet.name}", **fields)
        self.seen = len(frames)


def watch(world, wire, sides, count):
    """Lets time pass in small steps until each side has `count` CQEs, and shows what appears."""
    while any(side.seen < count for side in sides):
        world.advance(16)
        wire.show_new_frames()
        for side in sides:
            side.show_new_cqe()


def main(world, path):
    print("1. create")
    sender, receiver = Side(world, 0, "sender"), Side(world, 1, "receiver")
    sender.psns, receiver.psns = [100], [5000]
    sender.connect(receiver.address(), mtu=IBV_MTU_256)
    receiver.connect(sender.address(), mtu=IBV_MTU_256)
    for side in (sender, receiver):
        show(f"{side.name}'s queue pair", state=side.qp.qp_state.name, first_psn=side.psns[0])
    wire = Wire(world, path)

    print("2. post")
    sender.mr.write(MESSAGE, len(MESSAGE))
    receiver.qp.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[receiver.sge(1024)]))
    receiver.show_receive_wqe()
    sender.qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[sender.sge(len(MESSAGE))]))
    sender.show_send_wqe()

    print("3. stream, and 4. complete")
    watch(world, wire, (sender, receiver), 1)
    # What programs see of a CQE is a work completion: its wr_id is the number that we gave.
    for side in (receiver, sender):
        wc = side.poll()[0]
        show(f"{side.name} polls", wr_id=wc.wr_id, status=ibv_wc_status(wc.status).name)
    print(f"  the message is {'there' if receiver.mr.read(len(MESSAGE), 0) == MESSAGE else 'NOT there'}")

    print("an error: the receive is too short")
    receiver.qp.post_recv(RecvWR(wr_id=3, num_sge=1, sg=[receiver.sge(300)]))
    receiver.show_receive_wqe()
    sender.qp.post_send(SendWR(wr_id=4, num_sge=1, sg=[sender.sge(len(MESSAGE))]))
    sender.show_send_wqe()
    watch(world, wire, (sender, receiver), 2)
    for side in (receiver, sender):
        wc = side.poll()[0]
        show(f"{side.name} polls", wr_id=wc.wr_id, status=ibv_wc_status(wc.status).name)
        show(f"{side.name}'s queue pair", state=side.qp.qp_state.name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, World(adapters=2, seed=1) as world:
        main(world, Path(folder) / "send.pcapng")
