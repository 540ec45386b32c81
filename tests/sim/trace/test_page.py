"""The page's data and its HTML."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from traced import OPERATIONS, run
from verbena.sim.trace.__main__ import main
from verbena.sim.trace.capture_file import read_capture
from verbena.sim.trace.page import data_of, render

CAPTURES = Path(__file__).parents[2] / "captures"


def test_the_chart_of_a_loss_on_another_wire():
    data = data_of(read_capture(CAPTURES / "err_seq_nak_drop_middle.pcap"))
    assert data["hosts"] == ["10.0.0.1", "10.0.0.2"]
    assert not data["messages"]
    rows = [(row["text"], int(re.search(r"PSN (\d+)", row["more"])[1]), row["flags"]) for row in data["chart"]]
    assert [(text, flags) for text, _, flags in rows if flags] == [
        ("NAK sequence", ["nak"]),
        *[("RDMA_WRITE_MIDDLE", ["again"])] * 4,
        ("RDMA_WRITE_LAST", ["again"]),
    ]
    assert [psn for _, psn, _ in rows] == [*range(4096, 4100), 4097, 4100, 4101, *range(4097, 4102), 4101]
    assert data["chart"][0]["time"] == "0.0"
    assert data["summary"] == "13 RoCE packets of 13 frames · 1 NAK"  # it tells of no messages
    assert data["unit"] == "µs"


def test_psns_that_are_missing_are_told():
    capture = read_capture(CAPTURES / "rc_write_5000.pcap")
    del capture.frames[1:3]
    notes = [row["note"] for row in data_of(capture)["chart"]]
    assert [note for note in notes if note] == ["PSN 4097 to 4098 not seen before"]


@pytest.mark.parametrize("name", [path.stem for path in sorted(CAPTURES.glob("*.pcap"))])
def test_every_capture_has_a_chart(name):
    data = data_of(read_capture(CAPTURES / f"{name}.pcap"))
    assert data["chart"]
    assert {row["qp"] for row in data["chart"]} == set(data["qps"])


def test_the_page_needs_nothing_else(tmp_path, capsys):
    page = tmp_path / "a.html"
    assert main(["-o", str(page), str(CAPTURES / "rc_write_5000.pcap")]) == 0
    assert "6 RoCE packets of 6 frames" in capsys.readouterr().out
    text = page.read_text()
    assert not re.search(r"https?://|src=|@import|url\((?!#)", text)
    held = json.loads(re.search(r'id="data">(.*)</script>', text)[1])
    assert held == data_of(read_capture(CAPTURES / "rc_write_5000.pcap"))


def test_times_are_as_fine_as_those_of_the_capture():
    capture = read_capture(CAPTURES / "rc_send_1.pcap")
    capture.frames[1] = replace(capture.frames[1], time=capture.frames[0].time + 2500)
    assert [row["time"] for row in data_of(capture)["chart"]] == ["0.000", "2.500"]


def test_options_may_stand_behind_a_capture(tmp_path, capsys):
    """There is no program that they could be for."""
    page, capture = tmp_path / "a.html", str(CAPTURES / "rc_write_5000.pcap")
    assert main(["--first", "3", capture, "-o", str(page), "--qp", "0x11"]) == 0
    assert str(page) in capsys.readouterr().out
    text = page.read_text()
    assert "<title>rc_write_5000.pcap</title>" in text
    held = json.loads(re.search(r'id="data">(.*)</script>', text)[1])
    assert held == data_of(read_capture(capture), 3, 0x11)


def test_what_stands_behind_a_program_is_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text("import sys\nprint(sys.argv[1:])\n")
    assert main(["job.py", "-o", "a.html", "--", "--first", "0"]) == 1
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "all that stands behind it, also -o" in " ".join(told.split())


@pytest.mark.parametrize("behind", [["second.pcap"], ["--frobnicate"], ["--first", "0"]])
def test_what_does_not_belong_behind_a_capture(behind, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(CAPTURES / "rc_send_1.pcap"), *behind])
    out, error = capsys.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (1, "", 1)
    assert behind[0] in error


def test_a_title_stays_text():
    data = data_of(read_capture(CAPTURES / "rc_send_1.pcap"))
    assert data["summary"] == "2 RoCE packets of 2 frames"
    data["summary"] = "</script><b>"
    text = render(data, "a<b> & $c")
    assert "<title>a&lt;b> &amp; $c</title>" in text
    assert text.count("</script>") == 2


@pytest.mark.verilator
def test_a_run_and_a_part_of_it(tmp_path):
    run(tmp_path / "run.pcapng")
    capture = read_capture(tmp_path / "run.pcapng")
    data = data_of(capture)
    assert [message["size"] for message in data["messages"]] == [size for _, size in OPERATIONS]
    assert data["zero"] == data["messages"][0]["begin"]
    assert data["unit"] == "cycle"
    first = data["chart"][0]
    assert int(first["time"].replace(",", "")) == first["at"] - data["zero"] > 0  # as the timeline counts
    assert data["hosts"] == ["sim0", "sim1"]
    assert len(data["qps"]) == 1
    assert "timers: 16 cycles for 4.096 µs (true: VERBENA_TICK=640)" in data["summary"]
    assert "6 messages, " in data["summary"]
    assert len(data_of(capture, first=2)["messages"]) == 2
    assert "shown: the first 2 of 6 messages" in data_of(capture, first=2)["summary"]
    assert not data_of(capture, number=0xFFFF)["messages"]


@pytest.mark.verilator
def test_a_program_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(
        "import sys\nimport pyverbs.device\nfrom verbena.sim.pair import End, connect\n"
        "a, b = End('sim0', 4096), End('sim1', 4096)\n"
        "connect(a, b)\nsys.exit(int(sys.argv[1]))\n"
    )
    assert main(["job.py", "3"]) == 3
    assert "job.html: 2 adapters" in capsys.readouterr().out
    assert "job.py 3" in Path("job.html").read_text()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing.pcap", "No such file"),
        ("missing.py", "there is no program 'missing.py'"),
        ("true", "true opened no simulated adapter"),
    ],
)
def test_bad_input(what, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([what]) == 1
    assert message in capsys.readouterr().err


def test_at_least_one_message(capsys):
    with pytest.raises(SystemExit):
        main(["--first", "0", "a.pcap"])
    assert "--first must be at least 1, not 0" in capsys.readouterr().err
