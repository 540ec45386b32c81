"""One side of a connection, the same program on both sides: over pyverbs in the guest, over the driver here.

Arguments and results are what JSON knows, as in the guest they pass through the agent. Memory is one region a side,
addressed by offset.
"""

import base64
import hashlib
import importlib
import random
import time


class Peer:
    """Contexts, queue pairs and a region, made by :meth:`open`.

    Parameters
    ----------
    package : str
        ``pyverbs`` or ``verbena.sw.verbs``.
    device : str
    gid_index : int
    """

    context = None

    def __init__(self, package, device, gid_index):
        names = ("addr", "cq", "device", "mr", "pd", "qp", "wr")
        self.verbs = {name: importlib.import_module(f"{package}.{name}") for name in names}
        self.enums = importlib.import_module(f"{package}.enums")
        self.device = device
        self.gid_index = gid_index

    def open(self, size, qps=1, depth=64, sge=1, access=15, gid_index=None):
        """Makes all anew; returns what the other side has to know. ``gid_index``: another one than usual."""
        self.close()
        self.index = self.gid_index if gid_index is None else gid_index
        v = self.verbs
        self.context = v["device"].Context(name=self.device)
        self.pd = v["pd"].PD(self.context)
        self.mr = v["mr"].MR(self.pd, size, access)
        self.cq = v["cq"].CQ(self.context, 2 * qps * depth)
        cap = v["qp"].QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=sge, max_recv_sge=sge)
        init = v["qp"].QPInitAttr(self.enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=0)
        self.qps = [v["qp"].QP(self.pd, init) for _ in range(qps)]
        self.numbers = [qp.qp_num for qp in self.qps]
        self.windows = {}
        gid = self.context.query_gid(1, self.index).gid
        return {"qps": self.numbers, "gid": gid, "address": self.mr.buf, "rkey": self.mr.rkey}

    def connect(self, other, sq_psn, rq_psn, mtu, access=14, rd_atomic=16, **attributes):
        """Brings all queue pairs to RTS, with those of ``other`` (its :meth:`open`) as peers, one by one."""
        for qp, number in zip(self.qps, other["qps"]):
            attr = self.verbs["qp"].QPAttr()
            attr.path_mtu = getattr(self.enums, f"IBV_MTU_{mtu}")
            attr.qp_access_flags = access
            attr.dest_qp_num = number
            attr.sq_psn, attr.rq_psn = sq_psn, rq_psn
            attr.max_rd_atomic = attr.max_dest_rd_atomic = rd_atomic
            for name, value in attributes.items():
                setattr(attr, name, value)
            addr = self.verbs["addr"]
            route = addr.GlobalRoute(dgid=addr.GID(other["gid"]), sgid_index=self.index, hop_limit=64)
            attr.ah_attr = addr.AHAttr(is_global=1, port_num=1, gr=route)
            qp.to_rts(attr)

    def fill(self, seed):
        """Random bytes of a seed all over the region."""
        data = random.Random(seed).randbytes(self.mr.length)
        self.mr.write(data, len(data))

    def digest(self):
        """SHA-256 of the region."""
        return hashlib.sha256(self.mr.read(self.mr.length, 0)).hexdigest()

    def content(self):
        """The region, in base64."""
        return base64.b64encode(self.mr.read(self.mr.length, 0)).decode()

    def _sges(self, sges):
        key = self.mr.lkey
        return [self.verbs["wr"].SGE(self.mr.buf + offset, length, key) for offset, length in sges]

    def recv(self, sges, wr_id=0, qp=0):
        """Posts one receive into ``[[offset, length], ...]``."""
        sges = self._sges(sges)
        self.qps[qp].post_recv(self.verbs["wr"].RecvWR(wr_id, len(sges), sges))

    def post(self, op, sges, remote=(0, 0), wr_id=0, qp=0, imm=0, operands=(0, 0), flags=2):
        """Posts one request; ``remote`` is a key and an address, ``operands`` are those of an atomic."""
        sges = self._sges(sges)
        opcode = getattr(self.enums, f"IBV_WR_{op}")
        wr = self.verbs["wr"].SendWR(wr_id, opcode, num_sge=len(sges), sg=sges, imm_data=imm, send_flags=flags)
        if op.startswith("ATOMIC"):
            wr.set_wr_atomic(*remote, *operands)
        elif op.startswith("RDMA"):
            wr.set_wr_rdma(*remote)
        self.qps[qp].post_send(wr)

    def bind(self, kind, offset, length, access, qp=0):
        """Binds the window of a type to a part of the region, type 1 with length 0 to nothing; its new key."""
        v = self.verbs
        if kind not in self.windows:
            self.windows[kind] = v["mr"].MW(self.pd, kind)
        window = self.windows[kind]
        info = v["mr"].MWBindInfo(self.mr, self.mr.buf + offset, length, access)
        if kind == 1:
            self.qps[qp].bind_mw(window, v["mr"].MWBind(info, self.enums.IBV_SEND_SIGNALED))
            key = window.rkey
        else:
            wr = v["wr"].SendWR(opcode=self.enums.IBV_WR_BIND_MW)
            wr.set_bind_wr(window, info)
            self.qps[qp].post_send(wr)
            key = wr.rkey
        (completion,) = self.poll(1)
        assert completion["status"] == 0, completion
        return key

    def poll(self, count, seconds=10):
        """The next ``count`` completions, or those that came within this time."""
        end = time.monotonic() + seconds
        found = []
        while len(found) < count:
            number, wcs = self.cq.poll(count - len(found))
            found += wcs
            if not number:
                if time.monotonic() > end:
                    break
                time.sleep(0.0002)
        names = ("wr_id", "status", "opcode", "byte_len", "imm_data", "wc_flags")
        return [
            {name: int(getattr(wc, name)) for name in names} | {"qp": self.numbers.index(wc.qp_num)} for wc in found
        ]

    def state(self, qp=0):
        """``enum ibv_qp_state`` of a queue pair."""
        return int(self.qps[qp].query(self.enums.IBV_QP_STATE)[0].qp_state)

    def destroy(self, qp=0):
        """Destroys one queue pair."""
        self.qps[qp].close()

    def close(self):
        if self.context is not None:
            self.context.close()
            self.context = None
