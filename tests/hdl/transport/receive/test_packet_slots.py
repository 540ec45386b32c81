"""PacketSlots: a packet goes to its QP's slot, waits for it, or passes as that of nobody."""

from conflict_ram import ConflictRam
from directory_bench import DirectoryBench
from streams import make_rng, simulate
from verbena.hdl.context import directory
from verbena.hdl.transport.receive.packet_slots import PacketSlots

QPS, SLOTS = 16, 4


def test_packets_of_qps_that_come_and_go(monkeypatch):
    """In order, each once; ``away`` is set for as long as the first one's QP has no slot, and ``next_away`` for the one
    behind it."""
    monkeypatch.setattr(directory, "Ram", ConflictRam)
    rng = make_rng()
    dut = DirectoryBench(PacketSlots, qps=QPS, slots=SLOTS)
    rows = {}  # QP: slot, or None
    sent, got = [], []
    kinds = {"here": 0, "absent": 0, "away": 0, "next": 0}

    async def testbench(ctx):
        while not ctx.get(dut.directory_ready):
            await ctx.tick()
        offered = packet = None  # at `i`; inside, and next to go
        waited = next_waited = 0
        for number in range(2400):
            if offered is None and rng.random() < 0.7:
                # The high bits of a number do not count here.
                offered, next_waited = (rng.randrange(6) | rng.randrange(1 << 20) << 4, number), 0
                sent.append(offered)
            qp = packet[0] % QPS if packet else None
            ctx.set(dut.i.valid, offered is not None)
            ctx.set(dut.i.payload.transport.dest_qpn, offered[0] if offered else rng.randrange(6))
            ctx.set(dut.i.payload.source_ip, offered[1] if offered else 0)
            # Somebody moves: now and then any, and the one that has waited for long.
            write = None
            if waited > 20 and rows.get(qp, "") is None:
                write = (qp, rng.choice([slot for slot in range(SLOTS) if slot not in rows.values()] or [None]))
            elif rng.random() < 0.05:
                free = [slot for slot in range(SLOTS) if slot not in rows.values()]
                write = (rng.randrange(6), rng.choice(["absent", None, None, *free]))
            ctx.set(dut.place, write is not None)
            if write:
                row = {"known": int(write[1] != "absent"), "here": 0, "value": 0}
                row |= {"here": 1, "value": write[1]} if isinstance(write[1], int) else {}
                ctx.set(dut.place_index, write[0])
                ctx.set(dut.place_row, row)
            ctx.set(dut.probe, rng.random() < 0.3)
            ready = rng.random() < 0.6
            ctx.set(dut.o.ready, ready)
            slot = rows.get(qp, "absent")
            valid = ctx.get(dut.o.valid)
            assert not (valid and (write or packet is None))
            assert ctx.get(dut.i.ready) == (packet is None)
            if ctx.get(dut.away):
                assert slot is None
                assert not valid
                assert ctx.get(dut.index) == qp
            if valid:
                assert ctx.get(dut.absent) == (slot == "absent")
                assert slot is not None
                assert slot in ("absent", ctx.get(dut.slot))
                assert ctx.get(dut.o.payload.transport.dest_qpn) == packet[0]
            assert ctx.get(dut.used_en) == (valid and ready and slot != "absent")
            behind = rows.get(offered[0] % QPS, "absent") if offered else "none"
            if ctx.get(dut.next_away):
                assert behind is None
                assert ctx.get(dut.next_index) == offered[0] % QPS
                kinds["next"] += 1
            # It is known by now, unless something has just changed.
            waited = 0 if write else waited + 1
            next_waited = 0 if write or None in (packet, offered) else next_waited + 1
            if packet and waited > 16:
                assert valid or ctx.get(dut.away)
            if next_waited > 16:
                assert ctx.get(dut.next_away) == (behind is None)
            if ctx.get(dut.away):
                kinds["away"] += 1
            if valid and ready:
                got.append((packet[0], ctx.get(dut.o.payload.source_ip)))
                kinds["absent" if slot == "absent" else "here"] += 1
            await ctx.tick()
            if packet is None:
                packet, offered, waited = offered, None, 0
            elif valid and ready:
                packet = None
            if write:
                rows[write[0]] = write[1]
                if write[1] == "absent":
                    del rows[write[0]]
        assert got == sent[: len(got)]

    simulate(dut, testbench, seed=rng.seed_value)
    assert min(kinds.values()) > 30
