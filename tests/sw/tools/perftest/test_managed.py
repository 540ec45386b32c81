"""Tests whose queue pairs the connection manager connects, on two simulated adapters."""

import random

import pytest
from leftovers import queue_pairs_left
from verbena.sw.tools.endpoint import open_device
from verbena.sw.tools.exchange.perftest import Key
from verbena.sw.tools.perftest import managed
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.perftest.play import client, managed_server
from verbena.sw.tools.session import ToolError, run

FAR, FAR6 = "10.0.0.2", "fe80::56:42ff:fe00:2"


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b


class Test:
    """Both sides of a test; what is left of them: lines, and what was in memory."""

    __test__ = False

    def __init__(self, contexts, name, far_address=FAR, **given):
        near, far = contexts
        self.kind, self.options = KINDS[name], Options(rdma_cm=True, patience=60, **given)
        self.lines, self.memories, self.keys = ([], []), [None, None], [None, None]
        self.server = managed_server(far, self.kind, self.options, **self._of(0))
        self.client = client(near, self.kind, self.options, far_address, **self._of(1))

    def _of(self, side):
        def inspect(found):
            at, size = found.layout.source(0), found.options.size
            target = found.layout.target(0) + found.end.header
            read = found.end.mr.read
            self.memories[side] = read(size, at), read(size, target)
            self.keys[side] = found.mine

        return {"tell": self.lines[side].append, "rng": random.Random(side), "inspect": inspect}

    def run(self):
        self.outcomes = run(self.server, self.client)
        return self


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("write_bw", {"qps": 3, "size": 3000, "iterations": 20}),
        ("send_bw", {"bidirectional": True, "qps": 2, "size": 1000, "iterations": 20}),
        ("send_bw", {"use_srq": True, "size": 1000, "iterations": 20}),
        ("read_bw", {"size": 1000, "iterations": 20}),
        ("send_bw", {"connection": "UD", "size": 1000, "iterations": 20}),
        ("send_bw", {"connection": "UD", "bidirectional": True, "qps": 2, "size": 1000, "iterations": 20}),
        ("send_lat", {"size": 1000, "iterations": 9}),
        ("send_lat", {"connection": "UD", "size": 1000, "iterations": 9}),
        ("write_lat", {"size": 1000, "iterations": 9}),
        ("atomic_lat", {"iterations": 9}),
        ("write_bw", {"far_address": FAR6, "qps": 2, "size": 3000, "iterations": 9}),
        ("send_lat", {"far_address": FAR6, "connection": "UD", "size": 1000, "iterations": 9}),
    ],
)
def test_messages_go_over_such_connections(contexts, name, given):
    test = Test(contexts, name, **given).run()
    server, client = test.memories
    if test.kind.verb.name == "READ":
        assert client[0] == server[1]
    elif test.kind.verb.name != "ATOMIC":
        assert server[1] == client[0]
        if test.kind.symmetric or test.options.bidirectional:
            assert client[1] == server[0]
    assert len(test.keys[0]) == test.options.qps
    for lines in test.lines:
        assert " rdma_cm QPs\t : ON" in lines
        assert " Data ex. method : rdma_cm" in lines
    for context in contexts:
        assert queue_pairs_left(context) == []
        assert not context._adapter.agent.listeners


def test_a_latency_holds_no_time_of_the_conversation(contexts):
    alone = run(*plain(contexts))[1]
    over = Test(contexts, "read_lat", size=8, iterations=9).run().outcomes[1]
    assert over.typical == pytest.approx(alone.typical, rel=0.05)


def plain(contexts):
    """The same over sockets."""
    import socket

    from verbena.sw.tools.exchange.channel import Channel
    from verbena.sw.tools.perftest.play import play

    options, socks = Options(size=8, iterations=9), socket.socketpair()
    return [
        play(contexts[1 - i], KINDS["read_lat"], options, Channel(socks[i], contexts[1 - i].advance), server=i == 0)
        for i in (0, 1)
    ]


def test_the_client_asks_again_while_the_server_does_not_listen_yet(contexts, monkeypatch):
    monkeypatch.setattr(managed, "PAUSE", 0.0)
    test = Test(contexts, "send_bw", size=8, iterations=5)
    listen, waiting = managed.Managed._listen, []

    def late(self, space, pd=None):
        """The second listener is deaf at first."""
        listener = listen(self, space, pd)
        if pd is not None:
            listeners = self._context._adapter.agent.listeners
            waiting.append((listeners, listeners.copy()))
            listeners.clear()
        return listener

    monkeypatch.setattr(managed.Managed, "_listen", late)
    resolve, tries = managed.Managed._resolve, []

    def resolved(self, space, pd=None):
        tries.append(pd is not None)
        if tries.count(True) == 3:
            for listeners, entries in waiting:
                listeners.update(entries)
        return resolve(self, space, pd)

    monkeypatch.setattr(managed.Managed, "_resolve", resolved)
    test.run()
    assert tries == [False, True, True, True]


def test_the_clients_traffic_class_counts_for_both(contexts, monkeypatch):
    seen, connect = [], managed.Managed.connect

    def connected(self, end, *arguments):
        yield from connect(self, end, *arguments)
        seen.extend(qp.query(0x1FFFFFF)[0].ah_attr.gr.traffic_class for qp in end.qps)

    monkeypatch.setattr(managed.Managed, "connect", connected)
    Test(contexts, "write_bw", size=8, iterations=5, qps=2, traffic_class=0xA8).run()
    assert seen == [0xA8] * 4


def test_nobody_listens(contexts):
    with pytest.raises(ToolError, match="RDMA_CM_EVENT_REJECTED, error 8"):
        run(Test(contexts, "write_bw", iterations=5).client)


@pytest.mark.parametrize(("dies", "turns"), [("server", 60), ("server", 12), ("client", 60), ("client", 12)])
def test_who_dies_is_missed(contexts, dies, turns):
    test = Test(contexts, "write_bw", iterations=100000, size=8)
    ends = {"server": test.server, "client": test.client}
    for _ in range(turns):
        for end in ends.values():
            end.send(None)
    ends.pop(dies).close()
    with pytest.raises(ToolError, match=r"gone|closed|DISCONNECTED|FLUSH|REJECTED"):
        run(*ends.values())


def test_a_key_is_a_struct_of_56_bytes():
    """Its fields stand where a C compiler puts those of perftest's ``struct pingpong_dest``."""
    key = Key(0x14, 0xABCDEF, bytes(range(16)), 16, 0x1234, 0x7F00_0000_1000, lid=3, srqn=9)
    data = key.pack_struct()
    assert len(data) == 56
    numbers = [data[at : at + 4] for at in (0, 4, 8, 12, 16, 48)]
    assert [int.from_bytes(number, "big") for number in numbers] == [3, 16, 0x14, 0xABCDEF, 0x1234, 9]
    assert int.from_bytes(data[24:32], "big") == key.vaddr
    assert data[32:48] == key.gid
    assert Key.unpack_struct(data) == key
