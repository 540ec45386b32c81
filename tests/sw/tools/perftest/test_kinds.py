"""The names of the tests."""

from verbena.sw.tools.perftest.kinds import KINDS, Verb


def test_names():
    assert set(KINDS) == {f"{verb}_{what}" for verb in ("send", "write", "read", "atomic") for what in ("bw", "lat")}
    for name, kind in KINDS.items():
        assert kind.name == name


def test_what_the_peer_may_do():
    assert {verb: KINDS[f"{verb.name.lower()}_bw"].access for verb in Verb} == {
        Verb.SEND: 0,
        Verb.WRITE: 2,
        Verb.READ: 4,
        Verb.ATOMIC: 8,
    }


def test_where_the_server_sends():
    assert {name for name, kind in KINDS.items() if kind.symmetric} == {"send_lat", "write_lat"}
