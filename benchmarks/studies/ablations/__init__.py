"""PocketBERT with and without one of its features."""
