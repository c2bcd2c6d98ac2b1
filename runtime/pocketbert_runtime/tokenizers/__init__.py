"""Tokenizers without TensorFlow: texts to ids and offsets, in NumPy arrays."""
