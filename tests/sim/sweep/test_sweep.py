"""Sweeps from end to end, here and on a Dask cluster."""

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verbena.sim.sweep.__main__ import main

PROGRAM = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
args = parser.parse_args()
if args.size == 2:
    sys.exit("two is too much")
print("some text")
print(json.dumps({"cycles": 10 * args.size + int(os.environ["VERBENA_SEED"]), "tick": os.environ.get("VERBENA_TICK")}))
"""

CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def rows_of(folder):
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


def judge(rows):
    """What the program is to give for sizes 1 to 3 and seeds 5 and 6."""
    assert [(row["size"], row["seed"]) for row in rows] == [(s, n) for s in "123" for n in "56"]
    assert [row["cycles"] for row in rows] == ["15", "16", "", "", "35", "36"]
    assert [row["status"] for row in rows] == ["0", "0", "1", "1", "0", "0"]
    assert {row["tick"] for row in rows} == {"16"}


def test_a_sweep_on_this_machine(program, tmp_path, capsys):
    assert main(["-g", "size=1..3", "-s", "5,6", "-j", "2", "-o", str(tmp_path / "out"), program]) == 1
    judge(rows_of(tmp_path / "out"))
    told = capsys.readouterr()
    assert told.err.count("failed, status 1: two is too much") == 2
    assert "6 of 6 points, 2 failed; timers: 16 cycles for 4.096 µs (true: VERBENA_TICK=640)" in told.out
    assert "(cycles over size)" in told.out
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "some text" in (tmp_path / "out" / "point-0000" / "output.txt").read_text()


def test_the_true_tick(program, tmp_path, capsys):
    assert main(["-g", "size=1", "-s", "5", "--true-tick", "-o", str(tmp_path / "out"), program]) == 0
    assert [row["tick"] for row in rows_of(tmp_path / "out")] == ["640"]
    assert "timers: 640 cycles for 4.096 µs (true)" in capsys.readouterr().out


def test_results_of_a_file(tmp_path):
    text = "import sys, json\njson.dump([{'a': 1}, {'a': 2}], open(sys.argv[1], 'w'))\n"
    (tmp_path / "p.py").write_text(text)
    config = tmp_path / "a.toml"
    lines = [f'program = "{tmp_path}/p.py"', 'arguments = ["{folder}/r.json"]', 'result = "{folder}/r.json"']
    config.write_text("\n".join([*lines, "seeds = [1, 2]"]))
    assert main(["-c", str(config), "-o", str(tmp_path / "out")]) == 0
    assert [(row["point"], row["a"]) for row in rows_of(tmp_path / "out")] == [*zip("0011", "1212")]


def test_a_result_that_is_missing(tmp_path, capsys):
    (tmp_path / "p.py").write_text("")
    args = ["-s", "1", "-r", "{folder}/none.json", "-o", str(tmp_path / "out"), str(tmp_path / "p.py")]
    assert main(args) == 1
    assert "none.json" in capsys.readouterr().err


@pytest.fixture
def cluster(tmp_path):
    """Address of a Dask LocalCluster of two workers in a process of its own."""
    (tmp_path / "cluster.py").write_text(CLUSTER)
    command = [sys.executable, str(tmp_path / "cluster.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("tcp://")
            yield address
        finally:
            process.communicate("\n")


@pytest.mark.slow
def test_a_dask_cluster(program, tmp_path, cluster):
    args = ["-g", "size=1..3", "-s", "5,6", "--scheduler", cluster, "-o", str(tmp_path / "out"), program]
    command = [sys.executable, "-m", "verbena.sim.sweep", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    judge(rows_of(tmp_path / "out"))
    assert done.stderr.count("two is too much") == 2


ROOT = Path(__file__).parents[3]


def make(folder, *words):
    """Runs ``make``, in a folder of its own, with the environment that runs this test."""
    command = ["make", "-f", str(ROOT / "Makefile"), f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.ready", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
@pytest.mark.verilator
def test_make_soak_on_a_cluster(tmp_path, cluster):
    done = make(tmp_path, "soak", "SEEDS=1..2", "OPERATIONS=200", f"SCHEDULER={cluster}")
    assert done.returncode == 0, done.stderr
    assert "2 of 2 points; timers: 16 cycles for 4.096 µs" in done.stdout
    rows = rows_of(tmp_path / "build" / "soak-sweep")
    assert [(row["seed"], row["status"]) for row in rows] == [("1", "0"), ("2", "0")]


@pytest.mark.slow
@pytest.mark.verilator
def test_make_bench_on_a_cluster(tmp_path, cluster):
    """Of what it runs, one group: all take minutes."""
    done = make(tmp_path, "bench", "WIDTHS=64", "ONLY=latency", f"SCHEDULER={cluster}")
    assert done.returncode == 0, done.stderr
    assert "(payload_bytes_per_cycle over size)" in done.stdout
    rows = rows_of(tmp_path / "build" / "bench-sweep")
    assert {(row["data-width"], row["group"]) for row in rows} == {("64", "latency")}
    assert all(int(row["latency_cycles"]) > 100 for row in rows)


@pytest.mark.parametrize("where", ["here", pytest.param("cluster", marks=pytest.mark.slow)])
def test_an_interrupt_ends_it_cleanly(where, tmp_path, request):
    """Two points run at once; the first ends, two are interrupted, the others never begin."""
    text = "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
    text += "time.sleep(0 if sys.argv[2] == '1' else 600)\n"
    (tmp_path / "p.py").write_text(text)
    args = ["-s", "1..9", "-j", "2", "-o", str(tmp_path / "out")]
    if where == "cluster":
        args += ["--scheduler", request.getfixturevalue("cluster")]
    args += [str(tmp_path / "p.py"), f"{tmp_path}/pid-{{seed}}", "{seed}"]
    command = [sys.executable, "-m", "verbena.sim.sweep", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        end = time.monotonic() + 60
        while len(pids := list(tmp_path.glob("pid-*"))) < 3 or not all(path.read_text() for path in pids):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1)  # what the first one gave is heard of
        sweep.send_signal(signal.SIGINT)
        out, error = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, error
    assert "Traceback" not in error
    assert "1 of 9 points" in out
    assert [row["seed"] for row in rows_of(tmp_path / "out")] == ["1"]
    end = time.monotonic() + 20
    while any(Path(f"/proc/{path.read_text()}").exists() for path in tmp_path.glob("pid-*")):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(list(tmp_path.glob("pid-*"))) == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-s", "1"], "there is no program"),
        (["a.py"], "there is nothing to vary"),
        (["-g", "size", "a.py"], "--grid is NAME=VALUES, not 'size'"),
        (["-s", "3..1", "a.py"], "there is no range '3..1'"),
        (["-s", "1", "-j", "0", "a.py"], "--jobs must be at least 1, not 0"),
        (["-c", "missing.toml"], "missing.toml"),
        (["-s", "1", "missing-program"], "No such file"),
    ],
)
def test_bad_input(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 1
    assert message in capsys.readouterr().err
