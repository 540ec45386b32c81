"""What the tools tell each other over TCP before, between and after their messages: bytes in and out, no verbs."""
