"""The station on the Ethernet: what it answers besides RoCE, and the MAC that brings it onto the wire."""
