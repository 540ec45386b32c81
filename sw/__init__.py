"""The driver: verbs over a device port, on the standard library alone."""
