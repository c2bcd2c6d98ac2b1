"""Families of encoders, one file each; `registry` has the table."""
