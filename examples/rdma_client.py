"""Two programs write to, or read from, each other's memory: the client. See `rdma_server.py`.

    verbena run examples/rdma_client.py [--cm] write|read ADDRESS PORT

With `write` it prints:

    address resolved.
    route resolved.
    send completed successfully.
    received MSG_MR. writing message to remote memory...
    send completed successfully.
    send completed successfully.
    remote buffer: message from passive/server side with pid 21893
    disconnected.
"""

import argparse
import socket
import sys

from connection import open_device
from pyverbs.cm_enums import RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED
from pyverbs.cmid import CMID, AddrInfo, CMEventChannel
from pyverbs.pyverbs_error import PyverbsError
from rdma import ByCm, Conversation, OverTcp, expect, speaker


def talk(mode, host, port, context, say):
    """Over TCP."""
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    say("address resolved.")
    with socket.create_connection(address) as sock:
        say("route resolved.")
        converse(OverTcp(sock, context), mode, say)
    context.close()


def talk_by_cm(mode, host, port, context, say):
    """By the connection manager."""
    channel = CMEventChannel()
    cmid = CMID(channel, context=context)
    cmid.resolve_addr(AddrInfo(dst=host, dst_service=str(port)))
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED)
    say("address resolved.")
    cmid.resolve_route()
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED)
    say("route resolved.")
    converse(ByCm(cmid, asks=True), mode, say)
    context.close()


def converse(link, mode, say):
    conversation = Conversation(link, mode, "active/client", say)
    conversation.connect()
    conversation.send_region()
    conversation.run()
    link.disconnect()
    say("disconnected.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.error = lambda message: sys.exit(f"{parser.prog}: {message}; --help tells more")
    parser.add_argument("mode", choices=("write", "read"))
    parser.add_argument("--cm", action="store_true", help="by the connection manager, not over TCP")
    parser.add_argument("address", help="of the server; with --cm that of its adapter")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    try:
        ask = talk_by_cm if arguments.cm else talk
        ask(arguments.mode, arguments.address, arguments.port, open_device(), speaker("client", False))
    except (OSError, RuntimeError, PyverbsError) as error:
        sys.exit(f"the client ends: {error}")


if __name__ == "__main__":
    main()
