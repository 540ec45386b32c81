"""The pages of ``verbena trace`` in a headless Chromium (``make pages``)."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from traced import run
from verbena.sim.trace.__main__ import main
from verbena.sim.trace.capture_file import read_capture
from verbena.sw.verbs.libibverbs_enums import IBV_WR_RDMA_WRITE

HERE = Path(__file__).parent


def opened(page, anchor="", script=""):
    """What the browser makes of a page, as HTML without the scripts; ``script`` is run in it at its end."""
    chromium = shutil.which("chromium") or pytest.fail("chromium is missing: sudo apt install chromium")
    if script:
        copy = page.with_name("copy.html")
        copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
        page = copy
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--dump-dom"]
    profile = f"--user-data-dir={page.parent / 'profile'}"
    done = subprocess.run(
        [*command, profile, f"file://{page}{anchor}"], capture_output=True, text=True, timeout=120, check=True
    )
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    run(folder / "run.pcapng")
    assert main(["-o", str(folder / "run.html"), str(folder / "run.pcapng")]) == 0
    return folder / "run.html"


def test_the_timeline(page):
    text = opened(page)
    frames = len(read_capture(page.with_suffix(".pcapng")).frames) // 2  # each where it was sent and where it arrived
    assert f'data-ready="6 messages, {frames} packets"' in text
    assert 'data-message="0"' in text
    for word in ("RDMA_WRITE", "SEND", "WQE fetch", "translation", "requester sim0", "responder sim1"):
        assert word in text
    assert re.search(r"cycles 0 to \d+: \d+\nthe WQE and its doorbell", text)


def test_a_click_shows_a_message(page):
    script = (
        'const row = document.querySelectorAll(".row")[1];'
        'row.dispatchEvent(new MouseEvent("mousedown", {bubbles: true}));'
        'row.dispatchEvent(new MouseEvent("mouseup", {bubbles: true}));'
    )
    assert "<h2>SEND, 3,000 bytes</h2>" in opened(page, script=script)


def test_the_chart(page):
    text = opened(page, "#chart")
    assert text.count('class="arrow"') >= 15
    assert "RDMA_READ_RESPONSE_FIRST" in text
    assert "PSN 16777214" in text


def test_many_messages(tmp_path):
    run(tmp_path / "run.pcapng", [(IBV_WR_RDMA_WRITE, 64)] * 100)
    assert main(["-o", str(tmp_path / "a.html"), str(tmp_path / "run.pcapng")]) == 0
    script = 'document.getElementById("scroll").scrollTop = 1e6; draw();'
    text = opened(tmp_path / "a.html", script=script)
    assert "100 messages" in text
    rows = [int(n) for n in re.findall(r'data-message="(\d+)"', text)]
    assert rows[-1] == 99
    assert len(rows) < 40  # what is in sight


def test_a_capture_of_others(tmp_path):
    capture = HERE.parent / "captures" / "err_seq_nak_drop_middle.pcap"
    assert main(["-o", str(tmp_path / "a.html"), str(capture)]) == 0
    text = opened(tmp_path / "a.html")
    assert text.count('class="arrow"') == 13
    assert "NAK sequence" in text
    assert text.count('stroke-dasharray="6 3"') == 5
