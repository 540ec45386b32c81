"""Messages of the connection manager, as tshark takes them apart: those that Linux sent, and those made here."""

import json
import random
import subprocess

import pytest
from frames import ADAPTER, Capture
from mads import CAPTURES, captured_mads
from rocegram import rc_frame, with_icrc
from verbena.sw.cm.ip_header import IpAddresses
from verbena.sw.cm.messages import Dreq, Rej, Rep, Req, Rtu, unpack
from verbena.sw.gids import mapped

NAMES = sorted(path.stem for path in CAPTURES.glob("cm_*.pcap"))
SEND_ONLY, QP1 = 0x64, bytes.fromhex("8001000000000001")

FIELDS = {
    Req: {
        "req": "local_id",
        "req.serviceid": "service_id",
        "req.localcaguid": "ca_guid",
        "req.localqpn": "qpn",
        "req.responderres": "responder_resources",
        "req.initdepth": "initiator_depth",
        "req.remoteresptout": "remote_response_timeout",
        "req.transpsvctype": "transport",
        "req.startpsn": "starting_psn",
        "req.localresptout": "local_response_timeout",
        "req.retrcount": "retry_count",
        "req.pkey": "pkey",
        "req.pppmtu": "path_mtu",
        "req.rnrretrcount": "rnr_retry",
        "req.maxcmretr": "max_cm_retries",
        "req.srq": "srq",
        "req.prim_locallid": "local_lid",
        "req.prim_tfcclass": "traffic_class",
        "req.prim_hoplim": "hop_limit",
        "req.prim_localacktout": "ack_timeout",
    },
    Rep: {
        "rep": "local_id",
        "rep.remotecommid": "remote_id",
        "rep.localqpn": "qpn",
        "rep.startpsn": "starting_psn",
        "rep.respres": "responder_resources",
        "rep.initdepth": "initiator_depth",
        "rep.tgtackdelay": "ack_delay",
        "rep.rnrretrcount": "rnr_retry",
        "rep.localcaguid": "ca_guid",
    },
    Rtu: {"rtu.localcommid": "local_id", "rtu.remotecommid": "remote_id"},
    Rej: {
        "rej.localcommid": "local_id",
        "rej.remotecommid": "remote_id",
        "rej.msgrej": "what",
        "rej.rejinfolen": "ari_length",
        "rej.reason": "reason",
    },
    Dreq: {"dreq.localcommid": "local_id", "dreq.remotecommid": "remote_id", "req.remoteqpneecn": "qpn"},
}
"""tshark's names, and ours, of what both know. tshark 4.0 shows flow label and packet rate wrongly."""


def dissected(path):
    """What tshark says of each MAD of a file: dictionaries of numbers."""
    names = [f"infiniband.cm.{name}" for fields in FIELDS.values() for name in fields]
    words = ["tshark", "-r", str(path), "-Y", "infiniband.mad", "-T", "json"]
    words += [word for name in names for word in ("-e", name)]
    output = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    told = []
    for packet in json.loads(output):
        layers = packet["_source"]["layers"]
        told.append({name.removeprefix("infiniband.cm."): number(texts[0]) for name, texts in layers.items()})
    return told


def number(text):
    return int(text, 16) if text.startswith("0x") else int({"True": "1", "False": "0"}.get(text, text))


def compare(mads, told):
    assert len(mads) == len(told)
    for mad, theirs in zip(mads, told):
        _, ours = unpack(mad)
        fields = FIELDS.get(type(ours), {})
        assert {name: getattr(ours, field) for name, field in fields.items()} == {
            name: value for name, value in theirs.items() if name in fields
        }


@pytest.mark.parametrize("name", NAMES)
def test_linux_messages(name):
    compare(captured_mads(name), dissected(CAPTURES / f"{name}.pcap"))


def test_messages_made_here(tmp_path):
    rng = random.Random("messages")
    mads = []
    for kind in FIELDS:
        for _ in range(5):
            values = {field: rng.randrange(1 << kind.layout.fields[field][1]) for field in FIELDS[kind].values()}
            if kind is Req:
                # tshark takes the private data as rdma_cm's where the service ID says so.
                values |= {"service_id": 0x0106_0000 | rng.randrange(1 << 16), "transport": 0}
                base = rng.choice((mapped(0x0A000000), 0xFE80 << 112))
                values["private_data"] = IpAddresses(base + 1, 4, base + 2).pack()
            mads.append(kind(**values).pack(rng.randrange(1 << 64)))
    capture = Capture(tmp_path / "made.pcapng")
    for mad in mads:
        ends = (0x020000000001, 0x0A000001), (0x020000000002, 0x0A000002)
        capture.frame(ADAPTER, with_icrc(rc_frame(*ends, 1, 0, SEND_ONLY, QP1 + mad + bytes(4), pad=0)), "")
    capture.close()
    compare(mads, dissected(tmp_path / "made.pcapng"))
