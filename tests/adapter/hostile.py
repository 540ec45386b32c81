"""Frames of a hostile peer: honest ones of every kind, made by scapy once, and mutations of them."""

import struct

from rocegram import rc_frame, with_icrc

__all__ = ["MTU", "Attacker", "mutate", "set_reth"]

MTU = 256
BTH = 14 + 20 + 8
RETH = BTH + 12
RC, UC, UD = 0x00, 0x20, 0x60
"""In an opcode: the transport."""
QKEY = 0x11111111
DETH = struct.pack(">II", QKEY, 0x123456)
IMM = b"\x01\x02\x03\x04"
REQUESTS = {(0x04,): 6, (0x05,): 3, (0x00, 0x02): 3, (0x00, 0x01, 0x03): 3, (0x0A,): 6, (0x0B,): 3, (0x06, 0x08): 3}
REQUESTS |= {(0x06, 0x07, 0x09): 3, (0x0C,): 3, (0x13,): 2, (0x14,): 2}
RESPONSES = {(0x11,): 4, (0x10,): 2, (0x0D, 0x0F): 1, (0x0D, 0x0E, 0x0F): 1, (0x12,): 2}
MESSAGES = REQUESTS | RESPONSES
"""Opcodes of the messages that are sent, and how often."""
TO_AN_ADDRESS = (0x06, 0x0A, 0x0B, 0x0C, 0x13, 0x14)
READ_LENGTH = 3 * MTU + 9
PSNS = {0x0C: 4}
"""PSNs that a request takes, if not one."""


def bodies(address, key):
    def reth(length, offset=0):
        return struct.pack(">QII", address + offset, key, length)

    full = bytes(range(256))
    aeth = struct.pack(">I", 0x1F000005)
    return {
        0x00: full,
        0x01: full,
        0x02: b"last",
        0x03: IMM + b"last",
        0x04: b"only" * 20,
        0x05: IMM + b"only",
        0x06: reth(2 * MTU) + full,
        0x07: full,
        0x08: full,
        0x09: IMM + full,
        0x0A: reth(100, 64) + bytes(100),
        0x0B: reth(4, 64) + IMM + b"data",
        0x0C: reth(READ_LENGTH, 1024),
        0x0D: aeth + full,
        0x0E: full,
        0x0F: aeth + full,
        0x10: aeth + full[:64],
        0x11: aeth,
        0x12: aeth + full[:8],
        0x13: reth(0, 2048 + -address % 8)[:12] + bytes(16),
        0x14: reth(0, 2048 + -address % 8)[:12] + full[1:17],
    }


class Attacker:
    """Goes through honest messages to one QP, and knows the PSN that its responder most likely expects.

    Parameters
    ----------
    rng : random.Random
    source, target : (mac, ip)
    address, key : int
        Where its WRITEs, READs and atomics go.
    transport : int
        Of the QPs, as it stands in opcodes.
    """

    _frames = {}

    def __init__(self, rng, source, target, address, key, transport=RC):
        self.rng = rng
        wanted = (source, target, address, key, transport)
        if wanted not in self._frames:
            deth = DETH if transport == UD else b""
            made = {op: rc_frame(source, target, 0, 0, op, deth + body) for op, body in bodies(address, key).items()}
            # A message of three packets says so; one of two is of 512 bytes.
            made["long"] = set_reth(made[0x06], address, key, 3 * MTU)
            self._frames[wanted] = made
        self.frames = self._frames[wanted]
        self.transport = transport
        served = {RC: range(0x20), UC: range(0x0C), UD: (0x04, 0x05)}[transport]
        self.messages = {each: often for each, often in MESSAGES.items() if each[0] in served}
        self.plan = []
        self.restart(0, 0, 0)

    def restart(self, qpn, psn, acked):
        """The QP begins anew: it expects ``psn``, and waits for the acknowledgement of ``acked``."""
        self.qpn, self.psn, self.acked = qpn, psn, acked
        self.plan.clear()

    def next(self, *, advance):
        """The next honest frame; with ``advance`` the one after it follows next time."""
        if not self.plan:
            message = self.rng.choices(list(self.messages), self.messages.values())[0]
            self.plan = ["long" if message == (0x06, 0x07, 0x09) and i == 0 else op for i, op in enumerate(message)]
        opcode = self.plan[0]
        frame = bytearray(self.frames[opcode])
        ack = opcode in range(0x0D, 0x13)
        frame[BTH] |= self.transport
        frame[BTH + 5 : BTH + 8] = self.qpn.to_bytes(3, "big")
        frame[BTH + 9 : BTH + 12] = ((self.acked if ack else self.psn) & 0xFFFFFF).to_bytes(3, "big")
        if advance:
            del self.plan[0]
            if ack:
                self.acked += 1
            else:
                self.psn += PSNS.get(opcode, 1)
        return frame


def set_reth(frame, address, key, length):
    frame = bytearray(frame)
    struct.pack_into(">QII", frame, RETH, address, key, length)
    return frame


def mutate(frame, rng, victims, targets):
    """``frame`` made wrong in one of many ways, most of them with an ICRC that fits.

    ``victims`` are numbers of QPs, ``targets`` are pairs of an address and a key that WRITEs, READs and atomics are
    turned to.
    """
    kind = rng.choices(range(9), (2, 1, 1, 2, 1, 2, 2, 6, 1))[0]
    if kind == 0:  # bits anywhere
        for _ in range(rng.randrange(1, 6)):
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    elif kind == 1:  # cut off
        del frame[rng.randrange(1, len(frame)) :]
    elif kind == 2:  # too long
        frame += rng.randbytes(rng.randrange(1, 200))
    elif kind == 3:  # a field of IP, UDP or BTH
        frame[rng.randrange(14, RETH)] = rng.randrange(256)
    elif kind == 4:  # noise of any size, half of it behind headers that fit
        head = frame[:BTH] if rng.random() < 0.5 else b""
        frame = bytearray(head + rng.randbytes(rng.randrange(1, 300)))
    elif kind == 5:  # another QP or another opcode
        if rng.random() < 0.5:
            frame[BTH] = rng.randrange(256)
        else:
            frame[BTH + 5 : BTH + 8] = rng.choice(victims).to_bytes(3, "big")
    elif kind == 6:  # another PSN
        psn = int.from_bytes(frame[BTH + 9 : BTH + 12], "big") + rng.choice(
            [-2, -1, 1, 2, 1 << 23, rng.getrandbits(24)]
        )
        frame[BTH + 9 : BTH + 12] = (psn & 0xFFFFFF).to_bytes(3, "big")
    elif kind == 7:  # an access to where it must not go; the key is at the same place in RETH and AtomicETH
        if frame[BTH] & 0x1F in TO_AN_ADDRESS:
            address, key = rng.choice(targets)
            length = struct.unpack_from(">I", frame, RETH + 12)[0]
            if rng.random() < 0.2:
                length = rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, rng.getrandbits(32)])
            frame = set_reth(frame, address, key, length)
        else:
            frame[min(len(frame) - 1, RETH + rng.randrange(16))] = rng.randrange(256)
    else:  # lengths of IP and UDP
        struct.pack_into(">H", frame, rng.choice([16, 38]), rng.choice([0, 8, 27, 28, 60, 65535, rng.randrange(600)]))
    if len(frame) > RETH + 4 and rng.random() < 0.8:
        return with_icrc(bytes(frame))
    return bytes(frame)
