"""Each side finds the other's hardware address, and answers pings."""

import errno
import ipaddress
from functools import partial
from unittest import mock

import pytest
from machine import MAC, mac_text
from verbena.sw.adapter import AdapterError

from .case import Case

__all__ = ["groups"]

SHORT_NS = 1_000_000
PAYLOADS = (0, 1, 56, 1000, 1472)


def arp_of_guest(bench):
    """The guest asks who has our address."""
    ours = ipaddress.ip_address(bench.port.ip)
    bench.guest.run("ip neighbour flush dev eth0")
    bench.guest.run(f"ping -c 1 -W 10 {ours}")
    entry = bench.guest.run(f"ip neighbour show {ours}")
    assert mac_text(bench.port.mac) in entry, entry


def arp_of_adapter(bench):
    """We ask who has the guest's, and for one that nobody has, with a second that is shorter: the guest is silent."""
    resolve = bench.context._adapter.control.resolve
    theirs = int(ipaddress.ip_address(bench.guest.address))
    assert resolve(theirs) == MAC
    with mock.patch.object(type(bench.port), "second_ns", SHORT_NS):
        with pytest.raises(AdapterError) as caught:
            resolve(theirs + 1)
    assert caught.value.errno == errno.EHOSTUNREACH


def echo(payload, bench):
    """What ping says, answered or not."""
    return bench.guest.run(f"ping -c 1 -W 20 -s {payload} {ipaddress.ip_address(bench.port.ip)} || true")


def ping(payload, bench):
    """The guest checks what comes back, byte by byte. One at a time: in a guest's tenth of a second only microseconds
    may pass here, and a station answers one ping after the other. One that meets an ARP request of the guest's is
    dropped, as the counter tells, and asked for again.
    """
    count = bench.context._adapter.control.counters
    for _ in range(3):
        dropped = count("drop_station")
        out = echo(payload, bench)
        if count("drop_station") != dropped:
            out = echo(payload, bench)
        assert " 0% packet loss" in out, out
        assert "wrong data" not in out, out
        assert "duplicates" not in out, out


def groups(seed):
    return {
        "addresses": [
            Case("ARP: the guest asks", "asked", arp_of_guest),
            Case("ARP: the adapter asks", "asking", arp_of_adapter),
            *(Case(f"ping -s {payload}", "pinged", partial(ping, payload), tool=True) for payload in PAYLOADS),
        ]
    }
