"""Random operations of every kind over a faulty wire, checked byte by byte; ``python -m verbena.sim.soak``."""
