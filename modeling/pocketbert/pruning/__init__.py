"""Removal of weights that a user does not need."""
