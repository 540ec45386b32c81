"""The engine: synthesizable Amaranth, one block a component."""
