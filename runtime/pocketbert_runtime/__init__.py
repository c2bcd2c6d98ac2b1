"""PocketBERT's runtime: text in, answer out, from a bundle, with NumPy and LiteRT."""

from __future__ import annotations

# Equal to `pocketbert.__version__`: both distributions are built from one checkout.
__version__ = "0.1.0"
