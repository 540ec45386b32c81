"""From send WQEs to request packets."""
