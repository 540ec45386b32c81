"""Options and their defaults, which are perftest's."""

import pytest
from verbena.sw.tools.perftest.kinds import KINDS
from verbena.sw.tools.perftest.options import Options
from verbena.sw.tools.session import ToolError


@pytest.mark.parametrize(
    ("name", "size", "iterations", "tx_depth", "cq_mod", "inline"),
    [
        ("write_bw", 65536, 5000, 128, 1, 0),
        ("read_bw", 65536, 1000, 128, 1, 0),
        ("send_bw", 65536, 1000, 128, 1, 0),
        ("atomic_bw", 8, 1000, 128, 100, 0),
        ("write_lat", 2, 1000, 1, 1, 96),
        ("send_lat", 2, 1000, 1, 1, 96),
        ("read_lat", 2, 1000, 1, 1, 0),
        ("atomic_lat", 8, 1000, 1, 1, 0),
    ],
)
def test_defaults(name, size, iterations, tx_depth, cq_mod, inline):
    options = Options().resolved(KINDS[name])
    assert (options.size, options.iterations) == (size, iterations)
    assert (options.tx_depth, options.cq_mod, options.inline) == (tx_depth, cq_mod, inline)
    assert (options.rx_depth, options.timeout, options.outstanding) == (512, 14, 16)


def test_queues_are_no_deeper_than_there_are_messages():
    options = Options(iterations=20, size=8192).resolved(KINDS["send_bw"])
    assert (options.tx_depth, options.rx_depth, options.cq_mod) == (20, 20, 20)


def test_what_is_given_stays():
    given = {"size": 100, "iterations": 50, "tx_depth": 7, "rx_depth": 9, "cq_mod": 3, "inline": 32}
    options = Options(**given).resolved(KINDS["write_bw"])
    assert {name: getattr(options, name) for name in given} == given


@pytest.mark.parametrize(
    ("name", "given", "complaint"),
    [
        ("atomic_bw", {"size": 16}, "atomics have 8 bytes"),
        ("write_lat", {"qps": 2}, "only bandwidth tests use several queue pairs"),
        ("send_lat", {"bidirectional": True}, "only bandwidth tests run in both directions"),
        ("write_bw", {"size": 0}, "size must be between 1 and 2147483648, not 0"),
        ("write_bw", {"iterations": 4}, "iterations must be between 5 and 100000000, not 4"),
        ("write_bw", {"qps": 0}, "qps must be between 1 and 16384, not 0"),
        ("write_bw", {"inline": 481}, "inline must be between 0 and 480, not 481"),
        ("read_bw", {"outstanding": 17}, "outstanding must be between 1 and 16, not 17"),
        ("write_bw", {"timeout": 32}, "timeout must be between 0 and 31, not 32"),
        ("write_bw", {"service_level": 8}, "service_level must be between 0 and 7, not 8"),
        ("write_bw", {"post_list": 0}, "post_list must be between 1 and 128, not 0"),
        ("write_bw", {"post_list": 60, "cq_mod": 80}, "tx_depth 128 is too little for post_list 60 and cq_mod 80"),
        (
            "write_bw",
            {"duration": 1, "cq_mod": 9, "post_list": 16},
            "tx_depth 128 is too little for post_list 16 and cq_mod 9",
        ),
        ("read_bw", {"connection": "UC"}, "UC has neither READ nor atomics"),
        ("write_lat", {"connection": "UD"}, "UD has no WRITE"),
        ("send_lat", {"connection": "UD", "size": 4097}, "a datagram has up to 4096 bytes, the MTU, not 4097"),
        ("send_bw", {"connection": "UC", "rdma_cm": True}, "the connection manager connects RC and UD"),
        ("write_bw", {"use_srq": True}, "only SEND has receives, which could be shared"),
        (
            "send_bw",
            {"use_srq": True, "qps": 5, "rx_depth": 4},
            "rx_depth 4 is too small for 5 queue pairs that share receives",
        ),
        ("atomic_lat", {"connection": "UC"}, "UC has neither READ nor atomics"),
        ("send_bw", {"connection": "DC"}, "connection must be RC or UC or UD, not 'DC'"),
        ("write_lat", {"post_list": 2}, "only bandwidth tests post lists"),
        ("write_bw", {"cycles": True}, "only latency tests tell each time, or cycles"),
        ("atomic_bw", {"all_sizes": True}, "all sizes: atomics have 8 bytes"),
        ("send_bw", {"all_sizes": True, "size": 2}, "all sizes: no size beside"),
        (
            "write_lat",
            {"duration": 1, "all_sizes": True},
            "all sizes are tested for a number of iterations, not for a duration",
        ),
        ("read_bw", {"duration": 0}, "duration must be more than 0 and at most 86400, not 0"),
        ("read_bw", {"duration": 1, "iterations": 9}, "a test runs for a duration or for a number of iterations"),
        ("write_bw", {"mtu": 1500}, "the MTU must be 256, 512, 1024, 2048 or 4096, not 1500"),
    ],
)
def test_what_does_not_fit(name, given, complaint):
    with pytest.raises(ToolError) as caught:
        Options(**given).resolved(KINDS[name])
    assert str(caught.value) == complaint


def test_all_sizes():
    options = Options(all_sizes=True).resolved(KINDS["send_bw"])
    assert [each.size for each in options.rounds()] == [2**i for i in range(1, 24)]
    assert (options.size, options.cq_mod) == (2**23, 100)
    assert Options(size=7).resolved(KINDS["send_bw"]).rounds() == [Options(size=7).resolved(KINDS["send_bw"])]


def test_a_list_has_one_completion():
    options = Options(post_list=16, size=8).resolved(KINDS["write_bw"])
    assert (options.cq_mod, options.batch) == (16, 16)
    assert Options(duration=1, size=8, cq_mod=10).resolved(KINDS["write_bw"]).batch == 10


def test_datagrams_are_as_long_as_the_mtu():
    kind = KINDS["send_bw"]
    assert Options(connection="UD").resolved(kind, 1024).size == 1024
    assert Options(connection="UD", size=100).resolved(kind, 1024).size == 100
    rounds = Options(connection="UD", all_sizes=True).resolved(kind, 512).rounds()
    assert [each.size for each in rounds] == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    with pytest.raises(ToolError, match="a datagram has up to 256 bytes, the MTU, not 257"):
        Options(connection="UD", size=257).resolved(kind, 256)


def test_a_shared_queue_is_as_deep_as_all_messages():
    assert Options(use_srq=True, qps=8, iterations=5).resolved(KINDS["send_bw"]).rx_depth == 40
