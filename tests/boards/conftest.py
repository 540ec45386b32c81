"""Makes the helpers of the Ethernet blocks' tests importable."""

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parents[1] / "hdl" / "ethernet")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
