"""What Linux' programs said to each other: rdma-core 44 and perftest 4.5 as server and client in one machine, read on
the TCP connection between them.
"""

import json
from pathlib import Path

__all__ = ["CONVERSATIONS"]

_TEXT = Path(__file__).with_suffix(".json").read_text()

CONVERSATIONS = {
    label: [tuple(side.encode("latin-1") for side in exchange) for exchange in exchanges]
    for label, exchanges in json.loads(_TEXT).items()
}
"""Pairs of what the client and what the server said, by program and the options that matter; each made 5 iterations."""
