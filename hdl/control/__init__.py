"""How the host steers the engine: registers, commands, counters."""
