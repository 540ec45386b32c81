"""Frames of RoCEv1 as Wireshark's tshark reads them."""

import subprocess

import pytest
from verbena.sim.devices import world
from verbena.sim.pair import End, connect
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, SendWR

FIELDS = ("eth.type", "infiniband.grh.nxthdr", "infiniband.grh.paylen", "infiniband.grh.sgid", "infiniband.grh.dgid")
FIELDS += ("infiniband.grh.tclass", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "frame.len")


@pytest.mark.verilator
def test_a_write_and_its_ack(tmp_path):
    path = tmp_path / "rocev1.pcapng"
    ends = [End(f"sim{n}", 4096, gid_index=3) for n in range(2)]
    a, b = ends
    with a, b:
        connect(a, b, mtu=1024, psn=16)
        world().capture(path)
        try:
            wr = SendWR(
                0,
                ibv_wr_opcode.IBV_WR_RDMA_WRITE,
                num_sge=1,
                sg=[SGE(a.mr.buf, 1500, a.mr.lkey)],
                send_flags=ibv_send_flags.IBV_SEND_SIGNALED,
            )
            wr.set_wr_rdma(b.mr.rkey, b.mr.buf)
            a.qp.post_send(wr)
            while not a.cq.poll(1)[0]:
                pass
        finally:
            world().capture(None)
        gids = [end.gid for end in ends]
        numbers = [end.qp.qp_num for end in ends]
    command = ["tshark", "-r", path, "-T", "fields", *(part for name in FIELDS for part in ("-e", name))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [int(row[6]) for row in rows] == [0x06, 0x08, 0x11]
    for row, (sender, psn) in zip(rows, ((0, 16), (0, 17), (1, 17)), strict=True):
        kind, nxthdr, paylen, source, target, tclass, _, qp, number, size = row
        assert (int(kind, 0), int(nxthdr, 0), int(tclass, 0), int(number, 0)) == (0x8915, 0x1B, 0, psn)
        assert (type(gids[0])(source), type(gids[0])(target)) == (gids[sender], gids[1 - sender])
        assert (int(qp, 0), int(paylen, 0)) == (numbers[1 - sender], int(size) - 54)
    command = ["tshark", "-r", path, "-Y", "_ws.malformed || _ws.expert.severity == error"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
