"""Boards, and what the open toolchain makes of the engine."""
