"""Random send queues, and what a requester makes of them, in spite of losses: oracle and comparison."""

from collections import defaultdict

from requester_world import PSNS
from send_queue import ATOMICS, ONE_SIDED, Wqe, psns_of, resend_of, target_of
from verbena.hdl.abi.wqe import SendFlag, SendOpcode
from verbena.hdl.transport.common.layouts import PayloadSource, TxDescriptorKind

__all__ = ["Checker", "random_wqe"]


def random_wqe(rng, stride, mtu, unreliable=False):
    entries = (stride - 32) // 16
    wqe = Wqe(
        opcode=rng.choice([*list(SendOpcode)[:4], *([] if unreliable else [*ONE_SIDED, SendOpcode.RDMA_READ])]),
        flags=rng.choice([0, 0, 0, SendFlag.FENCE, SendFlag.SIGNALED]),
        immediate=rng.randrange(1 << 32),
        remote_address=rng.randrange(1 << 64),
        rkey=rng.randrange(1 << 32),
    )
    if wqe.opcode in ATOMICS:
        wqe.sges = [(rng.randrange(1 << 64), 8, rng.randrange(1 << 32))]
        wqe.compare_add, wqe.swap = rng.randrange(1 << 64), rng.randrange(1 << 64)
    elif wqe.opcode != SendOpcode.RDMA_READ and rng.random() < 0.2:
        wqe.data = rng.randbytes(rng.randrange(stride - 31))
    else:
        for _ in range(rng.randrange(1, entries + 1)):
            length = rng.choice([0, 1, 7, mtu - 1, mtu, 2 * mtu + 1, rng.randrange(4 * mtu)])
            wqe.sges.append((rng.randrange(1 << 64), length, rng.randrange(1 << 32)))
    return wqe


class Checker:
    """Compares what a world's requester emits, as it comes, with what its rings hold. ``unreliable``: QPs of UC."""

    def __init__(self, world, rings, mtu, first_psn, stride, depth, unreliable=()):
        self.world, self.rings, self.mtu, self.stride, self.depth = world, rings, mtu, stride, depth
        self.wanted = defaultdict(dict)  # for each QP, the packet that may leave with a PSN
        self.last_psns, self.firsts = {}, {}
        for qp, ring in rings.items():
            psn = first_psn[qp]
            for index, wqe in enumerate(ring):
                self.firsts[qp, index] = psn
                for skip in range(psns_of(wqe, mtu[qp])):
                    packet = resend_of(wqe, mtu[qp], psn, skip, unreliable=qp in unreliable)[0]
                    self.wanted[qp][packet["psn"]] = packet | {"wqe_index": index}
                psn = (psn + psns_of(wqe, mtu[qp])) % PSNS
                self.last_psns[qp, index] = (psn - 1) % PSNS
        self.after = dict(first_psn)  # PSN behind the last packet
        self.began = dict.fromkeys(rings, 0)  # messages of which `outstanding` was told
        self.reads = dict.fromkeys(rings, 0)
        self.latest = {qp: (psn - 1) % PSNS for qp, psn in first_psn.items()}  # PSN that has left
        self.seen = 0
        self.jumps = dict.fromkeys(rings, 0)  # packets that do not follow the one before
        self.resumed = {}  # PSN at which a READ was asked for again, as was told

    def check(self):
        """All that came since the last call."""
        world = self.world
        for _, name, item in world.log[self.seen :]:
            if name == "outstanding":
                qp, index = item["qp"], item["wqe_index"]
                assert index == self.began[qp]
                assert item["last_psn"] == self.last_psns[qp, index]
                self.began[qp] += 1
                if self.rings[qp][index].flags & SendFlag.FENCE:
                    reads = sum(wqe.opcode in ONE_SIDED for wqe in self.rings[qp][:index])
                    assert world.progress[qp]["reads"] == reads
            elif name == "reads" and item["again"]:
                qp, target = item["qp"], item["target"]
                want = self.wanted[qp][target["psn"]]
                assert (want["opcode"], want["wqe_index"]) == (0x0C, target["wqe_index"])
                assert target["psn"] != self.firsts[qp, target["wqe_index"]]
                self.resumed[qp] = target["psn"]
            elif name == "reads":
                qp, index = item["qp"], item["target"]["wqe_index"]
                wqe = self.rings[qp][index]
                want = target_of(wqe, self.firsts[qp, index], index, self.stride[qp] == 128)
                assert {name: item["target"][name] for name in want} == want
                assert self.reads[qp] == sum(wqe.opcode in ONE_SIDED for wqe in self.rings[qp][:index])
                self.reads[qp] += 1
                assert self.reads[qp] - world.progress[qp]["reads"] <= self.depth[qp]
            elif name == "packet" and item["kind"] == TxDescriptorKind.REQUEST:
                self.packet(item)
        self.seen = len(world.log)

    def packet(self, header):
        qp, psn = header["qp"], header["transport"]["psn"]
        want = self.wanted[qp][psn]
        for name in set(want) & set(header["transport"]):
            assert header["transport"][name] == want[name], (name, header, want)
        assert (header["wqe_index"], header["message_last"]) == (want["wqe_index"], want["message_last"])
        # It follows the one before, or goes back, or over what is acknowledged meanwhile; it leaves no gap.
        if psn != self.after[qp]:
            self.jumps[qp] += 1
            assert (self.world.progress[qp]["unacked"] - psn) % PSNS < PSNS // 2
        self.after[qp] = (want["last_psn"] + 1) % PSNS
        if (want["last_psn"] - self.latest[qp]) % PSNS < PSNS // 2:
            self.latest[qp] = want["last_psn"]
        assert want["wqe_index"] < self.began[qp] + (not want["message_last"])
        if want["opcode"] == 0x0C and psn != self.firsts[qp, want["wqe_index"]]:
            assert self.resumed.get(qp) == psn
        if want["opcode"] in (0x0C, 0x13, 0x14):
            assert self.reads[qp] > sum(wqe.opcode in ONE_SIDED for wqe in self.rings[qp][: want["wqe_index"]])

    def payloads(self):
        """Runs and inline data of all packets."""
        for header, run, payload in self.world.packets():
            if header["kind"] != TxDescriptorKind.REQUEST:
                assert [(a["length"], a["last"]) for a in run] == [(0, 1)]
                continue
            want = self.wanted[header["qp"]][header["transport"]["psn"]]
            pieces = [(a["key"], a["address"], a["length"]) for a in run if a["length"]]
            assert pieces == [(k, a % (1 << 64), n) for k, a, n in want["pieces"]]
            assert len(run) == max(1, len(pieces))
            assert payload == (want["data"] or None)
            assert (header["source"] == PayloadSource.INLINE) == bool(want["data"])
