"""Whole adapters in cocotb test benches, driven by the same driver as everywhere."""

import os

from verbena.sim.cocotb_runner import run
from verbena.sim.model import rnic

SEED = int(os.environ.get("VERBENA_SEED") or 1)
DESIGN = rnic(data_width=int(os.environ.get("VERBENA_DATA_WIDTH") or 64))


def test_two_adapters_and_the_driver(tmp_path):
    run("bench_pair", DESIGN, adapters=2, folder=tmp_path, seed=SEED)


def test_cocotbext_axi_as_host(tmp_path):
    run("bench_axi", DESIGN, adapters=2, world=("wire",), folder=tmp_path, seed=SEED)
