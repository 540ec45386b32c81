"""Wire order in hardware against the plain Python tables."""

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from verbena.hdl.wire.headers import ENCAPSULATIONS, HEADERS, NETWORKS
from verbena.hdl.wire.layout import RECEIVE_CARRIED, TRANSMIT_CARRIED, PacketMap, header_bits, wire_field
from verbena.hdl.wire.opcodes import OPCODES, REFUSED, SUPPORTED, opcode

V4, V6, V1 = (ENCAPSULATIONS[name] for name in NETWORKS)


@settings(max_examples=20)
@given(st.data())
@pytest.mark.parametrize("name", list(HEADERS))
def test_round_trip(name, data):
    """Fields in, bytes compared, fields out again, at any place in a beat."""
    header = HEADERS[name]
    values = {name: data.draw(st.integers(0, (1 << field.width) - 1)) for name, field in header.fields.items()}
    base = data.draw(st.integers(0, 3))
    fields = {name: Signal(field.width, name=name) for name, field in header.fields.items()}
    out = {name: Signal(field.width, name=f"{name}_out") for name, field in header.fields.items()}
    written = Signal(header.size * 8)
    bits, raw = Signal(header.size * 8), Signal((base + header.size) * 8)
    m = Module()
    m.d.comb += [bits.eq(header_bits(header, **fields)), raw.eq(Cat(Signal(base * 8), bits))]
    for field in header.fields.values():
        m.d.comb += out[field.name].eq(wire_field(raw, field, base))
        m.d.comb += wire_field(written, field).eq(fields[field.name])

    async def testbench(ctx):
        for name, value in values.items():
            ctx.set(fields[name], value)
        assert ctx.get(bits).to_bytes(header.size, "little") == header.pack(**values)
        assert ctx.get(written).to_bytes(header.size, "little") == header.pack(**values)
        assert {name: ctx.get(signal) for name, signal in out.items()} == values

    sim = Simulator(m)
    sim.add_testbench(testbench)
    sim.run()


def test_map():
    places = PacketMap(V4, SUPPORTED, RECEIVE_CARRIED)
    assert (places.bth, places.base_words, places.words) == (7, 11, 17)
    assert places.start("udp") == 5
    assert {sequence.headers: (sequence.words, sequence.carried) for sequence in places.sequences} == {
        (): (10, 0),
        ("aeth",): (11, 0),
        ("aeth", "atomicacketh"): (11, 8),
        ("atomiceth",): (17, 0),
        ("deth",): (12, 0),
        ("deth", "immdt"): (13, 0),
        ("immdt",): (11, 0),
        ("ieth",): (11, 0),
        ("reth",): (14, 0),
        ("reth", "immdt"): (15, 0),
    }
    starts = {name: set(words) for name, words in places.extended().items()}
    # What stands in an IETH is read as an ImmDt is.
    assert starts == {"reth": {10}, "atomiceth": {10}, "aeth": {10}, "deth": {10}, "immdt": {10, 12, 14}}
    assert opcode("RC_RDMA_READ_REQUEST") not in places.payload_codes
    assert opcode("RC_COMPARE_SWAP") not in places.payload_codes
    assert PacketMap(V6, SUPPORTED, RECEIVE_CARRIED).bth == 12
    without_udp = PacketMap(V1, SUPPORTED, RECEIVE_CARRIED)
    assert (without_udp.network_words, without_udp.bth, without_udp.base_words) == (10, 10, 14)
    with pytest.raises(ValueError, match="not 'udp'"):
        without_udp.start("udp")


def test_refused_opcodes_stand_with_others_or_alone():
    places = PacketMap(V4, SUPPORTED, RECEIVE_CARRIED, REFUSED)
    served = PacketMap(V4, SUPPORTED, RECEIVE_CARRIED)
    assert len(places.sequences) == len(served.sequences)
    for code in REFUSED:
        (sequence,) = (each for each in places.sequences if code in each.codes)
        assert (sequence.words, sequence.carried) == (10 + OPCODES[code].header_words, 0)
    assert places.extended() == served.extended()
    assert set(places.payload_codes) - set(served.payload_codes) == {0x1D}
    assert {0x64, 0x65} < set(served.payload_codes)
    alone = PacketMap(V4, [opcode("RC_SEND_ONLY")], RECEIVE_CARRIED, [0x16])
    assert [(each.words, each.codes) for each in alone.sequences] == [(10, (0x04,)), (11, (0x16,))]
    assert not alone.extended()


def test_map_of_transmit():
    places = PacketMap(V4, SUPPORTED, TRANSMIT_CARRIED)
    words = {sequence.headers: (sequence.words, sequence.carried) for sequence in places.sequences}
    assert words["atomiceth",] == (13, 16)
    assert words["aeth", "atomicacketh"] == (11, 8)
    assert places.words == 15
    kinds = {sequence.headers: index for index, sequence in enumerate(places.sequences)}
    remote, last = {kinds["reth",], kinds["reth", "immdt"], kinds["atomiceth",]}, {kinds["reth", "immdt"]}
    datagrams = {kinds["deth",], kinds["deth", "immdt"]}
    shown = {
        (word, name, index): set(members) for (word, name, index), members in places.extended_words().items() if index
    }
    assert shown == {
        (11, "atomiceth", 1): remote,
        (12, "atomiceth", 2): remote,
        (13, "reth", 3): remote - {kinds["atomiceth",]},
        (11, "deth", 1): datagrams,
    }
    first = {name: set(members) for (word, name, _), members in places.extended_words().items() if word == 10}
    assert sorted(map(sorted, first.values())) == sorted(
        map(
            sorted,
            [remote, {kinds["aeth",], kinds["aeth", "atomicacketh"]}, {kinds["immdt",], kinds["ieth",]}, datagrams],
        )
    )
    assert {n for n, members in places.extended_words().items() if n[0] == 14 and set(members) == last} == {
        (14, "immdt", 0)
    }


def test_is_one_of():
    places = PacketMap(V4, SUPPORTED, TRANSMIT_CARRIED)
    code, out = Signal(8), Signal()
    codes = [opcode("RC_ACKNOWLEDGE"), opcode("RC_FETCH_ADD"), opcode("RC_SEND_FIRST")]
    m = Module()
    m.d.comb += out.eq(places.is_one_of(code, codes))

    async def testbench(ctx):
        for each in SUPPORTED:
            ctx.set(code, each)
            assert ctx.get(out) == (each in codes)

    sim = Simulator(m)
    sim.add_testbench(testbench)
    sim.run()


def test_arguments():
    with pytest.raises(ValueError, match="not 28"):
        PacketMap(V4, [0x1C], {})
    with pytest.raises(ValueError, match="not 21"):
        PacketMap(V4, [0x15], {})
    with pytest.raises(ValueError, match="empty"):
        PacketMap(V4, [], {})
    with pytest.raises(ValueError, match="not 'ipv6'"):
        PacketMap(V4, SUPPORTED, {}).start("ipv6")
    with pytest.raises(ValueError, match="not 7"):
        header_bits(HEADERS["aeth"], syndrome=Signal(7))
    with pytest.raises(ValueError, match="no field 'colour'"):
        header_bits(HEADERS["aeth"], colour=1)
