"""Two programs write to, or read from, each other's memory: the client. See `rdma_server.py`.

    verbena run examples/rdma_client.py write|read ADDRESS PORT

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
from pyverbs.pyverbs_error import PyverbsError
from rdma import Conversation, speaker


def talk(mode, host, port, context, say):
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    say("address resolved.")
    with socket.create_connection(address) as sock:
        say("route resolved.")
        conversation = Conversation(context, mode, "active/client", say)
        conversation.connect(sock)
        conversation.send_region()
        conversation.run(sock)
        conversation.disconnect(sock)
    say("disconnected.")
    context.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.error = lambda message: sys.exit(f"{parser.prog}: {message}; --help tells more")
    parser.add_argument("mode", choices=("write", "read"))
    parser.add_argument("address", help="of the server")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    try:
        talk(arguments.mode, arguments.address, arguments.port, open_device(), speaker("client", False))
    except (OSError, RuntimeError, PyverbsError) as error:
        sys.exit(f"the client ends: {error}")


if __name__ == "__main__":
    main()
