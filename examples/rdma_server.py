"""Two programs write to, or read from, each other's memory: the server.

In one terminal each, with `verbena sim` in a third:

    verbena run examples/rdma_server.py write
    verbena run examples/rdma_client.py write 127.0.0.1 PORT

or both in one process: `verbena run examples/rdma_server.py write --both`. Instead of `write` both may say `read`. How
it works stands in `rdma.py`.

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
import socket
import sys

import rdma_client
from connection import open_both, open_device
from pyverbs.pyverbs_error import PyverbsError
from rdma import Conversation, in_thread, speaker


def serve(listener, mode, context, say):
    say(f"listening on port {listener.getsockname()[1]}.")
    sock = listener.accept()[0]
    with sock:
        say("received connection request.")
        conversation = Conversation(context, mode, "passive/server", say)
        conversation.connect(sock)
        conversation.run(sock)
        conversation.disconnect(sock)
    say("peer disconnected.")
    context.close()


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.error = lambda message: sys.exit(f"{parser.prog}: {message}; --help tells more")
    parser.add_argument("mode", choices=("write", "read"))
    parser.add_argument("--both", action="store_true", help="the client is a thread of this process")
    arguments = parser.parse_args()
    try:
        listen(arguments)
    except (OSError, RuntimeError, PyverbsError) as error:
        sys.exit(f"the server ends: {error}")


if __name__ == "__main__":
    main()
