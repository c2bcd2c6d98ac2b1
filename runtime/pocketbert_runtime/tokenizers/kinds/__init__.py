"""Kinds of tokenizers, one file each; `registry` has the table."""
