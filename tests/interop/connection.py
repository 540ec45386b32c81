"""Two connected peers, and a model of what completes on both sides and of what their memory must hold."""

import base64
import hashlib
import random

from frames import ADAPTER, GUEST

__all__ = [
    "ATOMICS",
    "CMP_SWP",
    "FETCH_ADD",
    "FLUSHED",
    "OPS",
    "PATIENT",
    "READ",
    "REQUESTER",
    "RESPONDER",
    "SEND",
    "SEND_IMM",
    "UNHURRIED",
    "WRITE",
    "WRITE_IMM",
    "Connection",
]

SEND, SEND_IMM = "SEND", "SEND_WITH_IMM"
WRITE, WRITE_IMM = "RDMA_WRITE", "RDMA_WRITE_WITH_IMM"
READ, CMP_SWP, FETCH_ADD = "RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"
OPS = (SEND, SEND_IMM, WRITE, WRITE_IMM, READ)
ATOMICS = (CMP_SWP, FETCH_ADD)

REQUESTER, RESPONDER = "requester", "responder"
"""What the adapter is; the guest is the other."""

GID_INDICES = {"IPv4": {ADAPTER: None, GUEST: None}, "IPv6": {ADAPTER: 1, GUEST: 0}}
"""Of the link-local IPv6 addresses; Linux has them in front."""

RECEIVED = (SEND, SEND_IMM, WRITE_IMM)
WC_OPCODES = {SEND: 0, SEND_IMM: 0, WRITE: 1, WRITE_IMM: 1, READ: 2, CMP_SWP: 3, FETCH_ADD: 4}
WC_RECV, WC_RECV_WITH_IMM = 128, 129
WITH_IMM = 2
FLUSHED = 5
RECEIVE = 1 << 20
"""Added to the wr_id of receives: of what failed, only the wr_id tells what it was."""

PATIENT = {"timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 12}
UNHURRIED = PATIENT | {"timeout": 22}
"""For the guest, to which simulated time seems to creep: 17 s. Without any timeout a message of more than 64 packets
would now and then never end: Linux' requester waits while more than 64 are on their way to the card, and if the last of
them are freed between its look at their number and its note that it waits (``need_req_skb`` in ``rxe_req.c``), only a
timeout wakes it."""


class Side:
    """One peer, with the model of its memory."""

    def __init__(self, name, peer, seed, size, options):
        self.name = name
        self.peer = peer
        self.info = peer.open(size=size, **options)
        peer.fill(seed=seed)
        self.memory = bytearray(random.Random(seed).randbytes(size))
        self.awaited = {}  # by queue pair and whether it is a receive, in order

    def gather(self, sges):
        return b"".join(self.memory[at : at + length] for at, length in sges)

    def scatter(self, sges, data):
        for at, length in sges:
            self.memory[at : at + len(data[:length])] = data[:length]
            data = data[length:]

    def word(self, at):
        return int.from_bytes(self.memory[at : at + 8], "little")

    def expect(self, qp, receive, **completion):
        self.awaited.setdefault((qp, receive), []).append(completion)

    def complete(self):
        """Takes all completions that are awaited and compares them."""
        count = sum(map(len, self.awaited.values()))
        wcs = self.peer.poll(count=count, seconds=30)
        assert len(wcs) == count, f"{self.name}: {len(wcs)} of {count} completions came: {wcs}"
        came = {}
        for wc in wcs:
            came.setdefault((wc["qp"], wc["wr_id"] >= RECEIVE), []).append(wc)
        for queue, expected in self.awaited.items():
            for wanted, got in zip(expected, came.get(queue, []), strict=True):
                seen = {name: got[name] for name in wanted if name in got}
                if "imm" in wanted:
                    seen["imm"] = got["imm_data"] if got["wc_flags"] & WITH_IMM else None
                assert seen == wanted, f"{self.name}: completion {got}, not {wanted}"
        self.awaited = {}

    def accept(self, at, length, changed):
        """Takes over what a part of the memory holds; each byte of it is either as before or as in ``changed``."""
        content = base64.b64decode(self.peer.content())[at : at + length]
        for index, (now, old, new) in enumerate(zip(content, self.memory[at : at + length], changed)):
            assert now in (old, new), f"{self.name}: byte {at + index:#x} is {now:#x}, not {old:#x} or {new:#x}"
        self.memory[at : at + length] = content

    def compare(self):
        """The memory must hold what the model says, every byte."""
        if self.peer.digest() == hashlib.sha256(self.memory).hexdigest():
            return
        content = base64.b64decode(self.peer.content())
        wrong = [at for at, (a, b) in enumerate(zip(content, self.memory)) if a != b]
        at = wrong[0]
        raise AssertionError(
            f"{self.name}: {len(wrong)} bytes are wrong, from {at:#x} to {wrong[-1]:#x}: {content[at : at + 8].hex()}, "
            f"not {self.memory[at : at + 8].hex()}"
        )


class Connection:
    """Queue pairs of adapter and guest, connected one by one; ``near`` requests, unless said otherwise.

    Parameters
    ----------
    bench : Bench
    role : str
        What the adapter is.
    size : int
        Of each region.
    mtu, psn : int
        ``psn`` is the first of ``near``; the other begins one higher.
    qps, depth, sge : int
        Of each side.
    rights : int
        Of the far region.
    access : int
        Of the far queue pairs.
    network : str
        IPv4, or IPv6: then the link-local addresses.
    gids : dict, optional
        Indices of other addresses, of both sides.
    here, there : dict
        Attributes of the adapter's queue pairs and of the guest's.
    """

    def __init__(
        self,
        bench,
        role,
        *,
        size=1 << 17,
        mtu=1024,
        psn=100,
        qps=1,
        depth=64,
        sge=1,
        rights=15,
        access=14,
        network="IPv4",
        gids=None,
        here=PATIENT,
        there=UNHURRIED,
    ):
        self.bench = bench
        options = {"qps": qps, "depth": depth, "sge": sge}
        gids = gids or GID_INDICES[network]
        peers = [(ADAPTER, bench.here, here), (GUEST, bench.there, there)]
        if role == RESPONDER:
            peers.reverse()
        self.near, self.far = self.sides = [
            Side(
                name,
                peer,
                seed,
                size,
                options | {"gid_index": gids[name]} | ({"access": rights} if seed == 2 else {}),
            )
            for seed, (name, peer, _) in enumerate(peers, 1)
        ]
        for index, (side, attributes) in enumerate(zip(self.sides, (peers[0][2], peers[1][2]))):
            other = self.sides[1 - index]
            flags = {"access": access} if index else {}
            psns = {"sq_psn": psn + index & 0xFFFFFF, "rq_psn": psn + 1 - index & 0xFFFFFF}
            side.peer.connect(other=other.info, mtu=mtu, **psns, **flags, **attributes)
        self._count = 0
        self._late = []

    def post(self, op, local, remote, *, qp=0, operands=(0, 0), back=False, late=False, rkey=None, address=None):
        """Posts one operation, and the receive that it needs, unless that is to come ``late``.

        ``local`` and ``remote`` are lists of ``[offset, length]``; of what is not a SEND, only the first remote offset
        counts. ``back``: the far side requests. ``rkey`` and ``address`` replace the right ones.
        """
        near, far = self.sides[::-1] if back else self.sides
        number = self._post(near, far, op, local, remote, qp, operands, late, rkey, address)
        self._model(near, far, op, local, remote, qp, operands, number)

    def post_bad(self, op, local, remote, status, *, received=None, rkey=None, address=None, late=False):
        """Posts an operation that will fail with ``status``, and change no memory; its receive, with ``received``."""
        number = self._post(self.near, self.far, op, local, remote, 0, (1, 1), late, rkey, address)
        self.near.expect(0, False, wr_id=number, status=status)
        if received is not None:
            self.far.expect(0, True, wr_id=number + RECEIVE, status=received)

    def _post(self, near, far, op, local, remote, qp, operands, late, rkey, address):
        self._count += 1
        number = self._count
        if op in RECEIVED:
            self._late.append((far, {"sges": remote, "wr_id": number + RECEIVE, "qp": qp}))
            if not late:
                self.receive()
        target = (
            far.info["rkey"] if rkey is None else rkey,
            far.info["address"] + remote[0][0] if address is None else address,
        )
        near.peer.post(op=op, sges=local, remote=target, wr_id=number, qp=qp, imm=number, operands=operands)
        return number

    def receive(self):
        """Posts the receives that were left for later."""
        for side, arguments in self._late:
            side.peer.recv(**arguments)
        self._late = []

    def _model(self, near, far, op, local, remote, qp, operands, number):
        size = sum(length for _, length in local)
        at = remote[0][0]
        returned = {}
        if op in (SEND, SEND_IMM):
            far.scatter(remote, near.gather(local))
        elif op in (WRITE, WRITE_IMM):
            far.scatter([[at, size]], near.gather(local))
        else:
            returned = {"byte_len": size}
            near.scatter(local, far.gather([[at, size]]))
            if op == FETCH_ADD:
                far.scatter([[at, 8]], (far.word(at) + operands[0] & (1 << 64) - 1).to_bytes(8, "little"))
            elif op == CMP_SWP and near.word(local[0][0]) == operands[0]:
                far.scatter([[at, 8]], operands[1].to_bytes(8, "little"))
        near.expect(qp, False, wr_id=number, status=0, opcode=WC_OPCODES[op], **returned)
        if op in RECEIVED:
            kind = WC_RECV_WITH_IMM if op == WRITE_IMM else WC_RECV
            imm = None if op == SEND else number
            far.expect(qp, True, wr_id=number + RECEIVE, status=0, opcode=kind, byte_len=size, imm=imm)

    def finish(self):
        """Everything posted completes as it must, and both memories hold what they must."""
        for side in self.sides:
            side.complete()
        for side in self.sides:
            side.compare()
