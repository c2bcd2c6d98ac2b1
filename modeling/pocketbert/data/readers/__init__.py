"""Reads files and tables."""
