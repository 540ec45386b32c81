"""A file copy with events: both sides sleep until there is something to do.

Run it: `verbena run examples/file_copy.py [FROM [TO]]`; without arguments it copies 10,000 random bytes.

The receiver has a few buffers, each with a receive posted. The sender has as many, and sends the file piece by piece;
when a send completes its buffer takes the next piece. If the sender is faster than the receiver, there may be nothing
posted: the receiver's adapter says so, and the sender's tries again a little later. No program sees anything of it.

Neither side polls in a loop: `End.wait` (in `connection.py`) asks for an event, and sleeps in `get_cq_event`.

It prints:

    10000 bytes in 20 pieces, SHA-256 equal
"""

import hashlib
import random
import sys
import threading
from pathlib import Path

from connection import LOCAL, End, check, connect_all, open_both
from pyverbs.libibverbs_enums import IBV_SEND_SIGNALED, IBV_WR_SEND_WITH_IMM
from pyverbs.mr import MR
from pyverbs.wr import SGE, RecvWR, SendWR

PIECE = 512
BUFFERS = 4
MORE, LAST = 0, 1  # what the immediate data says: four bytes that travel with a message, into the completion


def receive(end, took):
    """Takes pieces until the last one, and puts the file together in `took`."""
    while True:
        wc = check(end.wait())
        took += end.mr.read(wc.byte_len, wc.wr_id * PIECE)
        if wc.imm_data == LAST:
            return
        post_receive(end, wc.wr_id)


def post_receive(end, slot):
    end.qp.post_recv(RecvWR(wr_id=slot, num_sge=1, sg=[SGE(end.mr.buf + slot * PIECE, PIECE, end.mr.lkey)]))


def send(end, content):
    """Sends the file; returns the number of pieces."""
    # An empty file is one empty piece.
    pieces = [content[at : at + PIECE] for at in range(0, len(content), PIECE)] or [b""]
    free = list(range(BUFFERS))
    for number, piece in enumerate(pieces):
        if not free:
            free.append(check(end.wait()).wr_id)
        slot = free.pop()
        end.mr.write(piece, len(piece), slot * PIECE)
        end.qp.post_send(
            SendWR(
                wr_id=slot,
                opcode=IBV_WR_SEND_WITH_IMM,
                imm_data=LAST if number == len(pieces) - 1 else MORE,
                num_sge=1,
                sg=[SGE(end.mr.buf + slot * PIECE, len(piece), end.mr.lkey)],
                send_flags=IBV_SEND_SIGNALED,
            )
        )
    while len(free) < BUFFERS:
        free.append(check(end.wait()).wr_id)
    return len(pieces)


def main():
    content = random.randbytes(10_000)
    if len(sys.argv) > 1:
        try:
            content = Path(sys.argv[1]).read_bytes()
        except OSError as error:
            sys.exit(f"cannot read {sys.argv[1]}: {error.strerror}")
    sender, receiver = (End(context, depth=BUFFERS, events=True) for context in open_both())
    for end in (sender, receiver):
        end.mr = MR(end.pd, PIECE * BUFFERS, LOCAL)
    connect_all(sender, receiver)
    for slot in range(BUFFERS):
        post_receive(receiver, slot)
    took = bytearray()
    thread = threading.Thread(target=receive, args=(receiver, took))
    thread.start()
    pieces = send(sender, content)
    thread.join()
    sender.close()
    receiver.close()
    equal = hashlib.sha256(content).digest() == hashlib.sha256(took).digest()
    print(f"{len(took)} bytes in {pieces} pieces, SHA-256 {'equal' if equal else 'DIFFERS'}")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_bytes(took)
    sys.exit(not equal)


if __name__ == "__main__":
    main()
