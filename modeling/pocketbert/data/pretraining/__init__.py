"""Pretraining data: making it, and reading it."""
