"""From request packets to ACKs, NAKs and receive completions."""
