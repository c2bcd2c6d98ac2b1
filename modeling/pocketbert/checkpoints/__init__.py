"""Model files: configurations and name → array, nothing above."""
