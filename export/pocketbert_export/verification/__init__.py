"""The gate: compare a bundle with its float model."""
