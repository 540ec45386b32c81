"""The adapter as a network interface of Linux: a TAP device at a raw packet queue.

Run it as root: `verbena run examples/netdev.py`, and in another terminal `ping 10.0.0.2`

What Linux sends through the interface `verbena0` goes out as frames of the first adapter, and what comes to that and is
not RoCE goes to Linux. The interface has the adapter's MAC address, so Linux is the station that peers see; its IP
address is one more beside those that the adapter answers for itself. RDMA goes on, and Linux sees nothing of it. With
`--ping` the program lets Linux ping the second adapter, and ends. In a network namespace of its own it disturbs nothing
else, and needs no root: `unshare -rn verbena run examples/netdev.py --ping`

With `--ping` it prints:

    verbena0: 10.0.0.200, 02:56:42:00:00:01
    10.0.0.2 answers a ping of Linux with 0 bytes
    10.0.0.2 answers a ping of Linux with 56 bytes
    10.0.0.2 answers a ping of Linux with 1472 bytes
"""

import fcntl
import os
import select
import socket
import struct
import sys
import time

from connection import open_both
from raw_packets import ECHO_REPLY, ECHO_REQUEST, NetworkCard, summed

NAME, ADDRESS, NETMASK = "verbena0", "10.0.0.200", "255.255.255.0"
PEER = "10.0.0.2"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFHWADDR = 0x8914, 0x8916, 0x891C, 0x8924
IFF_UP, ARPHRD_ETHER = 1, 1
NAP = 0.001  # seconds to wait for Linux when nothing comes


def tap(name, mac, address, netmask):
    """A file that reads and writes the frames of a new interface; it is gone when the file is closed."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def ask(code, layout, *values):
            fcntl.ioctl(control, code, struct.pack(f"16s{layout}", name.encode(), *values).ljust(40, b"\0"))

        ask(SIOCSIFHWADDR, "H6s", ARPHRD_ETHER, mac)
        for code, ip in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, netmask)):
            ask(code, "HH4s", socket.AF_INET, 0, socket.inet_aton(ip))
        ask(SIOCSIFFLAGS, "H", IFF_UP)
    return file


def move(file, card):
    """Frames of both directions that are there; whether there was one."""
    moved = False
    try:
        frame = os.read(file, 4096)
    except BlockingIOError:
        pass
    else:
        card.send(frame[:6], int.from_bytes(frame[12:14], "big"), frame[14:])
        moved = True
    while (frame := card.receive()) is not None:
        os.write(file, frame)
        moved = True
    return moved


def forever():
    while True:
        yield


def ping(address, sizes):
    """Lets Linux ping, and yields while it waits for the answer; 20 seconds for each."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
        icmp.setblocking(False)
        for number, size in enumerate(sizes):
            rest = struct.pack("!HH", os.getpid() & 0xFFFF, number) + os.urandom(size)
            icmp.sendto(summed(struct.pack("!BBH", ECHO_REQUEST, 0, 0) + rest, 2), (address, 0))
            end, answer = time.monotonic() + 20, None
            while answer is None and time.monotonic() < end:
                yield
                try:
                    packet = icmp.recv(4096)[20:]
                except BlockingIOError:
                    continue
                if packet[0] == ECHO_REPLY and packet[4:] == rest:
                    answer = packet
            print(f"{address} {'answers' if answer else 'does not answer'} a ping of Linux with {size} bytes")


def main():
    near, far = open_both()
    card = NetworkCard(near)
    file = tap(NAME, card.mac, ADDRESS, NETMASK)
    print(f"{NAME}: {ADDRESS}, {card.mac.hex(':')}", flush=True)
    pings = ping(PEER, (0, 56, 1472)) if "--ping" in sys.argv else forever()
    try:
        for _ in pings:
            if not move(file, card):
                select.select([file], [], [], NAP)
    except KeyboardInterrupt:
        pass
    os.close(file)
    near.close()
    far.close()


if __name__ == "__main__":
    main()
