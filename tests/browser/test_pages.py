"""The pages of ``verbena trace`` in a headless Chromium (``make pages``)."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from traced import run
from verbena.sim.trace.__main__ import main
from verbena.sim.trace.capture_file import read_capture
from verbena.sim.world import Faults
from verbena.sw.verbs.libibverbs_enums import IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE

HERE = Path(__file__).parent


def opened(page, anchor="", script="", width=1400):
    """What the browser makes of a page, as HTML without the scripts; ``script`` is run in it at its end."""
    chromium = shutil.which("chromium") or pytest.fail("chromium is missing: sudo apt install chromium")
    if script:
        copy = page.with_name("copy.html")
        copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
        page = copy
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
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


FAULTS = """
const texts = [...document.querySelectorAll("svg text")].filter((text) => text.textContent !== "✕");
const boxes = texts.map((text) => {
  const box = text.getBoundingClientRect(), clip = text.closest("[clip-path]") ? left - 6 : Infinity;
  const right = Math.min(box.right, clip);
  return { text: text.textContent, left: box.left, right, top: box.top + 2, bottom: box.bottom - 2 };
});
const found = [];
for (const a of boxes) {
  if (a.right > innerWidth + 1 || a.left < 0) found.push(`${a.text} is cut off`);
  for (const b of boxes) {
    const meet = a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom && b.top < a.bottom;
    if (a !== b && meet) found.push(`${a.text} over ${b.text}`);
  }
}
const table = document.getElementById("detail");
if (table.scrollWidth > table.clientWidth) found.push("the table is cut off");
if (document.documentElement.scrollHeight > innerHeight) found.push("the page is higher than the window");
if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
document.body.dataset.faults = `${boxes.length} texts; ${found.join("; ")}`;
"""
"""Which texts stand in each other's way, or do not fit."""


def pages_of(folder):
    """Runs of all operations, of READs over a bad wire, and of an error; and a capture of others."""
    run(folder / "all.pcapng")
    run(
        folder / "lossy.pcapng",
        [(IBV_WR_RDMA_READ, 6000)] * 6,
        prepare=lambda world: world.set_faults(Faults(lose=0.1, duplicate=0.05, corrupt=0.05)),
    )
    run(folder / "error.pcapng", [(IBV_WR_RDMA_WRITE, 3000)] * 3, rkey=1)
    for capture in (*folder.glob("*.pcapng"), HERE.parent / "captures" / "err_seq_nak_drop_middle.pcap"):
        assert main([str(capture), "-o", str(folder / f"{capture.stem}.html")]) == 0
        yield folder / f"{capture.stem}.html"


@pytest.mark.parametrize("width", [1400, 760])
def test_no_text_stands_in_the_way_of_another(tmp_path, width):
    for page in pages_of(tmp_path):
        for view in ("", "#chart"):
            text = opened(page, view, script=FAULTS, width=width)
            count, faults = re.search(r'data-faults="(\d+) texts; ([^"]*)"', text).groups()
            assert int(count) > 20
            assert not faults, (page.name, view)


def test_an_error_is_red(tmp_path):
    run(tmp_path / "run.pcapng", [(IBV_WR_RDMA_WRITE, 3000)] * 2, rkey=1)
    assert main([str(tmp_path / "run.pcapng"), "-o", str(tmp_path / "a.html")]) == 0
    text = opened(tmp_path / "a.html")
    assert re.search(r'class="bad">REM_ACCESS_ERR</text>', text)
    assert re.search(r'fill="var\(--bad\)"[^>]*data-tip="CQE', text)


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
