"""Runs the soak: ``python -m verbena.sim.soak --help``."""

import sys

from .run import main

sys.exit(main())
