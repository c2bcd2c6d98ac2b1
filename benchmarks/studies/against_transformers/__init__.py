"""Comparisons with transformers and PyTorch."""
