"""Layers of the encoder, and the mean that all losses use."""
