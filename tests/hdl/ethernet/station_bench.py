"""A station on its wire: frames in, frames out, for the tests of ARP, neighbour discovery and ICMP."""

from ether_frames import IP_ADDRESS, MAC, PEER_IP, PEER_MAC, beats, frames_of, ip_text, mac_text
from scapy.layers.l2 import ARP, Ether
from streams import collect, make_rng, pause, shared, simulate
from verbena.hdl.ethernet.arp_icmp import ArpIcmp

__all__ = ["BROADCAST", "COUNTERS", "LONGEST", "REST", "SILENT", "Bench", "arp", "arp_answer"]

BROADCAST = 0xFFFFFFFFFFFF
COUNTERS = ("arp_replies", "echo_replies", "drop_station")
LONGEST = 400
"""More cycles than the station is busy with a small frame."""
SILENT, SILENT6 = 170, 290
"""More cycles than an answer takes to begin; also if it is one of IPv6."""
REST = "rest"
"""In a script: until an answer has gone out, or none can come any more."""


def arp(operation=1, *, to=BROADCAST, sender=(PEER_MAC, PEER_IP), target=(0, IP_ADDRESS), **fields):
    return Ether(dst=mac_text(to), src=mac_text(sender[0]), type=0x806) / ARP(
        op=operation,
        hwsrc=mac_text(sender[0]),
        psrc=ip_text(sender[1]),
        hwdst=mac_text(target[0]),
        pdst=ip_text(target[1]),
        **fields,
    )


def arp_answer(sender=(PEER_MAC, PEER_IP)):
    return bytes(arp(2, to=sender[0], sender=(MAC, IP_ADDRESS), target=sender))


class Bench:
    """Sends frames, with or without time between them, and collects frames and counts.

    A script is a list of frames, of ``(frame, error)``, of cycles to wait, of ``REST``, and of functions of ``ctx``
    that are called a cycle before the next action.
    """

    def __init__(self, width=64, *, stall=0.3, enable=1, **options):
        self.rng = make_rng()
        self.width, self.stall, self.enable = width, stall, enable
        self.silent = SILENT6 if options.get("ipv6") else SILENT
        self.dut = shared(ArpIcmp, width, **options)
        self.counts = dict.fromkeys(COUNTERS, 0)

    def run(self, script, *, rest=LONGEST, watch=(), deadline=100_000):
        """The list of frames that came out up to ``rest`` cycles after the script; ``neighbour`` is what is known."""
        dut, rng = self.dut, self.rng
        items = []

        async def sender(ctx):
            for name, value in {"mac": MAC, "ip": IP_ADDRESS, "enable": self.enable, "neighbour_ip": PEER_IP}.items():
                ctx.set(getattr(dut, name), value)
            for action in script:
                if callable(action):
                    action(ctx)
                    await ctx.tick()
                    ctx.set(dut.neighbour_ask, 0)
                elif isinstance(action, int):
                    if action:
                        await ctx.tick().repeat(action)
                elif action is REST:
                    silent, over = 0, False
                    edges = aiter(ctx.tick().sample(dut.o.valid, dut.o.ready & dut.o.payload.last))
                    while silent < self.silent and not over:
                        _, _, valid, last = await anext(edges)
                        silent, over = 0 if valid else silent + 1, valid and last
                else:
                    frame, error = action if isinstance(action, tuple) else (action, False)
                    for beat in beats(bytes(frame), self.width, error=error, rng=rng):
                        await pause(ctx, rng, self.stall)
                        ctx.set(dut.i, beat)
                        ctx.set(dut.i_valid, 1)
                        await ctx.tick()
                        ctx.set(dut.i_valid, 0)
            await ctx.tick().repeat(rest)
            self.neighbour = ctx.get(dut.neighbour_mac) if ctx.get(dut.neighbour_valid) else None

        async def receiver(ctx):
            await collect(ctx, dut.o, items, rng, self.stall)

        async def counter(ctx):
            async for _, _, *values in ctx.tick().sample(*(getattr(dut, f"count_{name}") for name in COUNTERS)):
                for name, value in zip(COUNTERS, values):
                    self.counts[name] += value

        background = (receiver, counter, *watch)
        simulate(dut, sender, background=background, seed=rng.seed_value, deadline=deadline)
        frames = frames_of(items, self.width)
        assert not any(error for _, error in frames)
        return [frame for frame, _ in frames]

    def ask(self, ip=PEER_IP):
        def action(ctx):
            ctx.set(self.dut.neighbour_ip, ip)
            ctx.set(self.dut.neighbour_ask, 1)

        return action

    def counted(self, **counts):
        return self.counts == dict.fromkeys(COUNTERS, 0) | counts
