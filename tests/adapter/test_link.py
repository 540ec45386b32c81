"""Adapters in worlds of their own that are linked, against the same adapters in one world."""

import struct
import threading

import pytest
from verbena.sim.link import connect, listen
from verbena.sim.pair import End, join
from verbena.sim.sim_port import IP
from verbena.sim.world import MAC, World
from verbena.sw.verbs.libibverbs_enums import ibv_send_flags, ibv_wr_opcode
from verbena.sw.verbs.wr import SGE, RecvWR, SendWR

pytestmark = pytest.mark.verilator

OPCODE = ibv_wr_opcode
CYCLES = 80
"""A frame is so long on its way."""
START, STOP = 80_000, 110_000
CYCLE_NS = 6.4


def packets(path):
    """Blocks of a pcapng file: interface's name, time in ns, flags and comments, data."""
    data, at, names, found = path.read_bytes(), 0, [], []
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 1:
            length = struct.unpack_from("<H", data, at + 18)[0]
            names.append(data[at + 20 : at + 20 + length].decode())
        elif kind == 6:
            interface, high, low, length = struct.unpack_from("<4I", data, at + 8)
            end = at + 28 + (length + 3) // 4 * 4
            found.append(
                (names[interface], high << 32 | low, data[end : at + size - 4], data[at + 28 : at + 28 + length])
            )
        at += size
    return found


def of(adapter, path, start):
    """What an adapter sent, received and did on its bus from cycle ``start`` on, without its number."""
    names = (f"adapter{adapter}", f"bus{adapter}")
    return [(n[:-1], *rest) for n, *rest in packets(path) if n in names and rest[0] >= start * CYCLE_NS]


def post(end, other, send):
    """Sends of either side, all before time goes on."""
    sge = SGE(end.mr.buf, 3000, end.mr.lkey)
    for i, opcode in enumerate(send):
        wr = SendWR(i, opcode, num_sge=1, sg=[sge], send_flags=ibv_send_flags.IBV_SEND_SIGNALED)
        if opcode != OPCODE.IBV_WR_SEND:
            wr.set_wr_rdma(other.rkey, other.address)
        end.qp.post_send(wr)


class Told:
    """What one side tells the other, as over a socket."""

    def __init__(self, end):
        self.qp_num, self.gid, self.rkey, self.address = end.qp.qp_num, end.gid, end.mr.rkey, end.mr.buf


def prepare(end, other):
    join(end.qp, other, other.gid, mtu=1024)
    for i in range(8):
        end.qp.post_recv(RecvWR(i, 1, [SGE(end.mr.buf + 4096, 4096, end.mr.lkey)]))


def one_world(path):
    with World(2, seed=7, wire_delay=CYCLES - 1, store=True) as world:
        world.capture(path, bus=True)
        ends = [End(f"sim{i}", 8192, world=world) for i in range(2)]
        told = [Told(end) for end in ends]
        prepare(ends[0], told[1])
        prepare(ends[1], told[0])
        world.advance(START - world.cycles, stop=0)
        post(ends[0], told[1], SENDS)
        world.advance(STOP - world.cycles, stop=0)
        world.capture(None)
        return [[(wc.wr_id, wc.status) for wc in end.cq.poll(64)[1]] for end in ends]


SENDS = (
    OPCODE.IBV_WR_SEND,
    OPCODE.IBV_WR_RDMA_WRITE,
    OPCODE.IBV_WR_RDMA_READ,
    OPCODE.IBV_WR_SEND,
    OPCODE.IBV_WR_RDMA_READ,
)


def linked_worlds(path, paths):
    told, results, errors = [None, None], [None, None], []

    def play(number, meet):
        try:
            with World(1, seed=7, first=number, link=meet(path, latency_ns=CYCLES * CYCLE_NS, patience=30)) as world:
                world.capture(paths[number], bus=True)
                while number and not told[0]:  # memory is taken in the same order
                    world.advance(256, stop=0)
                end = End(f"sim{number}", 8192, world=world)
                told[number] = Told(end)
                world.ports[f"sim{number}"].add_neighbour(IP + 1 - number, MAC + 1 - number)  # no ARP, as in one world
                while not told[1 - number]:
                    world.advance(256, stop=0)
                prepare(end, told[1 - number])
                assert world.cycles < START
                world.advance(START - world.cycles, stop=0)
                if number == 0:
                    post(end, told[1], SENDS)
                world.advance(STOP - world.cycles, stop=0)
                world.capture(None)
                results[number] = [(wc.wr_id, wc.status) for wc in end.cq.poll(64)[1]]
                world.advance(20_000, stop=0)  # neither goes before the other has all
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=play, args=(i, (listen, connect)[i]), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    return results


def test_two_linked_worlds_equal_one(tmp_path):
    """Each frame, each access to memory and registers stands in the same cycle."""
    one, two = tmp_path / "one.pcapng", [tmp_path / f"two{i}.pcapng" for i in range(2)]
    expected = one_world(one)
    assert expected == [[(i, 0) for i in range(5)], [(0, 0), (1, 0)]]
    assert linked_worlds(tmp_path / "link", two) == expected
    for adapter in range(2):
        wanted, found = of(adapter, one, START), of(0, two[adapter], START)
        if adapter:  # the posts of sim0 are the only accesses of the program
            assert not [entry for entry in wanted if b"register" in entry[2]]
        assert len(wanted) > 4 * len(SENDS)  # how many more depends on where memory lies, which bursts must not cross
        assert found == wanted
