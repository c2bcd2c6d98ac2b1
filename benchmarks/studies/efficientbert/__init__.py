"""Studies of EfficientBERT."""
