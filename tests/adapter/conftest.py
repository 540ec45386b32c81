"""Host memory that was used before, and who does not wait long for an answer that nobody gives."""

import ctypes
import os
import random

import pytest
from verbena.sw import control, host_memory

MOST = 1 << 20
"""Bytes that are filled: of large regions the beginning."""


@pytest.fixture(autouse=True)
def used_memory(monkeypatch, request):
    """What is allocated holds anything. Which byte follows from the test's name and ``VERBENA_SEED``."""
    rng = random.Random(f"{os.environ.get('VERBENA_SEED')} {request.node.nodeid}")
    alloc = host_memory._alloc

    def used(part, size, alignment):
        address = alloc(part, size, alignment)
        ctypes.memset(address, rng.choice((0, 0xFF, rng.randrange(256))), min(size, MOST))
        return address

    monkeypatch.setattr(host_memory, "_alloc", used)


@pytest.fixture
def impatient(monkeypatch):
    """Who looks for an address gives up after less quiet than there is between two swaps of `make swaps`, of which each
    adapter has one in 8192 cycles. Returns these cycles."""
    quiet = 2_000
    monkeypatch.setattr(control, "ARP_QUIET", quiet)
    return quiet
