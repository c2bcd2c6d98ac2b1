"""Quantization: calibration, and changes to weights and activations."""
