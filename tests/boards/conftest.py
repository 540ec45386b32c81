"""Makes this folder's helpers importable, and those of the Ethernet blocks' tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "hdl" / "ethernet"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
