"""Runs the soak: ``python -m verbena.sim.soak --help``."""

import sys

from .run import main

if __name__ == "__main__":
    sys.exit(main())
