"""Grids of options: several runs and the best of them."""
