"""mckey: a sender and receivers on two simulated adapters, and ends that go wrong."""

import pytest
from verbena.sw.tools.endpoint import open_device
from verbena.sw.tools.mckey import Options, main, member
from verbena.sw.tools.session import ToolError, run

FOUR, SIX = "239.1.2.3", "ff0e::1:2:3"


def words(sends, gid, connections=1, messages=True):
    """What one of them prints."""
    lines = [f"mckey: starting {'client' if sends else 'server'}", "mckey: joining"]
    lines += [f"mckey: joined dgid: {gid} mlid 0x0 sl 0"] * connections
    if messages:
        lines += [f"{'initiating' if sends else 'receiving'} data transfers", "data transfers complete"]
    return [*lines, "test complete", "return status 0"]


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b
        for context in (a, b):
            if (manager := context._adapter.agent) is not None:
                manager.context.close()  # the queue of its reports goes with it


@pytest.mark.parametrize(
    ("options", "gid"),
    [
        (Options(FOUR, pause=0), f"::ffff:{FOUR}"),
        (Options(SIX, count=3, size=4096, pause=0), SIX),
        (Options(FOUR, connections=3, count=4, size=1, pause=0), f"::ffff:{FOUR}"),
        (Options(FOUR, count=0, pause=0), f"::ffff:{FOUR}"),
    ],
)
def test_datagrams_come_to_each_member(contexts, options, gid):
    near, far = contexts
    said = [], []
    run(
        member(options, far, alone=False, tell=said[0].append),
        member(options, near, sends=True, alone=False, tell=said[1].append),
    )
    for lines, sends in zip(said, (False, True)):
        assert lines == words(sends, gid, options.connections, options.messages > 0)
    for context in contexts:
        assert not any(context._adapter.groups._rows)


def test_nobody_sends(contexts):
    with pytest.raises(ToolError, match="in vain for a completion"):
        run(member(Options(FOUR, patience=0.2), contexts[0], alone=False, tell=lambda line: None))


def test_the_command_line(contexts, capsys):
    assert main(["-m", FOUR, "--ib-dev", "sim0", "--peer", "sim1", "-C", "3", "-c", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    gid = f"::ffff:{FOUR}"
    assert [line for line in lines if not line.startswith("server: ")] == words(True, gid, 2)
    assert [line.removeprefix("server: ") for line in lines if line.startswith("server: ")] == words(False, gid, 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "-m wants the address of a group"),
        (f"-m {FOUR} -S 5000", "size must be between 0 and 4096, not 5000"),
        (f"-m {FOUR} -c 0", "connections must be between 1 and 64, not 0"),
        (f"-m {FOUR} -b 10.0.0.77", "no device has the address 10.0.0.77"),
        ("-m 10.0.0.2", "the address is no multicast group's"),
    ],
)
def test_a_wrong_command_line(capsys, given, text):
    assert main(given.split()) == 1
    assert text in capsys.readouterr().err
