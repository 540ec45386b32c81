"""How devices are found."""

import errno

import pytest
from fake_device import FakeDevice
from verbena.sw import port
from verbena.sw.gids import mapped, port_gids
from verbena.sw.port import Port, addresses, has_port, mac_of, open_port, port_names, provide


@pytest.fixture
def registry(monkeypatch):
    """An empty registry; the list is what ``importlib.metadata`` finds."""
    entries = []
    for name, value in (("_openers", {}), ("_open", {}), ("_loaded", False)):
        monkeypatch.setattr(port, name, value)
    monkeypatch.setattr(port.importlib.metadata, "entry_points", lambda group: entries)
    return entries


class Entry:
    def __init__(self, name, provider):
        self.name = name
        self.provider = provider
        self.loads = 0

    def load(self):
        self.loads += 1
        if isinstance(self.provider, Exception):
            raise self.provider
        return self.provider


def test_a_fake_device_is_a_port(device):
    assert isinstance(device, Port)


def test_a_provider_is_asked_once_and_a_device_opened_once(registry):
    opened = []
    entry = Entry("lab", lambda: {"b": lambda: opened.append("b") or FakeDevice("b"), "a": FakeDevice})
    registry.append(entry)
    assert port_names() == ["a", "b"]
    assert opened == []
    assert open_port("b") is open_port("b")
    assert opened == ["b"]
    assert entry.loads == 1


def test_unknown_device_names_those_that_exist(registry):
    registry.append(Entry("lab", lambda: {"x": FakeDevice}))
    with pytest.raises(OSError, match="no device 'y'; there are: x") as caught:
        open_port("y")
    assert caught.value.errno == errno.ENODEV


def test_an_opener_of_all_names_that_begin_alike(registry):
    registry.append(Entry("lab", lambda: {"udp:": FakeDevice, "x": lambda: FakeDevice("x")}))
    provide("udp:own", lambda: FakeDevice("mine"))
    assert port_names() == ["udp:own", "x"]
    assert all(map(has_port, ("udp:a:b", "udp:own", "x")))
    assert not any(map(has_port, ("udp:", "udp", "tcp:a", "x:a")))
    assert open_port("udp:a:b") is open_port("udp:a:b")
    assert (open_port("udp:a:b").name, open_port("udp:own").name) == ("a:b", "mine")
    for name in ("udp:", "x:a"):
        with pytest.raises(OSError, match="no device"):
            open_port(name)


def test_no_device_at_all(registry):
    assert port_names() == []
    with pytest.raises(OSError, match="there are: none"):
        open_port("y")


def test_who_knows_the_address_need_not_open_the_device(registry):
    opened = []

    def knows():
        opened.append("knows")
        return FakeDevice("knows")

    knows.mac = 5
    registry.append(Entry("lab", lambda: {"knows": knows, "opens": lambda: FakeDevice("opens", mac=7)}))
    assert (mac_of("knows"), mac_of("opens"), opened) == (5, 7, [])
    open_port("knows").mac = 6
    assert mac_of("knows") == 6
    with pytest.raises(OSError, match="no device 'y'"):
        mac_of("y")


@pytest.mark.parametrize("fault", [ImportError("no amaranth"), ValueError("nonsense")])
def test_a_broken_provider_leaves_the_others_alone(registry, fault):
    registry.extend([Entry("broken", fault), Entry("good", lambda: {"x": FakeDevice})])
    with pytest.warns(RuntimeWarning, match="devices of 'broken' are left out"):
        assert port_names() == ["x"]
    assert port_names() == ["x"]


def test_what_a_program_provides_comes_before_what_is_installed(registry):
    first, second = FakeDevice("x"), FakeDevice("x")
    provide("x", lambda: first)
    registry.append(Entry("lab", lambda: {"x": FakeDevice}))
    assert open_port("x") is first
    provide("x", lambda: second)
    assert open_port("x") is second


def test_an_opener_that_fails_is_asked_again(registry):
    ports = [FakeDevice("x")]

    def opener():
        if not attempts:
            attempts.append(1)
            raise OSError(errno.EIO, "not yet")
        return ports[0]

    attempts = []
    provide("x", opener)
    with pytest.raises(OSError, match="not yet"):
        open_port("x")
    assert open_port("x") is ports[0]


def test_addresses_of_devices(registry):
    """Of those that are open, and of those whose openers know it."""

    def opener():
        return FakeDevice("b")

    opener.ip, opener.gids = 7, [8]
    registry.append(Entry("lab", lambda: {"a": FakeDevice, "b": opener, "udp:": FakeDevice}))
    assert addresses() == {"b": ([mapped(7), 8], False)}
    open_port("a")
    assert addresses() == {"a": (port_gids(FakeDevice()), True), "b": ([mapped(7), 8], False)}
    open_port("b").gone = True
    assert addresses()["b"] == ([mapped(7), 8], False)
