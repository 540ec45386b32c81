"""Cycles per message, as perftest would print them, against what is aimed at; ``python -m verbena.sim.bench``.

Two adapters on one wire with 10 GbE framing, exact in cycles: the same rows come out each time, on every machine.
"""
