"""Bundles: folders with a `.tflite` file, its description and the files of its tokenizer."""
