"""Between the engine and the host's memory: AXI4, one client a purpose, and the arbiters that share the channels.

:mod:`.reader` and :mod:`.writer` move payload, :mod:`.structure` the engine's rings and tables;
:mod:`.atomic` executes atomics, :mod:`.arbiter` owns the AXI channels, and :mod:`.engine` is all of it.
"""
