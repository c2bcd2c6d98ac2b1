"""Removes weights that a user does not need."""
