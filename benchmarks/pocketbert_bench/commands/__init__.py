"""One module per command: its options and `run`."""
