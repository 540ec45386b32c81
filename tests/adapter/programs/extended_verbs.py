"""A program of pyverbs' style: extended QPs and CQs, completion events, every operation of RC, each as often as told.

It knows nothing of Verbena, and runs by ``verbena run``.
"""

import errno
import random
import select
import socket
import sys
import threading

import pyverbs.device as d
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import DataBuffer, QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR

PORT, GID_INDEX = 1, 0
SIZE = 1024
IMMEDIATE = 0x89ABCDEF


class Player:
    """What one side has."""

    def __init__(self, device):
        self.ctx = d.Context(name=device.name.decode())
        assert self.ctx.query_port(PORT).state == e.IBV_PORT_ACTIVE
        assert self.ctx.query_device_ex().orig_attr.max_qp > 0
        self.pd = PD(creator=self.ctx)
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
        self.mr = MR(self.pd, SIZE, access | e.IBV_ACCESS_REMOTE_ATOMIC)
        self.channel = CompChannel(self.ctx)
        self.cq = CQEX(self.ctx, CqInitAttrEx(64, self.channel, wc_flags=e.IBV_WC_STANDARD_FLAGS))
        operations = (
            e.IBV_QP_EX_WITH_SEND
            | e.IBV_QP_EX_WITH_SEND_WITH_IMM
            | e.IBV_QP_EX_WITH_RDMA_WRITE
            | e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
            | e.IBV_QP_EX_WITH_RDMA_READ
            | e.IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
            | e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        )
        init = QPInitAttrEx(
            qp_type=e.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.cq,
            cap=QPCap(max_send_wr=16, max_recv_wr=16, max_inline_data=32),
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            pd=self.pd,
            send_ops_flags=operations,
        )
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = access | e.IBV_ACCESS_REMOTE_ATOMIC
        self.qp = QPEx(self.ctx, init, attr)
        self.psn = random.getrandbits(24)
        self.gid = self.ctx.query_gid(PORT, GID_INDEX)

    def connect(self, peer):
        route = GlobalRoute(dgid=peer.gid, sgid_index=GID_INDEX)
        attr = QPAttr(port_num=PORT)
        attr.ah_attr = AHAttr(port_num=PORT, is_global=1, gr=route)
        attr.dest_qp_num = peer.qp.qp_num
        attr.sq_psn, attr.rq_psn = self.psn, peer.psn
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 14, 7, 7
        self.qp.to_rts(attr)

    @property
    def sge(self):
        return SGE(self.mr.buf, SIZE, self.mr.lkey)

    def post_recv(self):
        self.qp.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[self.sge]))

    def wait(self):
        """Sleeps until there is an event, and takes the completion."""
        if not select.select([self.channel.fd], [], [], 60)[0]:
            raise TimeoutError("no event came")
        self.channel.get_cq_event(self.cq)
        self.cq.ack_events(1)
        self.cq.req_notify()
        assert self.cq.start_poll(PollCqAttr()) == 0
        assert self.cq.status == e.IBV_WC_SUCCESS, self.cq.status
        found = self.cq.wr_id, self.cq.read_opcode(), self.cq.read_byte_len(), self.cq.read_imm_data()
        flags = self.cq.read_wc_flags()
        assert self.cq.poll_next() == errno.ENOENT
        self.cq.end_poll()
        return (*found, flags)


def fill(player, character):
    player.mr.write(character * SIZE, SIZE)


def send(client, server, with_imm, inline=False):
    server.post_recv()
    fill(client, "c")
    fill(server, "s")
    size = 32 if inline else SIZE
    client.qp.wr_start()
    client.qp.wr_id, client.qp.wr_flags = 2, e.IBV_SEND_SIGNALED
    if with_imm:
        client.qp.wr_send_imm(IMMEDIATE)
    else:
        client.qp.wr_send()
    if inline:
        client.qp.wr_set_inline_data_list(2, [DataBuffer(client.mr.buf, 16), DataBuffer(client.mr.buf + 16, 16)])
    else:
        client.qp.wr_set_sge(client.sge)
    client.qp.wr_complete()
    wr_id, opcode, length, imm, flags = server.wait()
    assert (wr_id, opcode, length) == (1, e.IBV_WC_RECV, size)
    if with_imm:
        assert flags & e.IBV_WC_WITH_IMM
        assert socket.ntohl(imm) == IMMEDIATE
    assert client.wait()[:2] == (2, e.IBV_WC_SEND)
    assert server.mr.read(SIZE, 0) == b"c" * size + b"s" * (SIZE - size)


def write(client, server, with_imm):
    if with_imm:
        server.post_recv()
    fill(client, "c")
    fill(server, "s")
    client.qp.wr_start()
    client.qp.wr_id, client.qp.wr_flags = 3, e.IBV_SEND_SIGNALED
    if with_imm:
        client.qp.wr_rdma_write_imm(server.mr.rkey, server.mr.buf, IMMEDIATE)
    else:
        client.qp.wr_rdma_write(server.mr.rkey, server.mr.buf)
    client.qp.wr_set_sge_list(1, [client.sge])
    client.qp.wr_complete()
    if with_imm:
        wr_id, opcode, length, imm, _ = server.wait()
        assert (wr_id, opcode, length) == (1, e.IBV_WC_RECV_RDMA_WITH_IMM, SIZE)
        assert socket.ntohl(imm) == IMMEDIATE
    assert client.wait()[:2] == (3, e.IBV_WC_RDMA_WRITE)
    assert server.mr.read(SIZE, 0) == b"c" * SIZE


def read(client, server):
    fill(client, "c")
    fill(server, "s")
    client.qp.wr_start()
    client.qp.wr_id, client.qp.wr_flags = 4, e.IBV_SEND_SIGNALED
    client.qp.wr_rdma_read(server.mr.rkey, server.mr.buf)
    client.qp.wr_set_sge(client.sge)
    client.qp.wr_complete()
    assert client.wait()[:3] == (4, e.IBV_WC_RDMA_READ, SIZE)
    assert client.mr.read(SIZE, 0) == b"s" * SIZE


def atomics(client, server):
    server.mr.write((100).to_bytes(8, sys.byteorder), 8)
    for begin, opcode, before, after in (
        (lambda: client.qp.wr_atomic_fetch_add(server.mr.rkey, server.mr.buf, 5), e.IBV_WC_FETCH_ADD, 100, 105),
        (lambda: client.qp.wr_atomic_cmp_swp(server.mr.rkey, server.mr.buf, 105, 7), e.IBV_WC_COMP_SWAP, 105, 7),
        (lambda: client.qp.wr_atomic_cmp_swp(server.mr.rkey, server.mr.buf, 8, 9), e.IBV_WC_COMP_SWAP, 7, 7),
    ):
        client.qp.wr_start()
        client.qp.wr_id, client.qp.wr_flags = 5, e.IBV_SEND_SIGNALED
        begin()
        client.qp.wr_set_sge(SGE(client.mr.buf, 8, client.mr.lkey))
        client.qp.wr_complete()
        assert client.wait()[:2] == (5, opcode)
        assert int.from_bytes(client.mr.read(8, 0), sys.byteorder) == before
        assert int.from_bytes(server.mr.read(8, 0), sys.byteorder) == after


def aborted(client, server):
    fill(client, "c")
    fill(server, "s")
    client.qp.wr_start()
    client.qp.wr_rdma_write(server.mr.rkey, server.mr.buf)
    client.qp.wr_set_sge(client.sge)
    client.qp.wr_abort()
    read(client, server)  # which would come behind it


def refused(client):
    code = 0
    try:
        QPEx(
            client.ctx,
            QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, scq=client.cq, rcq=client.cq, comp_mask=1, pd=client.pd),
        )
    except PyverbsRDMAError as error:
        code = error.error_code
    assert code == errno.EOPNOTSUPP


def main():
    devices = d.get_device_list()
    client, server = Player(devices[0]), Player(devices[1])
    client.connect(server)
    server.connect(client)
    for player in (client, server):
        player.cq.req_notify()
    tests = {
        "send": lambda: send(client, server, False),
        "send_imm": lambda: send(client, server, True),
        "send_inline": lambda: send(client, server, False, inline=True),
        "write": lambda: write(client, server, False),
        "write_imm": lambda: write(client, server, True),
        "read": lambda: read(client, server),
        "atomics": lambda: atomics(client, server),
        "aborted": lambda: aborted(client, server),
    }
    for name, test in tests.items():
        for _ in range(int(sys.argv[1])):
            test()
        print(name, "ok", flush=True)
    refused(client)
    client.ctx.close()
    server.ctx.close()
    print("done")


if __name__ == "__main__":
    # Devices that are simulated stand still while everybody sleeps, unless somebody gives them time.
    over = threading.Event()
    if hasattr(d.Context, "advance"):
        keeper = d.Context(name=d.get_device_list()[0].name.decode())

        def give_time():
            while not over.is_set():
                keeper.advance()

        mover = threading.Thread(target=give_time)
        mover.start()
    try:
        main()
    finally:
        over.set()
