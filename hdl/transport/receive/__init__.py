"""The first stage of what is received: whose it is, and with what context."""
