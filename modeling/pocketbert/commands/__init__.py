"""One file a command: its flags and a call."""
