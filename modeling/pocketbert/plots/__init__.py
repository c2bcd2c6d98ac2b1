"""Plots a model's attention and feed-forward networks."""
