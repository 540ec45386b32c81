"""Two programs write to, or read from, each other's memory: the server.

In one terminal each, with `verbena sim` in a third:

    verbena run examples/rdma_server.py write
    verbena run examples/rdma_client.py write 127.0.0.1 PORT

or both in one process: `verbena run examples/rdma_server.py write --both`. Instead of `write` both may say `read`. With
`--cm` they find each other by rdma_cm, at the server's adapter's address (that of sim0 is 10.0.0.1), as the programs do
whose example this follows. How it works stands in `rdma.py`.

With `write` it prints:

    listening on port 41879.
    received connection request.
    send completed successfully.
    received MSG_MR. writing message to remote memory...
    send completed successfully.
    send completed successfully.
    remote buffer: message from active/client side with pid 21893
    peer disconnected.
"""

import argparse
import ipaddress
import socket
import sys

import rdma_client
from connection import PORT, open_both, open_device
from pyverbs.cm_enums import RAI_PASSIVE, RDMA_CM_EVENT_CONNECT_REQUEST
from pyverbs.cmid import CMID, AddrInfo, CMEventChannel
from pyverbs.pyverbs_error import PyverbsError
from rdma import ByCm, Conversation, OverTcp, expect, in_thread, speaker


def serve(listener, mode, context, say):
    """Over TCP."""
    say(f"listening on port {listener.getsockname()[1]}.")
    sock = listener.accept()[0]
    with sock:
        say("received connection request.")
        converse(OverTcp(sock, context), mode, say)
    context.close()


def serve_by_cm(listener, mode, context, say):
    """By the connection manager."""
    say(f"listening on port {listener.port}.")
    request = expect(listener.event_channel, RDMA_CM_EVENT_CONNECT_REQUEST)
    say("received connection request.")
    cmid = CMID(request, listen_id=listener)
    request.ack_cm_event()
    listener.close()
    converse(ByCm(cmid, asks=False), mode, say)
    context.close()


def converse(link, mode, say):
    conversation = Conversation(link, mode, "passive/server", say)
    conversation.connect()
    conversation.run()
    link.disconnect()
    say("peer disconnected.")


def listen(arguments):
    # The devices are opened first: if there is none, nobody need connect.
    here, there = open_both() if arguments.both else (open_device(), None)
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        client = None
        if arguments.both:
            client = in_thread(rdma_client.talk, arguments.mode, "127.0.0.1", port, there, speaker("client", True))
        serve(listener, arguments.mode, here, speaker("server", arguments.both))
        if client is not None:
            client.join()


def listen_by_cm(arguments):
    here, there = open_both() if arguments.both else (open_device(), None)
    listener = CMID(CMEventChannel(), context=here)
    listener.bind_addr(AddrInfo(flags=RAI_PASSIVE))
    listener.listen()
    client = None
    if arguments.both:
        own = str(ipaddress.IPv4Address(here.query_gid(PORT, 0).ipv4))
        talk = rdma_client.talk_by_cm
        client = in_thread(talk, arguments.mode, own, listener.port, there, speaker("client", True))
    serve_by_cm(listener, arguments.mode, here, speaker("server", arguments.both))
    if client is not None:
        client.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.error = lambda message: sys.exit(f"{parser.prog}: {message}; --help tells more")
    parser.add_argument("mode", choices=("write", "read"))
    parser.add_argument("--both", action="store_true", help="the client is a thread of this process")
    parser.add_argument("--cm", action="store_true", help="by the connection manager, not over TCP")
    arguments = parser.parse_args()
    try:
        (listen_by_cm if arguments.cm else listen)(arguments)
    except (OSError, RuntimeError, PyverbsError) as error:
        sys.exit(f"the server ends: {error}")


if __name__ == "__main__":
    main()
