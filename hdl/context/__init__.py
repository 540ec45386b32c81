"""Contexts of queue pairs: where they stand on chip."""
