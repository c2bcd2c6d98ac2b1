"""Tokenizers in the TensorFlow graph: texts to ids."""
