"""PocketBERT with and without one of its own features."""
