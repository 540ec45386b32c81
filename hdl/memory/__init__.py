"""Registered memory: caches of the tables in host memory, and the check that every access passes."""
