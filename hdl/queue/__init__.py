"""Rings in host memory: work queues are fetched ahead of need, completions and events are written."""
