"""Studies of vocabulary trimming."""
