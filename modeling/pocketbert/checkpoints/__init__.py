"""Model files: reads and writes configurations and arrays by name."""
