"""Connections by the connection manager: rdmacm-utils' programs, unmodified, as clients and servers of ours."""

import time
from functools import partial

from verbena.sw.tools import rping, udaddy
from verbena.sw.tools.session import run

from .case import Case

__all__ = ["groups"]

ROLES = ("server", "client")
ADAPTER = "10.0.0.1"
LISTENS = "rdma resource show cm_id | grep -q 'state LISTEN'"
PATIENCE = 60
SHORT = 100
"""Bytes of a line."""


def converse(bench, role, command, session):
    """Runs ``command`` in the guest and ``session`` here, to the end of both; output goes to the log of tools."""
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
            bench.until(lambda: guest.call("run", {"command": LISTENS})[0] == 0)
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
    assert status == 0, f"{command}: status {status}: {' / '.join(output.strip().splitlines()[-3:])}"
    return output


def pings(count, size, role, bench):
    """rping: the client checks what comes back. What both print is checked, too, of lines so short that those of stdout
    and stderr do not mix.
    """
    address = bench.station.guest if role == "client" else ADAPTER
    verbose = size <= SHORT
    options = rping.Options(address, count=count, size=size, verbose=verbose, validate=True, patience=PATIENCE)
    told = []

    def session(tell):
        def heard(line):
            told.append(line)
            tell(line)

        return getattr(rping, role)(options, bench.context, alone=False, tell=heard, warn=tell)

    words = f"-s -a {address}" if role == "client" else f"-c -a {address} -C {count} -V"
    output = converse(bench, role, f"rping {words} -S {size}" + " -v" * verbose, session)
    if verbose:
        texts = [rping.ping(number, size)[:-1].decode() for number in range(count)]
        theirs, ours = ("server ping data: ", "ping data: ")[:: 1 if role == "client" else -1]
        assert told == [ours + text for text in texts]
        assert [line for line in output.splitlines() if line.startswith(theirs)] == [theirs + text for text in texts]


def datagrams(count, size, connections, role, bench):
    """udaddy."""
    address = bench.station.guest if role == "client" else ADAPTER
    options = udaddy.Options(address, None, connections, count, size, PATIENCE)
    end = getattr(udaddy, role)
    words = f"-c {connections} -C {count} -S {size}" + (f" -s {address}" if role == "server" else f" -b {address}")
    output = converse(bench, role, f"udaddy {words}", lambda tell: end(options, bench.context, alone=False, tell=tell))
    assert "data transfers complete" in output


def groups(seed):
    cases = [
        Case(f"rping -C {count} -S {size}", role, partial(pings, count, size, role), 4096, tool=True)
        for count, size in ((3, 64), (10, 5000))
        for role in ROLES
    ]
    cases += [
        Case(
            f"udaddy -c {many} -C {count} -S {size}", role, partial(datagrams, count, size, many, role), 4096, tool=True
        )
        for many, count, size in ((1, 10, 100), (3, 4, 1000))
        for role in ROLES
        for run in [partial(datagrams, count, size, many, role)]
    ]
    return {"connections": cases}
