"""Quantization: calibration, and changes of a file's weights and activations."""
