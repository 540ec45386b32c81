"""The messages of one end, against what rdma-core's program fills them with, and how it tells of them."""

from types import SimpleNamespace

import pytest
from verbena.sw.tools.ping import FILL, Outcome, Ping
from verbena.sw.tools.pingpong import Options
from verbena.sw.verbs.wr import SGE


class Memory(bytearray):
    buf = 0

    def write(self, data, length, offset):
        self[offset:] = data[:length]


@pytest.mark.parametrize(
    ("server", "check", "first", "others"),
    [
        (False, False, FILL, FILL),
        (False, True, 0, FILL),
        (True, False, FILL + 1, FILL + 1),
        (True, True, FILL + 1, FILL + 1),
    ],
)
def test_what_is_sent_first(server, check, first, others):
    queue = SimpleNamespace(posted=0)

    def post_recv(wr):
        while wr is not None:
            queue.posted, wr = queue.posted + 1, wr.next_wr

    queue.post_recv = post_recv
    end = SimpleNamespace(mr=Memory(), header=0, qps=[queue], srq=None, sge=lambda at, size: SGE(at, size, 0))
    Ping(end, Options(size=5000, rx_depth=7, check=check), server=server)
    assert queue.posted == 7
    assert len(end.mr) == 5000
    assert {end.mr[0], end.mr[4096]} == {first}
    assert {*end.mr[1:4096], *end.mr[4097:]} == {others}


def test_outcome():
    lines = list(Outcome(bytes=8_192_000, iterations=1000, nanoseconds=10_000_000).lines())
    assert lines == [
        "8192000 bytes in 0.010000 seconds = 6553.60 Mbit/sec",
        "1000 iters in 0.010000 seconds = 10.00 usec/iter",
    ]
