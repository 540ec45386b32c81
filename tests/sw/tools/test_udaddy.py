"""udaddy: both ends on two simulated adapters, and ends that go wrong."""

import pytest
from scapy.layers.inet import IP
from scapy.utils import rdpcap
from verbena.sim.devices import world
from verbena.sw.tools.endpoint import open_device
from verbena.sw.tools.session import ToolError, run
from verbena.sw.tools.udaddy import Options, client, main, server

FAR, FAR6 = "10.0.0.2", "fe80::56:42ff:fe00:2"
SERVER = """udaddy: starting server
receiving data transfers
sending replies
data transfers complete
test complete
return status 0"""
CLIENT = """udaddy: starting client
udaddy: connecting
initiating data transfers
receiving data transfers
data transfers complete
test complete
return status 0"""


@pytest.fixture
def contexts():
    with open_device("sim0") as a, open_device("sim1") as b:
        yield a, b


@pytest.mark.parametrize(
    "options",
    [
        Options(FAR),
        Options(FAR, count=3, size=4096),
        Options(FAR6, connections=2, count=3),
        Options(FAR, connections=4, count=5, size=1),
        Options(FAR, count=1, size=0),
        Options(FAR, count=0),
    ],
)
def test_datagrams_are_answered(contexts, options):
    near, far = contexts
    said = {"server": [], "client": []}
    run(
        server(options, far, alone=False, tell=said["server"].append),
        client(options, near, alone=False, tell=said["client"].append),
    )
    expected = {"server": SERVER.splitlines(), "client": CLIENT.splitlines()}
    if not options.messages:
        expected = {name: [*lines[: 1 + (name == "client")], *lines[-2:]] for name, lines in expected.items()}
    assert said == expected


def test_nobody_listens(contexts):
    near, far = contexts
    serving = server(Options(FAR, connections=2), far, alone=False, tell=lambda line: None)
    next(serving)
    serving.close()
    with pytest.raises(ToolError, match="udaddy: event: RDMA_CM_EVENT_UNREACHABLE, error: 1"):
        run(client(Options(FAR), near, alone=False, tell=lambda line: None))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-C -1", "count must be between 0 and"),
        ("-S 5000", "size must be between 0 and 4096, not 5000"),
        ("-c 0", "connections must be between 1 and 64, not 0"),
        ("-b 10.0.0.77", "no device has the address 10.0.0.77"),
    ],
)
def test_a_wrong_command_line(capsys, words, text):
    assert main(words.split()) == 1
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("address", [(), ("-s", FAR6)])
def test_the_command_line(capsys, address):
    assert main(["--peer", "sim1", *address, "-C", "3", "-c", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("server: ")] == CLIENT.splitlines()
    assert [line.removeprefix("server: ") for line in lines if line.startswith("server: ")] == SERVER.splitlines()


def test_datagrams_have_the_type_of_service_that_is_wanted(contexts, tmp_path):
    """Those of the client; an answer goes as what it answers came."""
    path = tmp_path / "a.pcapng"
    world().capture(path)
    run(
        server(Options(FAR, count=3), contexts[1], alone=False, tell=lambda line: None),
        client(Options(FAR, count=3, tos=0xA8), contexts[0], alone=False, tell=lambda line: None),
    )
    world().capture(None)
    packets = [packet[IP] for packet in rdpcap(str(path)) if IP in packet]
    assert {packet.tos for packet in packets if len(packet) < 200} == {0xA8}
    assert len([packet for packet in packets if len(packet) < 200]) == 6
    assert {packet.tos for packet in packets if len(packet) > 200} == {0}  # of the connection manager


@pytest.mark.parametrize("words", ["-t 256", "-t -1"])
def test_a_type_of_service_that_there_is_not(capsys, words):
    assert main(words.split()) == 1
    assert "tos must be between 0 and 255" in capsys.readouterr().err
