"""Plots of what a model computes for your texts."""
