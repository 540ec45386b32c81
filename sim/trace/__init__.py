"""A run as one HTML page: a timeline of each message, and a message sequence chart."""
