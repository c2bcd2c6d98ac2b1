"""Bundles: folders with a `.tflite` file, its description and its tokenizer files."""
