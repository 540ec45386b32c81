"""READ responses and atomic acknowledgements: which are due, and their packets."""
