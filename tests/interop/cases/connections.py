"""Connections by the connection manager: rdmacm-utils' programs, unmodified, as clients and servers of ours."""

import time
from functools import partial
from ipaddress import IPv6Address

import pytest
from frames import ADAPTER as ADAPTER_SIDE
from frames import GUEST
from machine import MAC
from verbena.sw.gids import link_local
from verbena.sw.tools import mckey, rping, udaddy
from verbena.sw.tools.session import ToolError, run
from verbena.sw.verbs.cm_enums import RAI_PASSIVE
from verbena.sw.verbs.cmid import CMID, AddrInfo

from .case import Case

__all__ = ["groups"]

ROLES = ("server", "client")
ADAPTER = "10.0.0.1"
GROUP = "239.1.2.3"
LISTENS = "rdma resource show cm_id | grep -q 'state LISTEN'"
IS_MEMBER = f"ip maddress show dev eth0 | grep -q {GROUP}"
TWICE = [(name, "duplicate", number) for name in (ADAPTER_SIDE, GUEST) for number in range(60)]
PATIENCE = 300
"""Seconds of the wall's clock. A REQ that is lost is sent again after 4 seconds of the simulation, which take 50 of a
processor of its own."""
CLOSED = "rdma_get_cm_event: Bad file descriptor"
"""What rping's thread for events says, and ends the program with, if the channel is closed at the end before it looks
(rdma-core 44).
"""
SHORT = 100
"""Bytes of a line."""


def addresses(bench, network):
    """The adapter's and the guest's, as each of our tools and of the guest's wants them."""
    if network == "IPv4":
        return ADAPTER, bench.station.guest
    return tuple(str(IPv6Address(link_local(mac))) for mac in (bench.port.mac, MAC))


def converse(bench, role, command, session, ready=LISTENS):
    """Runs ``command`` in the guest and ``session`` here, to the end of both; output goes to the log of tools. A guest
    that is asked is there when its command ``ready`` has status 0.
    """
    guest = bench.guest
    with (bench.folder / "tools.log").open("a") as log:

        def tell(line):
            print(line, file=log)

        tell(f"guest: {command}; adapter is the {role}")
        mine = session(tell)
        if role == "server":
            next(mine)  # it listens then
            job = guest.call("start", {"command": command})
        else:
            job = guest.call("start", {"command": command})
            bench.until(lambda: guest.call("run", {"command": ready})[0] == 0)
        status = None
        try:
            run(mine)
            end = time.monotonic() + PATIENCE
            while status is None and time.monotonic() < end:
                status, output = guest.call("job", {"number": job, "seconds": 0.05})
                bench.pump()
        finally:
            status, output = guest.call("job", {"number": job})
            tell(output)
            if status is None:
                guest.call("kill", {"number": job})
    last = output.strip().splitlines()[-3:]
    assert status == 0 or last[-1] == CLOSED, f"{command}: status {status}: {' / '.join(last)}"
    return output


def pings(count, size, role, aimed, own, bench, network="IPv4"):
    """rping: the client checks what comes back. What both print is checked, too, of lines so short that those of stdout
    and stderr do not mix. ``aimed`` is what happens to frames (:meth:`.cable.Line.harm`). ``own``: both ends bring up
    queue pairs by hand.
    """
    bench.cable.harm(aimed=aimed)
    ours, theirs = addresses(bench, network)
    scope = "%eth0" if network == "IPv6" else ""
    address = theirs if role == "client" else ours
    verbose = size <= SHORT
    options = rping.Options(
        address, count=count, size=size, verbose=verbose, validate=True, own_qp=own, patience=PATIENCE
    )
    told = []

    def session(tell):
        def heard(line):
            told.append(line)
            tell(line)

        return getattr(rping, role)(options, bench.context, alone=False, tell=heard, warn=tell)

    words = f"-s -a {address}{scope}" if role == "client" else f"-c -a {address}{scope} -C {count} -V"
    output = converse(bench, role, f"rping {words} -S {size}" + " -v" * verbose + " -q" * own, session)
    if verbose:
        texts = [rping.ping(number, size)[:-1].decode() for number in range(count)]
        theirs, ours = ("server ping data: ", "ping data: ")[:: 1 if role == "client" else -1]
        assert told == [ours + text for text in texts]
        assert [line for line in output.splitlines() if line.startswith(theirs)] == [theirs + text for text in texts]


def ended(bench, job):
    """Whether a job in the guest has ended; meanwhile the connection manager works."""
    bench.context.advance(512)
    return bench.guest.call("job", {"number": job})[0] is not None


def refused(role, bench):
    """Nobody listens."""
    text = "RDMA_CM_EVENT_REJECTED, error 8"
    bench.until(lambda: bench.guest.call("run", {"command": LISTENS})[0] != 0)
    if role == "client":
        options = rping.Options(bench.station.guest, patience=PATIENCE)
        with pytest.raises(ToolError, match=text):
            run(rping.client(options, bench.context, alone=False))
        return
    with CMID(AddrInfo(src=ADAPTER, flags=RAI_PASSIVE), context=bench.context):  # that there is a QP1
        job = bench.guest.call("start", {"command": f"rping -c -a {ADAPTER} -C 1"})
        bench.until(lambda: ended(bench, job))
    status, output = bench.guest.call("job", {"number": job})
    assert status != 0
    assert text in output


def datagrams(count, size, connections, role, bench, network="IPv4"):
    """udaddy."""
    ours, theirs = addresses(bench, network)
    address = theirs if role == "client" else ours
    scope = "%eth0" if network == "IPv6" else ""
    options = udaddy.Options(address, None, connections, count, size, patience=PATIENCE)
    end = getattr(udaddy, role)
    words = f"-c {connections} -C {count} -S {size} {'-s' if role == 'server' else '-b'} {address}{scope}"
    output = converse(bench, role, f"udaddy {words}", lambda tell: end(options, bench.context, alone=False, tell=tell))
    assert "data transfers complete" in output


def members(count, size, role, bench):
    """mckey: one end, which is the client here, sends to a group, and the other one is in it."""
    sends = role == "client"
    options = mckey.Options(GROUP, ADAPTER, count=count, size=size, patience=PATIENCE)
    words = f"-m {GROUP} -b {bench.station.guest} -C {count} -S {size}" + " -s" * (not sends)

    def session(tell):
        return mckey.member(options, bench.context, sends=sends, alone=False, tell=tell)

    output = converse(bench, role, f"mckey {words}", session, IS_MEMBER)
    assert "data transfers complete" in output
    assert f"joined dgid: ::ffff:{GROUP}" in output


def groups(seed):
    cases = [
        Case(
            f"rping -C {count} -S {size}{' -q' * own}",
            role,
            partial(pings, count, size, role, (), own),
            4096,
            tool=True,
        )
        for count, size, own in ((3, 64, False), (10, 5000, False), (3, 64, True))
        for role in ROLES
    ]
    cases += [
        Case(f"rping -C 3 -S 64: {what}", role, partial(pings, 3, 64, role, aimed, False), 4096, faults, tool=True)
        for role, what, faults, aimed in (
            ("server", "the REQ", "lose", [(GUEST, "lose", 0)]),
            ("client", "the REP", "lose", [(GUEST, "lose", 0)]),
            ("server", "the RTU", "lose", [(GUEST, "lose", 1)]),
            ("client", "our REQ", "lose", [(ADAPTER_SIDE, "lose", 0)]),
            ("server", "our REP", "lose", [(ADAPTER_SIDE, "lose", 0)]),
            *((role, "each frame", "duplicate", TWICE) for role in ROLES),
        )
    ]
    cases += [Case("rping: nobody listens", role, partial(refused, role), 4096, tool=True) for role in ROLES]
    cases += [
        Case(
            f"udaddy -c {many} -C {count} -S {size}", role, partial(datagrams, count, size, many, role), 4096, tool=True
        )
        for many, count, size in ((1, 10, 100), (3, 4, 1000))
        for role in ROLES
        for run in [partial(datagrams, count, size, many, role)]
    ]
    cases += [
        Case(
            f"rping -C {count} -S {size}{' -q' * own} over IPv6",
            role,
            partial(pings, count, size, role, (), own, network="IPv6"),
            4096,
            ip="IPv6",
            tool=True,
        )
        for count, size, own in ((3, 64, False), (10, 5000, False), (3, 64, True))
        for role in ROLES
    ]
    cases += [
        Case(
            "udaddy -c 2 -C 4 -S 1000 over IPv6",
            role,
            partial(datagrams, 4, 1000, 2, role, network="IPv6"),
            4096,
            ip="IPv6",
            tool=True,
        )
        for role in ROLES
    ]
    cases += [Case("mckey -C 5 -S 100", role, partial(members, 5, 100, role), 4096, tool=True) for role in ROLES]
    return {"connections": cases}
