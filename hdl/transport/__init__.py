"""The reliable connection: who sends what, what is accepted, what is answered."""
