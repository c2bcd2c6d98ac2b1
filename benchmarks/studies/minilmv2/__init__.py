"""Studies of MiniLMv2."""
