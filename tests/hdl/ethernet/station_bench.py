"""A station on its wire: frames in, frames out, for the tests of ARP, neighbour discovery and ICMP."""

import ipaddress

from ether_frames import IP_ADDRESS, MAC, PEER_IP, beats, frames_of
from streams import collect, make_rng, pause, shared, simulate
from verbena.hdl.abi.gids import GID_COUNT, GID_ROW, GidType
from verbena.hdl.ethernet.arp_icmp import ArpIcmp
from verbena.hdl.wire.gid_row import GID_WORDS

__all__ = ["COUNTERS", "LONGEST", "REST", "SILENT", "Bench", "number", "upper_case"]

COUNTERS = ("arp_replies", "echo_replies", "drop_station")
LONGEST = 400
"""More cycles than the station is busy with a small frame."""
SILENT, SILENT6 = 170, 290
"""More cycles than an answer takes to begin; also if it is one of IPv6."""
REST = "rest"
"""In a script: until an answer has gone out, or none can come any more."""


def number(text):
    """The GID, of an IPv6 or an IPv4 address."""
    address = ipaddress.ip_address(text)
    return int(address) if address.version == 6 else 0xFFFF << 32 | int(address)


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
            for name, value in {"mac": MAC, "ip": IP_ADDRESS, "enable": self.enable}.items():
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
        """Without a table."""

        def action(ctx):
            ctx.set(self.dut.neighbour_ip, ip)
            ctx.set(self.dut.neighbour_ask, 1)

        return action

    def ask_from(self, row, address):
        """With a table, from the address in a row; for a text of either version."""

        def action(ctx):
            ctx.set(self.dut.neighbour_gid, number(address))
            ctx.set(self.dut.neighbour_row, row)
            ctx.set(self.dut.neighbour_ask, 1)

        return action

    def table(self, rows):
        """A script that fills the table: ``rows`` are ``(address, type, vlan)`` by their index; a type of None: the row
        is not valid.
        """

        def write(item):
            def action(ctx):
                ctx.set(self.dut.gid, item)
                ctx.set(self.dut.gid_en, 1)

            return action

        def end(ctx):
            ctx.set(self.dut.gid_en, 0)

        script = []
        for index in range(GID_COUNT):
            text, kind, vlan = rows.get(index, ("::", None, 0))
            gid = number(text)
            fields = {"gid_low": gid & (1 << 64) - 1, "gid_high": gid >> 64, "tagged": vlan != 0, "vlan": vlan}
            row = GID_ROW.words(**fields, type=GidType.ROCE_V2_IPV6 if kind is None else kind, valid=kind is not None)
            for word in range(GID_WORDS):
                script += [write({"index": index, "word": word, "data": row[word]}), end]
        return script

    def counted(self, **counts):
        return self.counts == dict.fromkeys(COUNTERS, 0) | counts


async def upper_case(ctx, dut, sizes, seen):
    """A service: makes small letters large, and answers with as many bytes as ``sizes`` has for the request."""
    service = dut.service
    for size in sizes:
        while not (await ctx.tick().sample(service.start))[-1]:
            pass

        async def read(place):
            ctx.set(service.place, place)
            await ctx.tick().repeat(3)
            return ctx.get(service.r_data)

        length = await read(8) - 28
        payload = b""
        for place in range(21, 21 + (length + 1) // 2):
            value = await read(place)
            payload += value.to_bytes(2, "big")
            ctx.set(service.w_data, value & 0xDFDF)
            ctx.set(service.w_en, 1)
            await ctx.tick()
            ctx.set(service.w_en, 0)
        seen.append((await read(15) << 16 | await read(16), payload[:length]))
        ctx.set(service.size, size)
        ctx.set(service.done, 1)
        await ctx.tick()
        ctx.set(service.done, 0)
