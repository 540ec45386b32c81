"""The cases, in groups that share one guest and one adapter."""
