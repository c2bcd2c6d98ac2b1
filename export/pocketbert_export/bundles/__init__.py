"""Bundles: a `.tflite` file with its description, golden examples and model card."""
