"""The parameters of an engine, and what they change in it as a whole."""

import pytest
from verbena.hdl.abi.contexts import QpType
from verbena.hdl.config import Config
from verbena.hdl.rnic import Rnic
from verbena.hdl.transport import send_side
from verbena.hdl.transport.respond_only import RespondOnly
from verbena.hdl.transport.send_side import SendSide
from verbena.hdl.wire.headers import NETWORKS
from verbena.hdl.wire.opcodes import DATAGRAMS, INVALIDATES, UNRELIABLE


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("data_width", (32, 96, 1024)),
        ("qps", (1, 3, 32768)),
        ("slots", (1, 2, 3, 2048)),
        ("cqs", (1, 1024)),
        ("window", (1, 48)),
        ("send_blocks", (4, 48, 1024)),
        ("receive_blocks", (4, 300)),
        ("send_quota", (1, 17, 2.0)),
        ("receive_quota", (1, 33)),
        ("mpt_sets", (2, 1024)),
        ("mtt_sets", (2, 1024)),
        ("transmit_buffer", (2048, 1 << 20)),
        ("memory_latency", (8, 8192, 100.0)),
        ("unanswered", (8, 24, 128)),
        ("receive_buffer", (4096,)),
        ("headers", (2, 24, 128, 8.0)),
        ("address_width", (31, 65, "64")),
        ("requests", (1, None)),
        ("atomics", (0, None)),
        ("uc", (1, None)),
        ("ud", (0, None)),
        ("read_targets", (128, 300, 8192)),
        ("responses", (128, 300, 8192)),
        ("srqs", (1, 3, 128, 512, 16.0)),
        ("event_queues", (0, 3, 16, 2.0)),
        ("cq_moderation", (1, None)),
        ("interrupt_moderation", (0, None)),
        ("udp_port", (0, 65536)),
    ],
)
def test_what_is_refused(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            Config(**{name: value})


def test_the_standard_engine_has_more_queue_pairs_than_slots():
    assert (Config().qps, Config().slots, Config().swaps) == (16384, 64, True)
    alone = Config(requests=False)
    assert (alone.qps, alone.slots, alone.swaps) == (64, 64, False)
    with pytest.raises(ValueError, match="slots must be a power of two from 2 to 64, not 128"):
        Config(qps=64, slots=128)


def test_two_bursts_fit_the_transmit_buffer():
    assert Config(transmit_buffer=4096).transmit_buffer == 4096
    with pytest.raises(ValueError, match="transmit_buffer must be a power of two from 8192 to"):
        Config(data_width=128, transmit_buffer=4096)


DERIVED = (
    "transmit_buffer",
    "headers",
    "unanswered",
    "run_ahead",
    "respond_ahead",
    "send_wqe_beats",
    "receive_wqe_beats",
    "receive_buffer",
    "send_blocks",
    "send_quota",
    "send_reads",
    "receive_blocks",
    "receive_quota",
    "atomics_in_flight",
    "translating",
    "renew",
    "checking",
    "placing",
)


@pytest.mark.parametrize(
    ("data_width", "memory_latency", "derived"),
    [
        (64, 128, (8192, 32, 16, 336, 208, 256, 128, 1 << 14, 32, 10, 16, 64, 10, 16, 16, False, 8, 16)),
        (128, 128, (8192, 32, 16, 336, 208, 128, 128, 1 << 15, 32, 10, 16, 64, 10, 16, 16, False, 8, 16)),
        (256, 128, (16384, 32, 16, 336, 208, 128, 128, 1 << 16, 32, 10, 16, 64, 10, 16, 32, True, 16, 32)),
        (512, 128, (16384, 32, 16, 336, 208, 128, 128, 1 << 17, 32, 10, 16, 64, 10, 16, 32, True, 16, 32)),
        (64, 16, (8192, 16, 16, 112, 96, 128, 128, 1 << 14, 16, 5, 16, 64, 5, 16, 8, False, 4, 16)),
        (64, 1000, (16384, 64, 64, 2080, 1080, 2048, 1024, 1 << 16, 128, 50, 64, 128, 50, 64, 64, True, 32, 64)),
        (512, 1000, (1 << 17, 64, 64, 2080, 1080, 256, 128, 1 << 18, 128, 50, 64, 128, 50, 64, 64, True, 32, 64)),
        (512, 4096, (1 << 19, 64, 64, 8272, 4176, 1024, 512, 1 << 18, 128, 64, 64, 128, 64, 64, 64, True, 32, 64)),
    ],
)
def test_what_follows_from_width_and_latency(data_width, memory_latency, derived):
    config = Config(data_width=data_width, memory_latency=memory_latency, qps=64)
    assert tuple(getattr(config, name) for name in DERIVED) == derived
    assert config.transmit_buffer >= (memory_latency * data_width // 8) + 4096


def test_what_comes_while_queue_pairs_come_finds_room():
    """If QPs come and go, and if not."""
    for width, latency, few, many in ((64, 128, 14, 15), (512, 128, 17, 18), (64, 16, 14, 15), (64, 1000, 16, 17)):
        sizes = [Config(data_width=width, memory_latency=latency, qps=qps).receive_buffer for qps in (64, 128)]
        assert sizes == [1 << few, 1 << many]
    assert Config(swap_every=1000).receive_buffer == 1 << 15


def test_what_is_given_counts():
    config = Config(data_width=512, memory_latency=1000, transmit_buffer=8192, headers=8, unanswered=32)
    assert (config.transmit_buffer, config.headers, config.unanswered) == (8192, 8, 32)


def test_receive_blocks_of_few_queue_pairs():
    """Two a QP are enough, unless one QP alone needs more."""
    assert [Config(qps=qps).receive_blocks for qps in (2, 16, 32, 128)] == [32, 32, 64, 64]
    assert Config(qps=2, memory_latency=16).receive_blocks == 16


def test_depths_reach_the_blocks():
    made = blocks(Config(memory_latency=1000))
    dma, access = made["dma"], made["access"]
    assert (dma.buffer, dma.bursts, access._translation.verdicts) == (16384, 64, 64)
    assert (dma.readers["sq"][0], dma.readers["rq"][0]) == (64, 16)
    assert (access._translation.waiting, access._protection.waiting) == (64, 32)
    assert (dma.readers["mtt"][0], dma.readers["mpt"][0]) == (64, 32)
    assert (made["rq_fetch"].blocks, made["rq_fetch"].quota) == (128, 50)
    assert (made["completions"].writes, dma.writers["cqe"]) == (64, (64,))


def test_what_small_packets_need_of_a_slow_memory_long_messages_have_too():
    assert [Config(memory_latency=latency).placing for latency in (16, 128, 256, 512)] == [16, 16, 32, 64]


def blocks(config):
    """The engine's blocks by their names."""
    rnic = Rnic(config)
    rnic.elaborate(None)
    return rnic._blocks | rnic._blocks["wire"].blocks


def test_an_engine_that_only_responds():
    """It has the same blocks, but for the sending side: what answers in its place has the same members, but for those
    that lead to the memory, attributes and counters of what is not there.
    """
    everything, responding = blocks(Config(qps=64)), blocks(Config(requests=False))
    assert set(everything) == set(responding)
    send, instead = everything.pop("send"), responding.pop("send")
    assert (type(send), type(instead)) == (SendSide, RespondOnly)
    more = set(send.signature.members) - set(instead.signature.members)
    assert set(instead.signature.members) <= set(send.signature.members)
    assert {"attribute", "attribute_en", *send.readers} == {name for name in more if not name.startswith("count_")}
    assert set(send.readers) == set(everything["dma"].readers) - set(responding["dma"].readers)
    assert [type(block) for block in everything.values()] == [type(block) for block in responding.values()]


@pytest.mark.parametrize(("name", "opcodes"), [("uc", UNRELIABLE), ("ud", DATAGRAMS)])
def test_an_engine_without_unreliable_queue_pairs(name, opcodes):
    """It takes packets of UC, or of UD, for those of a transport that it does not know, on the wire and everywhere
    else, and does not say that it has it. An engine without send queues has it, too."""
    with_, without = (blocks(Config(qps=64, **{name: there})) for there in (True, False))
    assert with_["depacketizer"].opcodes - without["depacketizer"].opcodes == opcodes
    assert with_["depacketizer"].refused == without["depacketizer"].refused
    assert not without["depacketizer"].refused & opcodes
    assert with_["packetizer"].opcodes - without["packetizer"].opcodes == opcodes
    for made, there in (with_, True), (without, False):
        assert getattr(made["lookup"], name) is there
        assert made["registers"].identity.transports == Config(**{name: there}).transports
        assert opcodes.isdisjoint(made["depacketizer"].opcodes) is not there
    assert (without["lookup"].uc, without["lookup"].ud) == (name != "uc", name != "ud")
    assert blocks(Config(requests=False))["depacketizer"].opcodes > opcodes


def test_shared_receive_queues():
    """Their rings stand behind those of the slots."""
    assert Config().srqs == 0
    assert Config(slots=512, srqs=256).srqs == 256
    for config in (Config(qps=8, srqs=2), Config(qps=8, srqs=0)):
        made = blocks(config)
        srqs = config.srqs
        assert (made["registers"].identity.srqs, made["commands"].srqs, made["responder"].srqs) == (srqs, srqs, srqs)
        assert made["rq_fetch"].rings == 8 + srqs
        assert hasattr(made["rq_fetch"], "point") == hasattr(made["responder"], "point") == (srqs > 0)


def test_operations_on_keys():
    """All that belongs to them is there, or nothing; only where there are requests."""
    assert not Config().key_operations
    for there in (True, False):
        made = blocks(Config(qps=8, key_operations=there))
        assert ("key_operations" in made) is there
        assert hasattr(made["acknowledger"], "operation") is hasattr(made["send"], "operation") is there
        assert (made["packetizer"].opcodes >= INVALIDATES) is (made["depacketizer"].opcodes >= INVALIDATES) is there
        assert made["registers"].identity.key_operations is made["responder"].keys is there
    with pytest.raises(ValueError, match="need requests"):
        Config(requests=False, key_operations=True)


@pytest.mark.parametrize("queues", [1, 4])
@pytest.mark.parametrize(("cqs", "interrupts"), [(False, False), (True, False), (False, True), (True, True)])
def test_event_queues_and_moderation(queues, cqs, interrupts):
    """Nothing of them is in an engine without."""
    assert (Config().event_queues, Config().cq_moderation, Config().interrupt_moderation) == (1, False, False)
    made = blocks(Config(qps=8, event_queues=queues, cq_moderation=cqs, interrupt_moderation=interrupts))
    names = ("registers", "commands", "completions")
    registers, commands, completions = (made[name] for name in names)
    assert (registers.identity.event_queues, completions.queues) == (queues, queues)
    assert registers.identity.cq_moderation is commands.moderation is completions.moderation is cqs
    assert registers.identity.interrupt_moderation is interrupts
    counts = [sum(name.startswith(kind) for name in made) for kind in ("events", "event_queue_", "interrupt_")]
    assert counts == [queues, queues if queues > 1 or interrupts else 0, queues if interrupts else 0]
    assert ("moderation_clock" in made) is (cqs or interrupts)
    assert [name for name in made["dma"].writers if name.startswith("eqe")] == ["eqe", "eqe_1", "eqe_2", "eqe_3"][
        :queues
    ]


def test_networks():
    """RoCEv1 and multicast need the table of GIDs, and nothing of them is in an engine without."""
    assert (Config().ipv6, Config().roce_v1, Config().multicast) == (False,) * 3
    for more, count in (({}, 1), ({"ipv6": True}, 2), ({"ipv6": True, "roce_v1": True}, 3)):
        made = blocks(Config(qps=8, **more))
        for name in ("packetizer", "depacketizer"):
            assert made[name].networks == NETWORKS[:count]
        assert (made["registers"].identity.roce_v1, made["registers"].identity.multicast) == (count == 3, False)
        assert "multicast" not in made
        assert not made["depacketizer"].groups
    made = blocks(Config(qps=8, ipv6=True, multicast=True))
    assert made["registers"].identity.multicast
    assert made["depacketizer"].groups
    for more, name in (({"roce_v1": True}, "roce_v1"), ({"multicast": True}, "multicast")):
        with pytest.raises(ValueError, match=f"{name} needs ipv6"):
            Config(**more)
    with pytest.raises(ValueError, match="multicast needs ipv6 and ud"):
        Config(ipv6=True, ud=False, multicast=True)


def test_types_of_queue_pairs():
    """Each of UC and UD may be there without the other."""
    assert Config().transports == (QpType.RC, QpType.UC, QpType.UD)
    assert Config(ud=False).transports == (QpType.RC, QpType.UC)
    assert Config(uc=False).transports == (QpType.RC, QpType.UD)
    assert Config(uc=False, ud=False).transports == (QpType.RC,)
    neither = blocks(Config(qps=64, uc=False, ud=False))
    assert {code >> 5 for code in neither["depacketizer"].opcodes | neither["packetizer"].opcodes} == {0}
    assert (neither["lookup"].uc, neither["lookup"].ud) == (False, False)


def test_raw_packets():
    """All that belongs to them is there, or nothing; only where there are requests."""
    assert not Config().raw_packets
    for there in (True, False):
        config = Config(qps=8, raw_packets=there)
        assert (QpType.RAW_PACKET in config.transports) is there
        made = blocks(config)
        assert all((name in made) is there for name in ("raw_transmit", "raw_receive", "receive_merge"))
        assert made["registers"].identity.raw is made["lookup"].raw is there
    assert Config(qps=8, uc=False, ud=False, raw_packets=True).transports == (QpType.RC, QpType.RAW_PACKET)
    with pytest.raises(ValueError, match="need requests"):
        Config(requests=False, raw_packets=True)


@pytest.mark.parametrize("ud", [False, True])
@pytest.mark.parametrize("uc", [False, True])
def test_the_requester_hears_of_unreliable_queue_pairs(uc, ud, monkeypatch):
    make, seen = send_side.Requester, []

    def tell(*args, **more):
        seen.append((more["uc"], more["ud"]))
        return make(*args, **more)

    monkeypatch.setattr(send_side, "Requester", tell)
    SendSide(Config(qps=64, uc=uc, ud=ud)).elaborate(None)
    assert seen == [(uc, ud)]


def test_an_engine_without_atomics():
    """It takes them for requests that it does not serve, and has nothing that would execute them."""
    made = blocks(Config(atomics=False))
    assert made["depacketizer"].refused - blocks(Config())["depacketizer"].refused == {0x13, 0x14}
    assert not made["depacketizer"].opcodes & {0x13, 0x14}
    assert not any(made[name].atomics for name in ("responder", "dma", "read_atomic_responder"))
    assert not made["registers"].identity.atomics


def test_nobody_looks_at_the_headers_of_responses_without_requests():
    made = blocks(Config(requests=False))["depacketizer"]
    assert made.refused - blocks(Config())["depacketizer"].refused == {0x0D, 0x0E, 0x0F, 0x10, 0x11, 0x12}
    assert not made.opcodes & made.refused
